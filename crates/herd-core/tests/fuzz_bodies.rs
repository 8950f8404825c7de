//! The claims of the fuzz targets, on mutations of their seeds and on arbitrary bytes.

use proptest::prelude::*;

#[path = "../../../fuzz/bodies.rs"]
mod bodies;
#[path = "../../../fuzz/mutations.rs"]
mod mutations;

use mutations::{TOKENS, mutate};

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
