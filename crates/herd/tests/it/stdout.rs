//! A standard output that nobody reads any more.

use std::process::{Command, Stdio};

use crate::fixture::Bench;

#[test]
fn a_closed_pipe_is_no_news() {
    let bench = Bench::new();
    let script = "\"$1\" completions bash | head -c 1 >/dev/null; echo ${PIPESTATUS[0]}";
    let mut bash = Command::new("bash");
    herd_testing::surroundings::remove(&mut bash);
    let output = bash
        .args(["-c", script, "bash", env!("CARGO_BIN_EXE_herd")])
        .env("HERD_HOME", bench.dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0\n");
    assert_eq!(err, "");
}

#[test]
fn a_full_disk_behind_standard_output_is_an_error() {
    let bench = Bench::new();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_herd"))
        .args(["completions", "bash"])
        .env("HERD_HOME", bench.dir.path())
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("cannot write to standard output"), "{err}");
}
