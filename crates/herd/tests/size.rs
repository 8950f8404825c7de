//! I13: a job that is too large to be told to its nodes, or to be started there, is refused before
//! there is a job.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs;
use std::process::{Command, Output};

use live::{Herd, assert_code, stderr, stdout};

/// Files of variables, each with almost 1 MiB, the most that is read of one.
fn variables(herd: &Herd, files: usize) -> Vec<String> {
    let value = "x".repeat(100_000);
    let names = 0..files;
    let written = names.map(|file| {
        let lines: Vec<String> = (0..10)
            .map(|line| format!("BIG_{file}_{line}={value}"))
            .collect();
        let path = herd.file(&format!("{file}.env"), &(lines.join("\n") + "\n"));
        format!("--env-file={}", path.display())
    });
    written.collect()
}

/// Runs a job with so many files of variables, where the system's bounds come from a stack of this size.
fn run(herd: &Herd, stack_kib: &str, files: usize) -> Output {
    let limit = format!("ulimit -S -s {stack_kib} && exec \"$@\"");
    let options = variables(herd, files);
    let mut args = vec!["run", "-b", "local"];
    args.extend(options.iter().map(String::as_str));
    args.extend(["--", "sh", "-c", "echo ${#BIG_0_0}"]);
    let mut command: Command = herd.under(&["sh", "-c", &limit, "sh"], &args);
    command.output().unwrap()
}

#[track_caller]
fn refused(herd: &Herd, output: &Output, why: &str) {
    assert_code(output, 2);
    let said = stderr(output);
    assert!(said.contains("nothing was started"), "{said}");
    assert!(said.contains(why), "{said}");
    assert!(said.contains("hint: put large values into files"), "{said}");
    let jobs = fs::read_dir(herd.path("home/jobs"));
    assert_eq!(jobs.map_or(0, Iterator::count), 0);
}

#[test]
fn i13_more_variables_than_the_system_gives_a_program_are_refused() {
    let herd = Herd::new();
    // A quarter of the stack: 2 MiB.
    let output = run(&herd, "8192", 1);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "100000\n");
    let other = Herd::new();
    refused(
        &other,
        &run(&other, "8192", 3),
        "the system gives a program at most 2097152",
    );
}

#[test]
fn i13_a_job_that_does_not_fit_into_a_message_to_its_nodes_is_refused() {
    let herd = Herd::new();
    refused(
        &herd,
        &run(&herd, "8192", 9),
        "to be told to its nodes, and 8388608 are the most",
    );
}

#[test]
fn i13_a_variable_that_is_too_large_with_its_name_is_refused() {
    let herd = Herd::new();
    // `BIG=` and the NUL count.
    let most = 128 * 1024 - 5;
    for (length, code) in [(most, 0), (most + 1, 2)] {
        let path = herd.file("one.env", &format!("BIG={}\n", "x".repeat(length)));
        let option = format!("--env-file={}", path.display());
        let output = herd.run(&["run", "-b", "local", &option, "--", "true"]);
        assert_code(&output, code);
        if code == 2 {
            assert!(stderr(&output).contains("env.BIG: is larger than 128 KiB"));
        }
    }
}
