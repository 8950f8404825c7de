//! Appends pieces to the merged output. One writer: the driver.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::record::{
    CONTINUATION, DATA_NAME, HERD, INDEX_NAME, MAX_PIECE_BYTES, PREFIXED, RECORD_BYTES, Record,
    Stream,
};
use crate::error::JobDirError;

/// Bytes gathered before they are written without being asked.
const BUFFER_BYTES: usize = 256 * 1024;

/// Where a contiguous piece of one stream comes from, and what its text looks like.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// When it was merged, milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// Global rank, or [`HERD`].
    pub rank: u32,
    /// Node index.
    pub node: u32,
    /// Which of its streams.
    pub stream: Stream,
    /// Length of the prefix that each line beginning in the text carries; 0 where there is none.
    pub prefix_len: u16,
    /// Whether the text begins in the middle of a line.
    pub continuation: bool,
}

/// The writer of `run.log` and `run.index`.
#[derive(Debug)]
pub struct RunLogWriter {
    data: Sink,
    index: Sink,
    /// Length of the text once the buffer is written.
    offset: u64,
}

#[derive(Debug)]
struct Sink {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
}

impl RunLogWriter {
    /// Opens the merged output of a job, to go on where it ends. What a crash left in the text
    /// without a record gets one; what it left of a record is cut.
    pub fn open(job_dir: &Path) -> Result<Self, JobDirError> {
        let data = Sink::open(job_dir.join(DATA_NAME))?;
        let mut index = Sink::open(job_dir.join(INDEX_NAME))?;
        let offset = data.length()?;
        let covered = index.cut_torn_record(offset)?;
        let mut from = covered;
        while from < offset {
            let length = (offset - from).min(MAX_PIECE_BYTES as u64);
            index.buffer.extend(
                Record {
                    time_ms: 0,
                    offset: from,
                    length: u32::try_from(length).unwrap_or(u32::MAX),
                    rank: HERD,
                    node: 0,
                    stream: Stream::Herd,
                    flags: 0,
                    prefix_len: 0,
                }
                .encode(),
            );
            from += length;
        }
        Ok(Self {
            data,
            index,
            offset,
        })
    }

    /// Takes one piece, whose text `fill` appends with its prefixes as it shall stand in `run.log`:
    /// straight into the buffer, since this is the path of every byte. It is in the files after the
    /// next [`RunLogWriter::flush`], or earlier.
    ///
    /// On an error the piece was not taken; earlier ones are kept and tried again.
    pub fn append(
        &mut self,
        piece: &Piece,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), JobDirError> {
        if self.data.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        let start = self.data.buffer.len();
        fill(&mut self.data.buffer);
        let mut in_line = piece.continuation;
        let text = self.data.buffer.get(start..).unwrap_or_default();
        for part in text.chunks(MAX_PIECE_BYTES) {
            let prefixed = if piece.prefix_len > 0 { PREFIXED } else { 0 };
            let continued = if in_line { CONTINUATION } else { 0 };
            let record = Record {
                time_ms: piece.time_ms,
                offset: self.offset,
                length: u32::try_from(part.len()).unwrap_or(u32::MAX),
                rank: piece.rank,
                node: piece.node,
                stream: piece.stream,
                flags: prefixed | continued,
                prefix_len: piece.prefix_len,
            };
            self.index.buffer.extend_from_slice(&record.encode());
            self.offset += part.len() as u64;
            in_line = part.last() != Some(&b'\n');
        }
        Ok(())
    }

    /// Forgets what waits to be written, where there is no space for it: it must not take what others
    /// need more when some is free again.
    pub fn discard(&mut self) {
        self.data.buffer = Vec::new();
        self.index.buffer = Vec::new();
    }

    /// Bytes of text taken so far, over all attempts.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether pieces wait to be written.
    pub fn is_dirty(&self) -> bool {
        !self.data.buffer.is_empty() || !self.index.buffer.is_empty()
    }

    /// Writes what was taken: the text, then the index.
    pub fn flush(&mut self) -> Result<(), JobDirError> {
        self.data.flush()?;
        self.index.flush()
    }
}

impl Drop for RunLogWriter {
    fn drop(&mut self) {
        // An error has nowhere to go here; callers that care have flushed.
        drop(self.flush());
    }
}

impl Sink {
    fn open(path: PathBuf) -> Result<Self, JobDirError> {
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(JobDirError::at("open", &path))?;
        Ok(Self {
            file,
            path,
            buffer: Vec::new(),
        })
    }

    fn length(&self) -> Result<u64, JobDirError> {
        let meta = self
            .file
            .metadata()
            .map_err(JobDirError::at("look at", &self.path))?;
        Ok(meta.len())
    }

    /// Cuts an incomplete last record and says how far the text is covered, at most `data_len`.
    fn cut_torn_record(&mut self, data_len: u64) -> Result<u64, JobDirError> {
        let size = RECORD_BYTES as u64;
        let length = self.length()?;
        let whole = length - length % size;
        if whole != length {
            self.file
                .set_len(whole)
                .map_err(JobDirError::at("repair", &self.path))?;
        }
        if whole == 0 {
            return Ok(0);
        }
        let mut last = [0; RECORD_BYTES];
        self.file
            .read_exact_at(&mut last, whole - size)
            .map_err(JobDirError::at("read", &self.path))?;
        let last = Record::decode(&last);
        Ok(last
            .offset
            .saturating_add(u64::from(last.length))
            .min(data_len))
    }

    /// Writes the buffer; what a full disk left unwritten stays in it.
    fn flush(&mut self) -> Result<(), JobDirError> {
        let mut done = 0;
        let outcome = loop {
            match self.buffer.get(done..) {
                None | Some([]) => break Ok(()),
                Some(rest) => match self.file.write(rest) {
                    Ok(0) => break Err(io::Error::from(io::ErrorKind::WriteZero)),
                    Ok(written) => done += written,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => break Err(error),
                },
            }
        };
        self.buffer.drain(..done);
        outcome.map_err(JobDirError::at("append to", &self.path))
    }
}
