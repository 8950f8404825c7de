//! Merges the ranks' streams into the run log: whole lines, each with the prefix of its rank.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use herd_core::plan::Plan;
use herd_core::result::TaskResult;
use herd_jobdir::JobDirError;
use herd_jobdir::job::task_log_in;
use herd_jobdir::runlog::{HERD, Piece, RunLogWriter, Stream};
use herd_launch::lines::{Line, LineEnd, LineSplitter};
use herd_link::LogFrame;

use crate::log_files::{LogFiles, Source, truncation};

/// The rank that stands for setup in log frames.
pub(crate) const SETUP_RANK: u32 = HERD;

/// The stream of [`SETUP_RANK`] that is the output of what starts the ranks (`mpirun`).
pub(crate) const LAUNCHER_STREAM: u8 = 3;

/// Bytes of one task's output that merged output has.
const TASK_SHOWN: u64 = 64 * 1024;

/// Bytes of a stream that are split into lines before the log's buffer is looked after.
const MERGED_AT_ONCE: usize = 64 * 1024;

/// Said after a piece of a line that was longer than a line may be.
const SPLIT_MARK: &[u8] = b" [line continues]";

pub(crate) struct Merger {
    writer: RunLogWriter,
    prefixes: Prefixes,
    files: LogFiles,
    streams: BTreeMap<Source, LineSplitter>,
    /// Streams whose file was truncated.
    truncated: BTreeSet<Source>,
    /// Why the merged log is incomplete from some point on; told once.
    trouble: Option<JobDirError>,
    grown: Option<LogGrown>,
    /// Up to where readers see it.
    flushed: u64,
    broken: bool,
}

/// What is called whenever the merged log has grown: on the driver's thread, so it must not block.
#[derive(Clone)]
pub struct LogGrown(pub Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for LogGrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogGrown")
    }
}

impl Merger {
    pub(crate) fn new(
        plan: &Plan,
        writer: RunLogWriter,
        files: LogFiles,
        grown: Option<LogGrown>,
    ) -> Self {
        let prefixes = Prefixes {
            task: plan.task,
            ranks: plan.world_size() > 1,
        };
        Self {
            flushed: writer.offset(),
            writer,
            prefixes,
            files,
            streams: BTreeMap::new(),
            truncated: BTreeSet::new(),
            trouble: None,
            grown,
            broken: false,
        }
    }

    /// Takes more of one stream, which comes in order and without gaps: the bytes of the frame, or
    /// without any, those of the stream's file up to the frame's offset. With neither bytes nor an
    /// offset the file was truncated: what a person is to be told of that, the first time.
    pub(crate) fn merge(&mut self, node: usize, log: &LogFrame, now_ms: u64) -> Option<String> {
        let source = (node, log.rank, log.stream);
        if !log.bytes.is_empty() {
            self.files.came(source, log.offset, &log.bytes);
            self.take(source, &log.bytes, now_ms);
        } else if log.offset > 0 {
            self.read(source, log.offset, now_ms);
        } else {
            self.files.begin_again(source);
            let first = self.truncated.insert(source);
            return first.then(|| truncation(source));
        }
        None
    }

    fn read(&mut self, source: (usize, u32, u8), length: u64, now_ms: u64) {
        // Taken out meanwhile, so that what it reads can be merged.
        let mut files = std::mem::take(&mut self.files);
        files.read(source, length, |bytes| self.take(source, bytes, now_ms));
        self.files = files;
    }

    fn take(&mut self, source: (usize, u32, u8), bytes: &[u8], now_ms: u64) {
        let (node, rank, stream) = source;
        if self.prefixes.none() && rank != SETUP_RANK {
            self.write(source, 0, now_ms, |text| text.extend_from_slice(bytes));
            return;
        }
        let prefix = self.prefixes.of(node, rank, stream);
        let mut splitter = self.streams.remove(&source).unwrap_or_default();
        // In small parts: prefixes can make many times the bytes of short lines.
        for part in bytes.chunks(MERGED_AT_ONCE) {
            self.write(source, prefix.len(), now_ms, |text| {
                splitter.feed(part, |line| push(text, &prefix, line));
            });
        }
        self.streams.insert(source, splitter);
    }

