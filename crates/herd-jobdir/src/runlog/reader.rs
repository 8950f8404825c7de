//! Reads the merged output through its index, with filters.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::filter::Filter;
use super::grep::Grep;
use super::record::{DATA_NAME, INDEX_NAME, MAX_PIECE_BYTES, RECORD_BYTES, Record};
use crate::error::JobDirError;

/// Records read at once: 64 KiB of index.
const BATCH: u64 = 2048;

/// A reader at its place in the merged output.
#[derive(Debug)]
pub struct RunLogReader {
    data: File,
    data_path: PathBuf,
    index: File,
    index_path: PathBuf,
    filter: Filter,
    grep: Option<Grep>,
    /// Records read from the file, and how many of them were dealt with.
    batch: Vec<Record>,
    taken: usize,
    /// Number of the first record after the batch.
    next: u64,
    /// Lines to leave out before the first one shown, after a tail.
    skip_lines: usize,
    current: Option<Record>,
    buffer: Vec<u8>,
}

/// One piece, or the lines of it that were wanted.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Where it came from. With `grep` or `tail`, `offset` and `length` are those of the piece.
    pub record: Record,
    /// The text with its prefixes.
    pub bytes: &'a [u8],
    /// Whether `bytes` begins in the middle of a line.
    pub in_line: bool,
}

impl RunLogReader {
    /// Opens the merged output of a job; nothing where it has none yet.
    pub fn open(job_dir: &Path, filter: Filter) -> Result<Option<Self>, JobDirError> {
        let tail = filter.tail;
        let Some(mut reader) = Self::open_at(job_dir, filter, 0)? else {
            return Ok(None);
        };
        if let Some(lines) = tail {
            reader.seek_tail(lines)?;
        }
        Ok(Some(reader))
    }

    /// The same from a record on, whatever the filter says of a tail.
    pub(super) fn open_at(
        job_dir: &Path,
        filter: Filter,
        next: u64,
    ) -> Result<Option<Self>, JobDirError> {
        let data_path = job_dir.join(DATA_NAME);
        let index_path = job_dir.join(INDEX_NAME);
        let (Some(data), Some(index)) = (open(&data_path)?, open(&index_path)?) else {
            return Ok(None);
        };
        let grep = filter.grep.as_deref().map(Grep::new);
        Ok(Some(Self {
            data,
            data_path,
            index,
            index_path,
            filter,
            grep,
            batch: Vec::new(),
            taken: 0,
            next,
            skip_lines: 0,
            current: None,
            buffer: Vec::new(),
        }))
    }

    /// Number of the next record.
    pub(super) fn position(&self) -> u64 {
        self.next - (self.batch.len() - self.taken) as u64
    }

