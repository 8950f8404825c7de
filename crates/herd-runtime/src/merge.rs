//! Merges the ranks' streams into the run log: whole lines, each with the prefix of its rank.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use herd_core::plan::Plan;
use herd_core::result::TaskResult;
use herd_jobdir::job::task_log_in;
use herd_jobdir::runlog::{HERD, Piece, RunLogWriter, Stream};
use herd_launch::lines::{Line, LineEnd, LineSplitter};
use herd_link::LogFrame;

/// The rank that stands for setup in log frames.
pub(crate) const SETUP_RANK: u32 = HERD;

/// The stream of [`SETUP_RANK`] that is the output of what starts the ranks (`mpirun`).
pub(crate) const LAUNCHER_STREAM: u8 = 3;

/// Bytes of one task's output that merged output has.
const TASK_SHOWN: u64 = 64 * 1024;

/// Said after a piece of a line that was longer than a line may be.
const SPLIT_MARK: &[u8] = b" [line continues]";

pub(crate) struct Merger {
    writer: RunLogWriter,
    /// With exactly one rank in all there is nothing to tell apart: bytes pass as they come.
    prefixed: bool,
    streams: BTreeMap<(usize, u32, u8), LineSplitter>,
    broken: bool,
}

impl Merger {
    pub(crate) fn new(plan: &Plan, writer: RunLogWriter) -> Self {
        let prefixed = plan.world_size() > 1;
        Self {
            writer,
            prefixed,
            streams: BTreeMap::new(),
            broken: false,
        }
    }

    /// Takes bytes of one stream, which come in order and without gaps.
    pub(crate) fn merge(&mut self, node: usize, log: &LogFrame, now_ms: u64) {
        if !self.prefixed && log.rank != SETUP_RANK {
            self.write(node, log.rank, log.stream, &log.bytes, 0, now_ms);
            return;
        }
        let prefix = prefix(node, log.rank, log.stream);
        let mut lines = Vec::with_capacity(log.bytes.len() + log.bytes.len() / 4);
        let splitter = self
            .streams
            .entry((node, log.rank, log.stream))
            .or_default();
        splitter.feed(&log.bytes, |line| push(&mut lines, &prefix, line));
        self.write(node, log.rank, log.stream, &lines, prefix.len(), now_ms);
    }

    /// Takes the output of an array task that has ended, up to [`TASK_SHOWN`]; its own log has all.
    pub(crate) fn merge_task(&mut self, directory: &Path, task: &TaskResult, now_ms: u64) {
        let path = task_log_in(directory, task.index);
        let mut bytes = Vec::new();
        // What cannot be read is not shown; the task's end is known without it.
        let read = File::open(path).and_then(|file| file.take(TASK_SHOWN).read_to_end(&mut bytes));
        if read.is_err() || bytes.is_empty() {
            return;
        }
        let prefix = format!("(task {}) ", task.index);
        let mut lines = Vec::new();
        let mut splitter = LineSplitter::new();
        splitter.feed(&bytes, |line| push(&mut lines, &prefix, line));
        splitter.finish(|line| push(&mut lines, &prefix, line));
        let node = task.node as usize;
        self.write(node, 0, 1, &lines, prefix.len(), now_ms);
    }

    /// Writes what still waits for its newline.
    pub(crate) fn finish(&mut self, now_ms: u64) {
        for ((node, rank, stream), mut splitter) in std::mem::take(&mut self.streams) {
            let prefix = prefix(node, rank, stream);
            let mut lines = Vec::new();
            splitter.finish(|line| push(&mut lines, &prefix, line));
            self.write(node, rank, stream, &lines, prefix.len(), now_ms);
        }
        self.flush();
    }

    /// Makes what was merged visible to readers.
    pub(crate) fn flush(&mut self) {
        // A full disk must not end the job; the ranks' own files and their errors tell of it.
        self.broken |= self.writer.flush().is_err();
    }

    fn write(
        &mut self,
        node: usize,
        rank: u32,
        stream: u8,
        bytes: &[u8],
        prefix_len: usize,
        now_ms: u64,
    ) {
        if bytes.is_empty() || self.broken {
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
            bytes,
        };
        self.broken |= self.writer.append(&piece).is_err();
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

fn prefix(node: usize, rank: u32, stream: u8) -> String {
    match (rank, stream) {
        (SETUP_RANK, LAUNCHER_STREAM) => format!("(node{node}, mpirun) "),
        (SETUP_RANK, _) => format!("(node{node}, setup) "),
        _ => format!("(node{node}, rank={rank}) "),
    }
}