    /// Takes the output of an array task that has ended, up to [`TASK_SHOWN`]; its own log has all.
    pub(crate) fn merge_task(&mut self, directory: &Path, task: &TaskResult, now_ms: u64) {
        let wanted = task.log_bytes.unwrap_or(TASK_SHOWN).min(TASK_SHOWN);
        if wanted == 0 {
            return;
        }
        let path = task_log_in(directory, task.index);
        let mut bytes = Vec::new();
        // What cannot be read is not shown; the task's end is known without it.
        let read = File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(task.log_offset))?;
            file.take(wanted).read_to_end(&mut bytes)
        });
        if read.is_err() || bytes.is_empty() {
            return;
        }
        let prefix = format!("(task {}) ", task.index);
        let mut splitter = LineSplitter::new();
        let source = (task.node as usize, 0, 1);
        self.write(source, prefix.len(), now_ms, |text| {
            splitter.feed(&bytes, |line| push(text, &prefix, line));
            splitter.finish(|line| push(text, &prefix, line));
        });
    }

    /// Writes what could not be read before, and what still waits for its newline.
    pub(crate) fn finish(&mut self, now_ms: u64) {
        for source in self.files.behind() {
            self.read(source, 0, now_ms);
        }
        for (source, mut splitter) in std::mem::take(&mut self.streams) {
            let (node, rank, stream) = source;
            let prefix = self.prefixes.of(node, rank, stream);
            self.write(source, prefix.len(), now_ms, |text| {
                splitter.finish(|line| push(text, &prefix, line));
            });
        }
        self.flush();
    }

    /// Makes what was merged visible to readers.
    pub(crate) fn flush(&mut self) {
        let offset = self.writer.offset();
        if offset == self.flushed {
            return;
        }
        self.flushed = offset;
        // A full disk must not end the job; the ranks' own files and their errors tell of it.
        if !self.broken {
            let flushed = self.writer.flush();
            self.note(flushed);
        }
        if let Some(LogGrown(grown)) = &self.grown {
            grown();
        }
    }

    /// Why nothing more is merged, the first time it is asked.
    pub(crate) fn take_trouble(&mut self) -> Option<JobDirError> {
        self.trouble.take()
    }

    fn note(&mut self, outcome: Result<(), JobDirError>) {
        if let Err(error) = outcome {
            self.broken = true;
            self.writer.discard();
            self.trouble = Some(error);
        }
    }

    fn write(
        &mut self,
        (node, rank, stream): (usize, u32, u8),
        prefix_len: usize,
        now_ms: u64,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.broken {
            return;
        }
        let piece = Piece {
            time_ms: now_ms,
            rank,
            node: u32::try_from(node).unwrap_or(u32::MAX),
            // Setup's words are not the job's output.
            stream: if stream == 1 {
                Stream::Stdout
            } else {
                Stream::Stderr
            },
            prefix_len: u16::try_from(prefix_len).unwrap_or(0),
            continuation: false,
        };
        let appended = self.writer.append(&piece, fill);
        self.note(appended);
    }
}

fn push(lines: &mut Vec<u8>, prefix: &str, line: Line<'_>) {
    lines.extend_from_slice(prefix.as_bytes());
    lines.extend_from_slice(line.text);
    if line.end == LineEnd::Split {
        lines.extend_from_slice(SPLIT_MARK);
    }
    lines.push(b'\n');
}

/// What lines begin with.
#[derive(Clone, Copy)]
struct Prefixes {
    /// The task, of an array whose tasks are driven apart.
    task: Option<u32>,
    /// Whether there are several ranks to tell apart.
    ranks: bool,
}

impl Prefixes {
    /// Whether there is nothing to tell apart: bytes pass as they come.
    fn none(self) -> bool {
        self.task.is_none() && !self.ranks
    }

    fn of(self, node: usize, rank: u32, stream: u8) -> String {
        let mut words = Vec::new();
        words.extend(self.task.map(|index| format!("task {index}")));
        match (rank, stream) {
            (SETUP_RANK, LAUNCHER_STREAM) => words.push(format!("node{node}, mpirun")),
            (SETUP_RANK, _) => words.push(format!("node{node}, setup")),
            _ if self.task.is_some() && !self.ranks => {}
            _ => words.push(format!("node{node}, rank={rank}")),
        }
        format!("({}) ", words.join(", "))
    }
}