    /// The next wanted piece; nothing where the reader has caught up. More may come later.
    pub fn read(&mut self) -> Result<Option<Entry<'_>>, JobDirError> {
        if self.advance()? {
            Ok(self.entry())
        } else {
            Ok(None)
        }
    }

    /// Moves to the next wanted piece; false where the reader has caught up.
    pub(super) fn advance(&mut self) -> Result<bool, JobDirError> {
        self.current = None;
        loop {
            let Some(record) = self.next_record()? else {
                return Ok(false);
            };
            if !self.filter.admits(&record) || !self.load(&record)? {
                continue;
            }
            let mut record = record;
            if let Some(grep) = &mut self.grep {
                grep.select(&record, &mut self.buffer);
                // What is left are whole lines, those begun further up included.
                record.flags &= !super::record::CONTINUATION;
            }
            if self.skip_lines > 0 && self.drop_lines() {
                record.flags &= !super::record::CONTINUATION;
            }
            if !self.buffer.is_empty() {
                self.current = Some(record);
                return Ok(true);
            }
        }
    }

    /// The piece moved to.
    pub(super) fn entry(&self) -> Option<Entry<'_>> {
        let record = self.current?;
        Some(Entry {
            record,
            bytes: &self.buffer,
            in_line: record.is_continuation(),
        })
    }

    fn next_record(&mut self) -> Result<Option<Record>, JobDirError> {
        if self.taken == self.batch.len() {
            self.read_batch(self.next)?;
            self.next += self.batch.len() as u64;
        }
        let record = self.batch.get(self.taken).copied();
        self.taken += usize::from(record.is_some());
        Ok(record)
    }

    /// Reads up to [`BATCH`] whole records from number `from`.
    fn read_batch(&mut self, from: u64) -> Result<(), JobDirError> {
        self.batch.clear();
        self.taken = 0;
        let wanted = usize::try_from(BATCH)
            .unwrap_or(usize::MAX)
            .saturating_mul(RECORD_BYTES);
        let mut bytes = vec![0; wanted];
        let read = read_some(
            &self.index,
            &mut bytes,
            from.saturating_mul(RECORD_BYTES as u64),
        )
        .map_err(JobDirError::at("read", &self.index_path))?;
        let (records, _torn) = bytes[..read].as_chunks::<RECORD_BYTES>();
        self.batch.extend(records.iter().map(Record::decode));
        Ok(())
    }

    /// Fills the buffer with a piece; false where the record cannot be right.
    fn load(&mut self, record: &Record) -> Result<bool, JobDirError> {
        let length = record.length as usize;
        if length > MAX_PIECE_BYTES {
            return Ok(false);
        }
        self.buffer.resize(length, 0);
        match self.data.read_exact_at(&mut self.buffer, record.offset) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(JobDirError::io("read", &self.data_path, error)),
        }
    }

    /// Goes back from the end until `lines` wanted lines lie ahead.
    fn seek_tail(&mut self, lines: usize) -> Result<(), JobDirError> {
        let meta = self
            .index
            .metadata()
            .map_err(JobDirError::at("look at", &self.index_path))?;
        let total = meta.len() / RECORD_BYTES as u64;
        if lines == 0 {
            self.next = total;
            return Ok(());
        }
        let mut end = total;
        let mut found = 0;
        // The very last line may lack its end.
        let mut last = true;
        while end > 0 {
            let from = end.saturating_sub(BATCH);
            self.read_batch(from)?;
            let count = usize::try_from(end - from)
                .unwrap_or(usize::MAX)
                .min(self.batch.len());
            for at in (0..count).rev() {
                let record = self.batch[at];
                if !self.filter.admits(&record) || !self.load(&record)? {
                    continue;
                }
                found += if let Some(grep) = &self.grep {
                    grep.count(&record, &self.buffer)
                } else {
                    let open = last && self.buffer.last() != Some(&b'\n');
                    memchr::memchr_iter(b'\n', &self.buffer).count() + usize::from(open)
                };
                last = false;
                // One line end more than wanted: the piece may begin inside the line before.
                if found > lines || (found == lines && self.begins_line(&record)) {
                    self.next = from + at as u64;
                    self.skip_lines = found - lines;
                    self.batch.clear();
                    return Ok(());
                }
            }
            end = from;
        }
        self.batch.clear();
        self.next = 0;
        Ok(())
    }

    fn begins_line(&self, record: &Record) -> bool {
        self.grep.is_some() || !record.is_continuation()
    }

    /// Drops whole lines from the buffer's beginning; whether any was dropped.
    fn drop_lines(&mut self) -> bool {
        let mut cut = 0;
        for end in memchr::memchr_iter(b'\n', &self.buffer) {
            if self.skip_lines == 0 {
                break;
            }
            self.skip_lines -= 1;
            cut = end + 1;
        }
        if self.skip_lines > 0 {
            cut = self.buffer.len();
        }
        self.buffer.drain(..cut);
        cut > 0
    }
}

impl Entry<'_> {
    /// Appends the text without its prefixes to `output`.
    pub fn strip_into(&self, output: &mut Vec<u8>) {
        let prefix = self.record.prefix_bytes();
        let mut in_line = self.in_line;
        for line in self.bytes.split_inclusive(|byte| *byte == b'\n') {
            let skip = if in_line { 0 } else { prefix.min(line.len()) };
            output.extend_from_slice(&line[skip..]);
            in_line = false;
        }
    }
}

fn open(path: &Path) -> Result<Option<File>, JobDirError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(JobDirError::io("open", path, error)),
    }
}

/// Reads until the buffer is full or the file ends.
fn read_some(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
