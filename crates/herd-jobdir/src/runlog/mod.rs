//! The merged output of a job: `run.log` for people and their tools, `run.index` for herd's.
//!
//! `run.log` is plain text, each line with its prefix. `run.index` says, in records of one size,
//! which piece came when, from which rank, node and stream. The index is written after the data:
//! a reader never sees a record without its bytes. The ranks' own files remain the truth (I7).

mod filter;
mod follow;
mod grep;
mod reader;
pub(crate) mod record;
mod tasks;
mod writer;

#[cfg(test)]
mod tests;

pub use filter::Filter;
pub use follow::{Follow, Followed};
pub use reader::{Entry, RunLogReader};
pub use record::{
    CONTINUATION, DATA_NAME, HERD, INDEX_NAME, MAX_PIECE_BYTES, PREFIXED, RECORD_BYTES, Record,
    Stream,
};
pub use tasks::TaskLogs;
pub use writer::{Piece, RunLogWriter};
