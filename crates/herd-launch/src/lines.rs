//! Cuts a stream of bytes into lines for merged output. Pure; it changes no byte of a line, and
//! neither decodes nor filters.

/// Longest line that is held; a longer one is cut with [`LineEnd::Split`].
pub const LINE_MAX: usize = 64 * 1024;

/// What ended a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// LF, CRLF or CR.
    Newline,
    /// Nothing: it was longer than [`LINE_MAX`], or taken early; the next piece continues it.
    Split,
    /// Nothing: the stream ended.
    Eof,
}

/// A line without its terminator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The bytes as they were written.
    pub text: &'a [u8],
    /// What ended it.
    pub end: LineEnd,
}

/// Holds what is not yet a complete line of one stream.
#[derive(Debug, Default)]
pub struct LineSplitter {
    partial: Vec<u8>,
    /// The last byte was a CR whose line is out: an LF now belongs to it.
    after_cr: bool,
}

impl LineSplitter {
    /// A splitter at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether part of a line is held.
    pub fn has_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Takes the next bytes and gives out each line that is complete now. A line that lies wholly
    /// within `bytes` is not copied.
    pub fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(Line<'_>)) {
        let mut rest = bytes;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
            let (text, tail) = rest.split_at(at);
            self.complete(text, &mut each);
            rest = match tail {
                [b'\r', b'\n', after @ ..] => after,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, after @ ..] => after,
                [] => &[],
            };
        }
        self.hold(rest, &mut each);
    }

    /// Gives out what is held, if anything, as a piece of a line that goes on.
    pub fn take_partial(&mut self, each: impl FnOnce(Line<'_>)) {
        self.give_out(LineEnd::Split, each);
    }

    /// Gives out what is held, if anything: the stream has ended.
    pub fn finish(&mut self, each: impl FnOnce(Line<'_>)) {
        self.after_cr = false;
        self.give_out(LineEnd::Eof, each);
    }

    fn give_out(&mut self, end: LineEnd, each: impl FnOnce(Line<'_>)) {
        if !self.partial.is_empty() {
            each(Line {
                text: &self.partial,
                end,
            });
            self.partial.clear();
        }
    }

    fn complete(&mut self, text: &[u8], each: &mut impl FnMut(Line<'_>)) {
        if self.partial.is_empty() && text.len() <= LINE_MAX {
            each(Line {
                text,
                end: LineEnd::Newline,
            });
            return;
        }
        self.hold(text, each);
        each(Line {
            text: &self.partial,
            end: LineEnd::Newline,
        });
        self.partial.clear();
    }

    /// Holds the bytes, giving out pieces while there are more than may be held.
    fn hold(&mut self, mut bytes: &[u8], each: &mut impl FnMut(Line<'_>)) {
        while self.partial.len() + bytes.len() > LINE_MAX {
            let (head, tail) = bytes.split_at(LINE_MAX - self.partial.len());
            self.partial.extend_from_slice(head);
            let cut = character_boundary(&self.partial);
            each(Line {
                text: self.partial.get(..cut).unwrap_or_default(),
                end: LineEnd::Split,
            });
            self.partial.drain(..cut);
            bytes = tail;
        }
        self.partial.extend_from_slice(bytes);
    }
}

/// Where to cut so that no UTF-8 character is torn; the end, where the bytes are not UTF-8.
fn character_boundary(bytes: &[u8]) -> usize {
    let end = bytes.len();
    for back in 1..=3.min(end.saturating_sub(1)) {
        let (length, continuation) = match bytes.get(end - back) {
            Some(0xC0..=0xDF) => (2, false),
            Some(0xE0..=0xEF) => (3, false),
            Some(0xF0..=0xF7) => (4, false),
            Some(0x80..=0xBF) => (1, true),
            Some(_) | None => (1, false),
        };
        if !continuation {
            return if length > back { end - back } else { end };
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]]) -> Vec<(Vec<u8>, LineEnd)> {
        let mut lines = Vec::new();
        let mut splitter = LineSplitter::new();
        for chunk in chunks {
            splitter.feed(chunk, |line| lines.push((line.text.to_vec(), line.end)));
        }
        splitter.finish(|line| lines.push((line.text.to_vec(), line.end)));
        lines
    }

    fn newline(text: &[u8]) -> (Vec<u8>, LineEnd) {
        (text.to_vec(), LineEnd::Newline)
    }

    #[test]
    fn all_three_terminators_end_a_line_however_the_stream_is_cut() {
        let bytes = b"one\ntwo\r\nthree\rfour\n\n\r\r\n10%\r20%\rlast";
        let expected: Vec<_> = [
            &b"one"[..],
            b"two",
            b"three",
            b"four",
            b"",
            b"",
            b"",
            b"10%",
            b"20%",
        ]
        .iter()
        .map(|text| newline(text))
        .chain([(b"last".to_vec(), LineEnd::Eof)])
        .collect();
        for size in 1..=bytes.len() {
            let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(split(&chunks), expected, "chunks of {size}");
        }
    }

    #[test]
    fn row15_a_partial_line_waits_for_its_newline() {
        let mut splitter = LineSplitter::new();
        splitter.feed(b"abc", |line| panic!("{line:?} came early"));
        let mut lines = Vec::new();
        splitter.feed(b"def\n", |line| lines.push(line.text.to_vec()));
        assert_eq!(lines, [b"abcdef".to_vec()]);
        assert!(!splitter.has_partial());
    }

    #[test]
    fn row16_a_final_unterminated_line_appears() {
        assert_eq!(split(&[b"tail"]), [(b"tail".to_vec(), LineEnd::Eof)]);
        assert!(split(&[b"whole\n"]).len() == 1);
    }

    #[test]
    fn a_long_line_is_cut_and_marked_and_loses_nothing() {
        let long = vec![b'x'; LINE_MAX * 3 + 5];
        let bytes = [&long[..], b"\nnext\n"].concat();
        let lines = split(&[&bytes]);
        assert_eq!(
            lines
                .iter()
                .filter(|(_, end)| *end == LineEnd::Split)
                .count(),
            3
        );
        assert!(lines.iter().all(|(text, _)| text.len() <= LINE_MAX));
        assert_eq!(
            lines[..4]
                .iter()
                .flat_map(|(text, _)| text.clone())
                .collect::<Vec<_>>(),
            long
        );
        assert_eq!(lines[4], newline(b"next"));
        // The longest line that is not cut.
        let exact = [&long[..LINE_MAX], b"\n"].concat();
        assert_eq!(
            split(&[&exact[..10], &exact[10..]]),
            [newline(&long[..LINE_MAX])]
        );
    }

    #[test]
    fn a_cut_tears_no_character_and_invalid_bytes_pass() {
        let text = "ä€😀".repeat(LINE_MAX / 4);
        let lines = split(&[text.as_bytes()]);
        assert!(
            lines
                .iter()
                .all(|(text, _)| std::str::from_utf8(text).is_ok())
        );
        let garbage: Vec<u8> = (0..LINE_MAX * 2)
            .map(|n| 0x80 | u8::try_from(n % 251).unwrap())
            .collect();
        let again: Vec<u8> = split(&[&garbage])
            .into_iter()
            .flat_map(|(text, _)| text)
            .collect();
        assert_eq!(again, garbage);
    }
}
