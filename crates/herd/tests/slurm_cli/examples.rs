//! The examples, unchanged, on the cluster.

use std::path::Path;
use std::process::Command;

use crate::lab::Bench;

/// Runs an example in a copy of its directory and has its own check look at what it printed.
fn run(name: &str, python: Option<&str>) {
    let bench = Bench::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut copy = Command::new("cp");
    copy.arg("-r")
        .arg(examples.join(name))
        .arg(bench.dir.path());
    assert!(copy.status().unwrap().success());
    let mut first = String::new();
    if let Some(variable) = python {
        let python = std::env::var(variable)
            .unwrap_or_else(|_| panic!("{variable} is not set: eval \"$(lab/env)\""));
        let bin = Path::new(&python).parent().unwrap();
        first = format!("{}:", bin.display());
    }
    let path = format!("PATH={first}/usr/local/bin:/usr/bin:/bin");
    let home = format!("HOME={}", bench.dir.path().display());
    let job = bench.dir.path().join(name).join("job.yaml");
    let answer = bench.ask(&[
        "run",
        "-b",
        "slurm",
        "--env",
        &path,
        "--env",
        &home,
        job.to_str().unwrap(),
    ]);
    assert_eq!(answer.code, 0, "{answer:?}");
    let log = bench.dir.path().join("log");
    std::fs::write(&log, &answer.out).unwrap();
    let checked = Command::new(examples.join(name).join("check"))
        .arg(&log)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}\n{}", answer.out);
}

#[test]
fn done_when_sweep_runs_on_slurm_unchanged() {
    run("sweep", None);
}

#[test]
fn done_when_digits_runs_on_slurm_unchanged() {
    run("digits", Some("HERD_LAB_TORCH_PYTHON"));
}
