//! Mutations of a target's seeds, the same in each run, for tests with the stable toolchain. They
//! find less than a fuzzer and need none.

use std::path::PathBuf;

/// Mutations of each seed.
const ROUNDS: usize = 1500;
/// Multiplies them, for a long run by hand.
const MORE: &str = "HERD_FUZZ_ROUNDS";

/// Pieces that change what a text means.
pub(crate) const TOKENS: &[&str] = &[
    "\n",
    "\t",
    " ",
    ":",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\"",
    "'",
    "|",
    "&a ",
    "*a",
    "#",
    "!!str ",
    "~",
    "null",
    "-1",
    "0",
    "99999999999999999999",
    "%",
    "..",
    "/",
    "\0",
    "\u{1b}",
    "\u{feff}",
    "é",
    "---\n",
    "run: a\n",
    "<<: ",
    "? ",
    "1e9",
    "é[1-3]",
];

/// A small generator with the same sequence on each run, so that a failure repeats.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit.max(1)
    }
}

fn mutated(seed: &[u8], sequence: &mut Sequence) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=sequence.below(4) {
        let at = sequence.below(bytes.len() + 1);
        let end = (at + sequence.below(12)).min(bytes.len());
        match sequence.below(5) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let token = TOKENS[sequence.below(TOKENS.len())];
                drop(bytes.splice(at..at, token.bytes()));
            }
            2 => {
                let token = TOKENS[sequence.below(TOKENS.len())];
                drop(bytes.splice(at..end, token.bytes()));
            }
            3 => {
                let copy = bytes[at..end].to_vec();
                let to = sequence.below(bytes.len() + 1);
                drop(bytes.splice(to..to, copy));
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = u8::try_from(sequence.below(256)).unwrap_or(0);
                }
            }
        }
    }
    bytes
}

/// Claims `body` of the seeds of `target` and of mutations of them.
pub(crate) fn mutate(target: &str, body: fn(&[u8])) {
    let seeds = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/seeds")
        .join(target);
    let mut files: Vec<_> = std::fs::read_dir(&seeds)
        .expect("the folder of seeds can be listed")
        .map(|entry| entry.expect("a seed can be listed").path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let more = std::env::var(MORE).ok().and_then(|text| text.parse().ok());
    let more: usize = more.unwrap_or(1);
    let mut sequence = Sequence(0x9e37_79b9_7f4a_7c15);
    for file in files {
        let seed = std::fs::read(&file).expect("a seed can be read");
        body(&seed);
        for _ in 0..ROUNDS * more {
            let bytes = mutated(&seed, &mut sequence);
            let result = std::panic::catch_unwind(|| body(&bytes));
            assert!(
                result.is_ok(),
                "{}: {:?}",
                file.display(),
                String::from_utf8_lossy(&bytes)
            );
        }
    }
}
