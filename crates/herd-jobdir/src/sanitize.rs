//! Removes terminal control sequences from what programs wrote, except colour, and the characters
//! that change the direction of writing, which make text look like other text.
//!
//! A filter over bytes that keeps its place between calls, so that a sequence cut in two by a
//! buffer's end is still recognised. It holds back at most one unfinished sequence, and an
//! unterminated one swallows at most [`STRING_BYTES`]. Bytes that are not UTF-8 pass, but for the
//! beginning of such a character, which could be made whole by removing what stands behind it.

/// Longest control string (OSC, DCS, …) that is dropped before it is taken for an accident.
pub const STRING_BYTES: usize = 4096;

/// Longest colour sequence that is kept, bytes after the introducer.
const COLOUR_BYTES: usize = 64;

const ESC: u8 = 0x1b;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
const BEL: u8 = 0x07;

/// The filter. One per stream.
#[derive(Clone, Debug, Default)]
pub struct Sanitizer {
    state: State,
    /// A colour sequence or a character in the making.
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    /// After ESC.
    Escape,
    /// In a control sequence; `keep` while it may still be a colour.
    Sequence { keep: bool, length: usize },
    /// In a string that ends with BEL or ST; `wide` after the first byte of a two-byte C1.
    Text { length: usize, wide: bool },
    /// In a UTF-8 character: bytes still to come, and the range of the next one.
    Character { missing: u8, low: u8, high: u8 },
}

impl Sanitizer {
    /// Appends what may be shown of `input` to `output`.
    pub fn push(&mut self, input: &[u8], output: &mut Vec<u8>) {
        output.reserve(input.len());
        let mut rest = input;
        while !rest.is_empty() {
            if self.state == State::Ground {
                let clean = clean_prefix(rest);
                output.extend_from_slice(&rest[..clean]);
                rest = &rest[clean..];
            }
            let Some((&byte, after)) = rest.split_first() else {
                return;
            };
            self.step(byte, output);
            rest = after;
        }
    }

    /// Whether all of `input` would pass as it is, and the filter would stand after it as before.
    pub fn passes(&self, input: &[u8]) -> bool {
        self.state == State::Ground && clean_prefix(input) == input.len()
    }

    /// Ends the stream: an unfinished character passes, an unfinished sequence does not.
    pub fn finish(&mut self, output: &mut Vec<u8>) {
        if let State::Character { .. } = self.state {
            self.give_up(output);
        }
        self.held.clear();
        self.state = State::Ground;
    }

    fn step(&mut self, byte: u8, output: &mut Vec<u8>) {
        match self.state {
            State::Ground => self.ground(byte, output),
            State::Escape => self.escape(byte, output),
            State::Sequence { keep, length } => self.sequence(byte, keep, length, output),
            State::Text { length, wide } => self.text(byte, length, wide, output),
            State::Character { missing, low, high } => {
                self.character(byte, missing, low..=high, output);
            }
        }
    }

    fn ground(&mut self, byte: u8, output: &mut Vec<u8>) {
        match byte {
            b'\t' | b'\n' | b'\r' | 0x20..=0x7e => output.push(byte),
            ESC => self.state = State::Escape,
            0x00..=0x1f | 0x7f => {}
            0x80..=0x9f => self.c1(byte),
            0xc2..=0xdf => self.begin(byte, 1, 0x80, 0xbf),
            0xe0 => self.begin(byte, 2, 0xa0, 0xbf),
            0xed => self.begin(byte, 2, 0x80, 0x9f),
            0xe1..=0xef => self.begin(byte, 2, 0x80, 0xbf),
            0xf0 => self.begin(byte, 3, 0x90, 0xbf),
            0xf1..=0xf3 => self.begin(byte, 3, 0x80, 0xbf),
            0xf4 => self.begin(byte, 3, 0x80, 0x8f),
            0xa0..=0xc1 | 0xf5..=0xff => output.push(byte),
        }
    }

    fn begin(&mut self, byte: u8, missing: u8, low: u8, high: u8) {
        self.held.clear();
        self.held.push(byte);
        self.state = State::Character { missing, low, high };
    }

    fn character(
        &mut self,
        byte: u8,
        missing: u8,
        range: std::ops::RangeInclusive<u8>,
        output: &mut Vec<u8>,
    ) {
        if !range.contains(&byte) {
            // Not UTF-8 after all: what was held passes, and this byte is looked at afresh.
            self.give_up(output);
            self.state = State::Ground;
            self.ground(byte, output);
        } else if missing > 1 {
            self.held.push(byte);
            self.state = State::Character {
                missing: missing - 1,
                low: 0x80,
                high: 0xbf,
            };
        } else {
            self.state = State::Ground;
            if self.held == [0xc2] && byte < 0xa0 {
                self.c1(byte);
            } else {
                self.held.push(byte);
                if !is_direction(&self.held) {
                    output.append(&mut self.held);
                }
            }
            self.held.clear();
        }
    }

