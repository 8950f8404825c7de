//! I8, one test for each exit code: faults before the start, the ranks' own ends, limits, requests,
//! and what is lost.

mod live;

use std::fs;
use std::process::Child;

use live::{Herd, assert_code, children, eventually, pid_of, pids, signal, stderr, stdout};

/// Two ranks that run until they are ended.
fn sleepers(herd: &Herd) -> Child {
    let list = herd.path("pids");
    let run = herd.start(&[
        "run",
        "-N",
        "2",
        "--",
        "sh",
        "-c",
        "echo $$ >> pids; exec sleep 3000",
    ]);
    eventually("both ranks", || pids(&list).len() == 2);
    run
}

#[test]
fn i8_2_a_fault_of_the_flags_or_the_job_file() {
    let herd = Herd::new();
    herd.file("bad.yaml", "run: true\nnodes: 0\nnoods: 2\n");
    assert_code(&herd.run(&["run", "bad.yaml"]), 2);
    assert_code(&herd.run(&["run", "--no-such-flag", "--", "true"]), 2);
    assert_code(&herd.run(&["run", "-N", "none", "--", "true"]), 2);
}

#[test]
fn i8_126_a_program_that_cannot_be_executed() {
    let herd = Herd::new();
    let plain = herd.file("plain.txt", "not a program");
    assert_code(&herd.run(&["run", "--", plain.to_str().unwrap()]), 126);
}

#[test]
fn i8_127_a_program_that_is_not_there() {
    let herd = Herd::new();
    for nodes in ["1", "2"] {
        let output = herd.run(&["run", "-N", nodes, "--", "no-such-program-anywhere"]);
        assert_code(&output, 127);
    }
}

#[test]
fn i8_the_code_of_the_rank_that_failed_first() {
    let herd = Herd::new();
    let script = "trap 'exit 9' TERM; [ $HERD_RANK = 1 ] && exit 42; while :; do sleep 0.1; done";
    assert_code(&herd.run(&["run", "-N", "2", "--", "sh", "-c", script]), 42);
}

#[test]
fn i8_the_code_of_setup() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "nodes: 2\nsetup: {run: exit 33, on: each}\nrun: echo never\n",
    );
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 33);
    assert!(!stdout(&output).contains("never"));
}

#[test]
fn i8_128_plus_the_signal_that_killed_the_rank() {
    let herd = Herd::new();
    for (name, code) in [("KILL", 137), ("SEGV", 139), ("ABRT", 134)] {
        let script = format!("ulimit -c 0; kill -{name} $$");
        assert_code(&herd.run(&["run", "--", "sh", "-c", &script]), code);
    }
}

#[test]
fn i8_124_the_time_limit() {
    let herd = Herd::new();
    let output = herd.run(&["run", "-t", "1s", "-N", "2", "--", "sleep", "600"]);
    assert_code(&output, 124);
    assert!(
        stderr(&output).contains("time limit"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn i8_130_cancelled_by_command() {
    let herd = Herd::new();
    let run = sleepers(&herd);
    assert_code(&herd.run(&["cancel", "last"]), 0);
    assert_code(&run.wait_with_output().unwrap(), 130);
}

#[test]
fn i8_128_plus_the_signal_that_cancelled() {
    for (name, code) in [("-HUP", 129), ("-INT", 130), ("-QUIT", 131), ("-TERM", 143)] {
        let herd = Herd::new();
        let run = sleepers(&herd);
        signal(pid_of(&run), name);
        assert_code(&run.wait_with_output().unwrap(), code);
    }
}

#[test]
fn i8_125_a_node_is_lost() {
    let herd = Herd::new();
    let run = sleepers(&herd);
    signal(children(children(pid_of(&run))[0])[0], "-KILL");
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 125);
    assert!(stderr(&output).contains("lost"), "{}", stderr(&output));
}

#[test]
fn i8_125_the_driver_is_lost() {
    let herd = Herd::new();
    let run = sleepers(&herd);
    signal(children(pid_of(&run))[0], "-KILL");
    // Its guard ends the job, and says the same as those who ask later.
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 125);
    assert!(
        stderr(&output).contains("driver was lost"),
        "{}",
        stderr(&output)
    );
    let waited = herd.run(&["wait", "last"]);
    assert_code(&waited, 125);
    assert!(stdout(&herd.run(&["status", "last"])).contains("driver was lost"));
}

#[test]
fn i8_125_what_the_machine_cannot_give_is_rejected() {
    let herd = Herd::new();
    let output = herd.run(&["run", "-c", "100000", "--", "true"]);
    assert!(
        matches!(output.status.code(), Some(2 | 125)),
        "{:?}",
        output.status
    );
    assert!(stderr(&output).contains("hint:"), "{}", stderr(&output));
}

#[test]
fn i8_an_array_has_the_code_of_the_task_that_failed_first() {
    let herd = Herd::new();
    let script = "case $HERD_ARRAY_INDEX in 3) exit 30;; 5) sleep 1; exit 50;; esac";
    herd.file("job.yaml", &format!("array: 0-7\nrun: '{script}'\n"));
    assert_code(&herd.run(&["run", "job.yaml"]), 30);
}

#[test]
fn i8_wait_and_a_submitted_job_have_the_same_code() {
    let herd = Herd::new();
    let id = stdout(&herd.run(&["submit", "--", "sh", "-c", "exit 77"]));
    assert_code(&herd.run(&["wait", id.trim()]), 77);
    assert!(
        fs::read_to_string(herd.job_dir().join("result.json"))
            .unwrap()
            .contains("77")
    );
}
