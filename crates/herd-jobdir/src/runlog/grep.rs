//! Picks lines that contain a text, across the borders of pieces.

use std::collections::BTreeMap;

use memchr::memmem::Finder;

use super::record::{Record, Stream};

/// Longest unfinished line that is held back for the piece that ends it.
const MAX_HELD_BYTES: usize = 64 * 1024;
/// Streams with an unfinished line at once.
const MAX_HELD_LINES: usize = 4096;

/// Where a line comes from.
type Source = (u32, u32, Stream);

/// The searcher, and the unfinished lines of each stream.
#[derive(Debug)]
pub(super) struct Grep {
    finder: Finder<'static>,
    held: BTreeMap<Source, Vec<u8>>,
}

impl Grep {
    pub(super) fn new(text: &str) -> Self {
        Self {
            finder: Finder::new(text).into_owned(),
            held: BTreeMap::new(),
        }
    }

    /// Replaces `bytes` by the matching lines that end in it.
    pub(super) fn select(&mut self, record: &Record, bytes: &mut Vec<u8>) {
        let source = (record.rank, record.node, record.stream);
        let mut text = self.held.remove(&source).unwrap_or_default();
        text.append(bytes);
        let end = memchr::memrchr(b'\n', &text).map_or(0, |at| at + 1);
        for line in text[..end].split_inclusive(|byte| *byte == b'\n') {
            if self.matches(record, line) {
                bytes.extend_from_slice(line);
            }
        }
        let unfinished = text.split_off(end);
        if unfinished.is_empty() {
            return;
        }
        if unfinished.len() <= MAX_HELD_BYTES && self.held.len() < MAX_HELD_LINES {
            self.held.insert(source, unfinished);
        } else if self.matches(record, &unfinished) {
            bytes.extend_from_slice(&unfinished);
        }
    }

    fn matches(&self, record: &Record, line: &[u8]) -> bool {
        // A held line begins with its prefix; a continuation whose beginning was filtered away is
        // searched whole.
        let text = line.get(record.prefix_bytes()..).unwrap_or(line);
        self.finder.find(text).is_some()
    }

    /// Matching lines among those that begin or end in a piece, for counting.
    pub(super) fn count(&self, record: &Record, bytes: &[u8]) -> usize {
        bytes
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.ends_with(b"\n") && self.matches(record, line))
            .count()
    }
}
