//! From stored pieces to what is shown: prefixes, their colour, control sequences taken out.

use std::collections::BTreeMap;

use herd_jobdir::runlog::{Entry, HERD, Record, Stream};
use herd_jobdir::sanitize::Sanitizer;

use crate::cli::job::PrefixStyle;

/// Colours of prefixes, by rank; none of them is red, which means failure elsewhere.
const COLORS: [&str; 6] = [
    "\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m", "\x1b[34m", "\x1b[96m",
];
/// Streams whose unfinished control sequences are remembered at once.
const MAX_STREAMS: usize = 8192;

/// Turns pieces into shown text.
#[derive(Debug)]
pub(crate) struct Shaper {
    style: Option<PrefixStyle>,
    raw: bool,
    color: bool,
    filters: BTreeMap<(u32, u32, Stream), Sanitizer>,
}

impl Shaper {
    /// Without a style, pieces keep the prefix they were stored with.
    pub(crate) fn new(style: Option<PrefixStyle>, raw: bool, color: bool) -> Self {
        Self {
            style,
            raw,
            color,
            filters: BTreeMap::new(),
        }
    }

    /// A piece as it is to be shown: the piece itself where it is shown as it is stored, which most
    /// output is, else what `buffer` holds then.
    pub(crate) fn shown<'a>(&mut self, entry: &'a Entry<'_>, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        let record = &entry.record;
        let source = (record.rank, record.node, record.stream);
        if self.filters.len() >= MAX_STREAMS && !self.filters.contains_key(&source) {
            self.filters.clear();
        }
        let filter = self.filters.entry(source).or_default();
        if self.style.is_none() && !self.color && (self.raw || filter.passes(entry.bytes)) {
            return entry.bytes;
        }
        buffer.clear();
        let stored = record.prefix_bytes();
        let mut in_line = entry.in_line;
        for line in entry.bytes.split_inclusive(|byte| *byte == b'\n') {
            let cut = if in_line { 0 } else { stored.min(line.len()) };
            let (prefix, text) = line.split_at(cut);
            if !in_line {
                put_prefix(self.style, self.color, prefix, record, buffer);
            }
            if self.raw {
                buffer.extend_from_slice(text);
            } else {
                filter.push(text, buffer);
            }
            in_line = false;
        }
        buffer
    }
}

fn put_prefix(
    style: Option<PrefixStyle>,
    color: bool,
    stored: &[u8],
    record: &Record,
    output: &mut Vec<u8>,
) {
    let (rank, node) = (record.rank, record.node);
    let made;
    let prefix = match style {
        None => stored,
        Some(PrefixStyle::None) => b"".as_slice(),
        Some(PrefixStyle::Full) if !stored.is_empty() => stored,
        Some(PrefixStyle::Full) => {
            made = match rank {
                HERD => format!("(node{node}) "),
                _ => format!("(node{node}, rank={rank}) "),
            };
            made.as_bytes()
        }
        Some(PrefixStyle::Rank) => {
            made = match rank {
                HERD => "[herd] ".to_owned(),
                _ => format!("[{rank}] "),
            };
            made.as_bytes()
        }
    };
    if prefix.is_empty() {
        return;
    }
    if !color {
        output.extend_from_slice(prefix);
        return;
    }
    let index = if rank == HERD {
        0
    } else {
        rank as usize % COLORS.len()
    };
    output.extend_from_slice(COLORS[index].as_bytes());
    output.extend_from_slice(prefix);
    output.extend_from_slice(b"\x1b[0m");
}

#[cfg(test)]
mod tests {
    use herd_jobdir::runlog::PREFIXED;

    use super::*;

    fn shaped(style: Option<PrefixStyle>, raw: bool, color: bool, bytes: &[u8]) -> String {
        let prefix_len = if bytes.starts_with(b"(node0, rank=1) ") {
            16
        } else {
            0
        };
        let record = Record {
            time_ms: 0,
            offset: 0,
            length: 0,
            rank: 1,
            node: 0,
            stream: Stream::Stdout,
            flags: if prefix_len > 0 { PREFIXED } else { 0 },
            prefix_len,
        };
        let entry = Entry {
            record,
            bytes,
            in_line: false,
        };
        let mut buffer = Vec::new();
        let mut shaper = Shaper::new(style, raw, color);
        String::from_utf8(shaper.shown(&entry, &mut buffer).to_vec()).unwrap()
    }

    #[test]
    fn prefixes_are_kept_changed_or_dropped() {
        let stored = b"(node0, rank=1) a\n(node0, rank=1) b\n";
        assert_eq!(shaped(None, false, false, stored).as_bytes(), stored);
        assert_eq!(
            shaped(Some(PrefixStyle::Rank), false, false, stored),
            "[1] a\n[1] b\n"
        );
        assert_eq!(
            shaped(Some(PrefixStyle::None), false, false, stored),
            "a\nb\n"
        );
        let colored = shaped(None, false, true, stored);
        assert!(
            colored.starts_with("\x1b[33m(node0, rank=1) \x1b[0ma\n"),
            "{colored:?}"
        );
    }

    #[test]
    fn a_single_rank_has_a_prefix_only_on_request() {
        assert_eq!(shaped(None, false, true, b"a\n"), "a\n");
        assert_eq!(
            shaped(Some(PrefixStyle::Full), false, false, b"a\n"),
            "(node0, rank=1) a\n"
        );
    }

    #[test]
    fn i12_control_sequences_pass_only_when_raw() {
        let text = b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2Jx\n";
        assert_eq!(shaped(None, false, false, text), "\x1b[31mred\x1b[0m x\n");
        assert_eq!(shaped(None, true, false, text).as_bytes(), text);
    }
    #[test]
    fn plain_output_is_not_copied_and_a_cut_sequence_is_not_let_through() {
        let entry = |bytes| Entry {
            record: Record {
                time_ms: 0,
                offset: 0,
                length: 0,
                rank: 0,
                node: 0,
                stream: Stream::Stdout,
                flags: 0,
                prefix_len: 0,
            },
            bytes,
            in_line: false,
        };
        let mut shaper = Shaper::new(None, false, false);
        let mut buffer = Vec::new();
        let plain = entry(b"plain\n");
        assert!(std::ptr::eq(shaper.shown(&plain, &mut buffer), plain.bytes));
        assert_eq!(shaper.shown(&entry(b"a\x1b["), &mut buffer), b"a");
        // The filter remembers what the piece before has begun.
        assert_eq!(shaper.shown(&entry(b"2Jb\n"), &mut buffer), b"b\n");
    }
}
