//! The help texts are an interface: each is compared with a committed file.

use std::time::{Duration, Instant};

use crate::fixture::Bench;

const COMMANDS: &[&str] = &[
    "run",
    "submit",
    "ls",
    "status",
    "logs",
    "events",
    "wait",
    "cancel",
    "hold",
    "release",
    "requeue",
    "why",
    "exec",
    "render",
    "doctor",
    "gc",
    "completions",
    "man",
];

#[test]
fn help_of_every_command() {
    let bench = Bench::new();
    let whole = bench.ask(&["--help"]);
    assert_eq!((whole.code, whole.err.as_str()), (0, ""));
    insta::assert_snapshot!("herd", whole.out);
    for command in COMMANDS {
        let answer = bench.ask(&[command, "--help"]);
        assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{command}");
        insta::assert_snapshot!(format!("herd-{command}"), answer.out);
    }
}

#[test]
fn commands_for_backends_are_not_shown() {
    let help = Bench::new().ask(&["--help"]).out;
    for hidden in ["executor", "driver", "rsh"] {
        assert!(!help.contains(hidden), "{hidden}");
    }
}

#[test]
fn row12_help_answers_within_five_times_its_bound() {
    let bench = Bench::new();
    bench.ask(&["--help"]);
    let best = (0..10)
        .map(|_| {
            let start = Instant::now();
            bench.ask(&["--help"]);
            start.elapsed()
        })
        .min()
        .unwrap();
    assert!(best < Duration::from_millis(50), "{best:?}");
}

#[test]
fn flags_that_do_not_exist_end_with_2_and_a_suggestion() {
    let answer = Bench::new().ask(&["run", "--node", "2", "--", "true"]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.contains("--nodes"), "{}", answer.err);
    assert!(answer.out.is_empty());
}

#[test]
fn slurms_flags_that_count_differently_are_not_offered() {
    for flag in ["-n", "--ntasks"] {
        assert_eq!(Bench::new().ask(&["run", flag, "2", "--", "true"]).code, 2);
    }
}

#[test]
fn the_version_is_an_answer() {
    let answer = Bench::new().ask(&["--version"]);
    assert_eq!(answer.code, 0);
    assert!(answer.out.starts_with("herd "));
}