    /// Lets an unfinished character pass.
    fn give_up(&mut self, output: &mut Vec<u8>) {
        if !matches!(self.held[..], [0xe2, 0x80 | 0x81]) {
            output.append(&mut self.held);
        }
        self.held.clear();
    }

    /// A control character of the upper half, as one byte or as U+0080 to U+009F.
    fn c1(&mut self, byte: u8) {
        self.state = match byte {
            // DCS, SOS, OSC, PM, APC.
            0x90 | 0x98 | 0x9d | 0x9e | 0x9f => State::Text {
                length: 0,
                wide: false,
            },
            0x9b => self.introduce(),
            _ => State::Ground,
        };
    }

    fn introduce(&mut self) -> State {
        self.held.clear();
        self.held.extend_from_slice(b"\x1b[");
        State::Sequence {
            keep: true,
            length: 0,
        }
    }

    fn escape(&mut self, byte: u8, output: &mut Vec<u8>) {
        self.state = match byte {
            b'[' => self.introduce(),
            b'P' | b'X' | b']' | b'^' | b'_' => State::Text {
                length: 0,
                wide: false,
            },
            // Intermediate bytes: the sequence goes on. A repeated ESC begins anew.
            0x20..=0x2f | ESC => State::Escape,
            // The final byte, or a cancelled sequence.
            0x30..=0x7e | CAN | SUB => State::Ground,
            // A control character inside a sequence acts as if it stood before it.
            b'\t' | b'\n' | b'\r' => {
                output.push(byte);
                State::Escape
            }
            0x00..=0x1f | 0x7f => State::Escape,
            0x80..=0xff => {
                self.state = State::Ground;
                return self.ground(byte, output);
            }
        };
    }

    fn sequence(&mut self, byte: u8, keep: bool, length: usize, output: &mut Vec<u8>) {
        match byte {
            b'm' if keep => {
                self.held.push(byte);
                output.append(&mut self.held);
                self.state = State::Ground;
            }
            0x40..=0x7e | CAN | SUB => self.state = State::Ground,
            b'0'..=b'9' | b';' | b':' if keep && length < COLOUR_BYTES => {
                self.held.push(byte);
                self.state = State::Sequence {
                    keep,
                    length: length + 1,
                };
            }
            ESC => self.state = State::Escape,
            b'\t' | b'\n' | b'\r' => output.push(byte),
            0x20..=0x3f if length < STRING_BYTES => {
                self.state = State::Sequence {
                    keep: false,
                    length: length + 1,
                };
            }
            0x00..=0x1f | 0x7f => {}
            0x20..=0x3f | 0x80..=0xff => {
                self.state = State::Ground;
                self.ground(byte, output);
            }
        }
    }

    fn text(&mut self, byte: u8, length: usize, wide: bool, output: &mut Vec<u8>) {
        self.state = match byte {
            // Titles and links do not span lines: a string that was never ended costs its line.
            b'\n' => {
                output.push(byte);
                State::Ground
            }
            BEL | CAN | SUB => State::Ground,
            // ST is ESC \: the backslash ends the escape, and with it the string.
            ESC => State::Escape,
            // ST as U+009C. Alone, 0x9c may be part of a character in a window's title.
            0x9c if wide => State::Ground,
            _ if length >= STRING_BYTES => State::Ground,
            _ => State::Text {
                length: length + 1,
                wide: byte == 0xc2,
            },
        };
    }
}

/// Whether a character in UTF-8 is a control of Unicode's bidirectional algorithm (UAX #9): U+061C,
/// U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069.
fn is_direction(character: &[u8]) -> bool {
    matches!(
        character,
        [0xd8, 0x9c] | [0xe2, 0x80, 0x8e | 0x8f | 0xaa..=0xae] | [0xe2, 0x81, 0xa6..=0xa9]
    )
}

/// `input` without control sequences, for text that is whole.
pub fn sanitize(input: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    let mut filter = Sanitizer::default();
    filter.push(input, &mut output);
    filter.finish(&mut output);
    output
}

/// Length of the leading bytes that are plain ASCII text, a block at a time.
fn clean_prefix(input: &[u8]) -> usize {
    const BLOCK: usize = 32;
    let mut clean = 0;
    for block in input.chunks_exact(BLOCK) {
        // No early exit inside a block: that is what lets the compiler compare it as one.
        if block.iter().fold(true, |all, byte| all & is_clean(*byte)) {
            clean += BLOCK;
        } else {
            break;
        }
    }
    clean
        + input[clean..]
            .iter()
            .take_while(|byte| is_clean(**byte))
            .count()
}

