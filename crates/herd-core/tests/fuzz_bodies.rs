//! The claims of the fuzz targets, on mutations of their seeds and on arbitrary bytes.
//!
//! It finds less than a fuzzer and needs none.

use std::path::PathBuf;

use proptest::prelude::*;

#[path = "../../../fuzz/bodies.rs"]
mod bodies;

/// Mutations of each seed.
const ROUNDS: usize = 1500;

/// Pieces that change what a text means.
const TOKENS: &[&str] = &[
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

fn mutate(target: &str, body: fn(&[u8])) {
    let seeds = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/seeds")
        .join(target);
    let mut files: Vec<_> = std::fs::read_dir(&seeds)
        .expect("the folder of seeds can be listed")
        .map(|entry| entry.expect("a seed can be listed").path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let mut sequence = Sequence(0x9e37_79b9_7f4a_7c15);
    for file in files {
        let seed = std::fs::read(&file).expect("a seed can be read");
        body(&seed);
        for _ in 0..ROUNDS {
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

#[test]
fn job_files() {
    mutate("job_file", bodies::job_file);
}

#[test]
fn skypilot_tasks() {
    mutate("skypilot", bodies::skypilot);
}

#[test]
fn hostlists() {
    mutate("hostlist", bodies::hostlist);
}

#[test]
fn durations() {
    mutate("duration", bodies::duration);
}

/// One piece repeated many times: nothing may take time or memory without bound.
#[test]
fn much_of_one_piece() {
    for token in TOKENS
        .iter()
        .chain(&["a: ", "a", "[]", "{a: ", "&a [*a", "? - ", "'a' ", "[1]"])
    {
        let text = token.repeat((1 << 18) / token.len());
        bodies::job_file(text.as_bytes());
        bodies::job_file(format!("run: a\nenv: {text}").as_bytes());
        bodies::hostlist(text.as_bytes());
        bodies::duration(text.as_bytes());
    }
}

proptest! {
    #[test]
    fn no_bytes_break_a_parser(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        bodies::job_file(&bytes);
        bodies::skypilot(&bytes);
        bodies::hostlist(&bytes);
        bodies::duration(&bytes);
    }

    #[test]
    fn no_yaml_like_text_breaks_a_parser(text in "([a-z]{1,4}|[\\[\\]{},:&*|>?'\"#-]|\\n *| |[0-9]|é|\\t){0,80}") {
        bodies::job_file(text.as_bytes());
        bodies::skypilot(text.as_bytes());
    }
}
