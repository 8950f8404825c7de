//! Which pieces a reader wants.

use super::record::{Record, Stream};

/// What to show; empty shows all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only these ranks; all, setup and herd itself included, where empty.
    pub ranks: Vec<u32>,
    /// Only this node.
    pub node: Option<u32>,
    /// Only what was merged at or after this time, milliseconds since the Unix epoch.
    pub since_ms: Option<u64>,
    /// Only this stream.
    pub stream: Option<Stream>,
    /// Only lines that contain this text, their prefix not counted.
    pub grep: Option<String>,
    /// Only the last so many lines of what is there at the beginning.
    pub tail: Option<usize>,
}

impl Filter {
    /// Whether a piece may hold something wanted.
    pub(super) fn admits(&self, record: &Record) -> bool {
        (self.ranks.is_empty() || self.ranks.contains(&record.rank))
            && self.node.is_none_or(|node| node == record.node)
            && self.since_ms.is_none_or(|since| record.time_ms >= since)
            && self.stream.is_none_or(|stream| stream == record.stream)
    }
}