#[expect(
    clippy::needless_bitwise_bool,
    reason = "without branches a whole block is compared at once, four times as fast as a pattern"
)]
fn is_clean(byte: u8) -> bool {
    (byte.wrapping_sub(0x20) < 0x5f) | (byte == b'\n') | (byte == b'\r') | (byte == b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(input: &[u8]) -> String {
        sanitize(input).iter().map(|b| char::from(*b)).collect()
    }

    #[test]
    fn colour_and_layout_stay_and_the_rest_goes() {
        for (input, want) in [
            (&b"plain\ttext\r\n"[..], "plain\ttext\r\n"),
            (b"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
            (b"\x1b[38:2:1:2:3mx", "\x1b[38:2:1:2:3mx"),
            (b"a\x1b[2Jb\x1b[10;20Hc\x1b[?25ld", "abcd"),
            (b"\x1b[>4mx\x1b[?1mx", "xx"),
            (b"\x1b]0;title\x07a\x1b]52;c;Zm9v\x1b\\b", "ab"),
            (
                b"\x1bP1$r\x1b\\a\x1b_apc\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d",
                "abcd",
            ),
            (b"a\x08b\x07c\x00d\x7fe\x0bf\x0eg", "abcdefg"),
            (b"\x1b(Ba\x1bcb\x1b7c\x1b#8d", "abcd"),
            (b"\x9b2Ja\x9b31mb", "a\x1b[31mb"),
            (b"\xc2\x9b2Ja\xc2\x9d0;t\xc2\x9cb\xc2\x85c", "abc"),
            (b"\x1b[2\x18a\x1b]x\x1ab", "ab"),
            (b"\x1b[\x1b[31mx", "\x1b[31mx"),
        ] {
            assert_eq!(shown(input), want, "{input:?}");
        }
    }

    #[test]
    fn utf8_passes_and_so_does_what_is_not() {
        let text = "żółw 日本 🚀 \u{a0}";
        assert_eq!(sanitize(text.as_bytes()), text.as_bytes());
        for raw in [
            &b"\xff\xfe"[..],
            b"\xe3\x81",
            b"\xc3x",
            b"\xf0\x9f\x9a",
            b"\xa0\xbf\xc0\xc1",
        ] {
            assert_eq!(sanitize(raw), raw);
        }
    }

    #[test]
    fn controls_of_direction_go_and_cannot_be_pieced_together() {
        let all = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
        for control in all.chars() {
            assert_eq!(sanitize(format!("a{control}b").as_bytes()), b"ab");
        }
        let near = "\u{61b}\u{200d}\u{2010}\u{2029}\u{202f}\u{2065}\u{206a}שלום";
        assert_eq!(sanitize(near.as_bytes()), near.as_bytes());
        for pieced in [
            &b"\xe2\x80\xe2\x80\xae\xae"[..],
            b"\xe2\x80\x1b[2J\xae",
            b"\xe2\x81\x00\xa6",
            b"\xe2\x1b[2J\x80\xae",
        ] {
            let output = sanitize(pieced);
            assert!(
                !String::from_utf8_lossy(&output).contains(|c| all.contains(c)),
                "{output:?}"
            );
        }
        assert_eq!(sanitize(b"\xe2\x80"), b"");
    }

    #[test]
    fn an_unterminated_string_ends_with_its_line() {
        assert_eq!(sanitize(b"a\n\x1b]0;never ended\nnext\n"), b"a\n\nnext\n");
    }

    #[test]
    fn an_unterminated_string_swallows_a_bounded_amount() {
        let mut input = b"\x1b]0;".to_vec();
        input.resize(STRING_BYTES + 100, b'x');
        input.extend(b"visible");
        let output = sanitize(&input);
        assert!(output.ends_with(b"visible"));
        assert!(output.len() < 200);
        let mut input = b"\x1b[".to_vec();
        input.resize(STRING_BYTES + 100, b'1');
        input.extend(b" visible");
        assert!(sanitize(&input).ends_with(b"visible"));
    }

    proptest! {
        #[test]
        fn borders_between_calls_change_nothing(
            input in proptest::collection::vec(
                prop_oneof![
                    3 => Just(ESC), 2 => Just(b'['), 1 => Just(b']'), 1 => Just(BEL), 1 => Just(0xc2),
                    1 => Just(0xe2), 1 => Just(0x80), 1 => Just(0xae), 1 => Just(0x9b), 1 => Just(b'm'), 2 => 0x20u8..0x7f, 2 => any::<u8>()
                ],
                0..200,
            ),
            cuts in proptest::collection::vec(0usize..200, 0..6),
        ) {
            let whole = sanitize(&input);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(input.len())).collect();
            cuts.sort_unstable();
            let (mut filter, mut output, mut from) = (Sanitizer::default(), Vec::new(), 0);
            for cut in cuts.into_iter().chain([input.len()]) {
                filter.push(&input[from..cut], &mut output);
                from = cut;
            }
            filter.finish(&mut output);
            prop_assert_eq!(&output, &whole);
            // What is left is at rest: a second pass removes nothing.
            prop_assert_eq!(sanitize(&whole), whole);
        }
    }
}
