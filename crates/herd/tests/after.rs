//! `after` on this machine: a job waits for others and runs only if they ended as it asks.

mod live;

use std::path::PathBuf;

use live::{Herd, assert_code, children, eventually, pid_of, signal, stderr, stdout};

/// A job file that runs `script` after the job called `first`.
fn second(herd: &Herd, when: &str, script: &str) -> PathBuf {
    let after = if when.is_empty() {
        "after: [first]".to_owned()
    } else {
        format!("after: [{{job: first, when: {when}}}]")
    };
    herd.file(
        "second.yaml",
        &format!("name: second\n{after}\nrun: {script}\n"),
    )
}

fn submit(herd: &Herd, script: &str) {
    assert_code(
        &herd.run(&["submit", "-J", "first", "--", "sh", "-c", script]),
        0,
    );
}

#[test]
fn it_waits_says_for_whom_and_then_runs() {
    let herd = Herd::new();
    submit(&herd, "until [ -e go ]; do sleep 0.05; done; touch done");
    let file = second(&herd, "", "ls done");
    assert_code(&herd.run(&["submit", file.to_str().unwrap()]), 0);
    eventually("why names the other job", || {
        stdout(&herd.run(&["why", "second"])).contains("waits for job")
    });
    herd.file("go", "");
    assert_code(&herd.run(&["wait", "second"]), 0);
}

#[test]
fn after_a_failure_it_does_not_run_unless_it_asks_for_that() {
    let herd = Herd::new();
    submit(&herd, "exit 3");
    let file = second(&herd, "", "touch ran");
    let output = herd.run(&["run", file.to_str().unwrap()]);
    assert_code(&output, 130);
    assert!(!herd.path("ran").exists());
    assert!(stderr(&output).contains("CANCELLED"), "{}", stderr(&output));
    let why = herd.run(&["why", "second"]);
    assert!(stdout(&why).contains("ended FAILED"), "{}", stdout(&why));
    for when in ["failed", "any"] {
        let file = second(&herd, when, "echo ran");
        assert_code(&herd.run(&["run", file.to_str().unwrap()]), 0);
    }
}

#[test]
fn i3_a_job_whose_driver_was_killed_has_ended_for_those_that_wait() {
    let herd = Herd::new();
    let first = herd.start(&["run", "-J", "first", "--", "sleep", "600"]);
    eventually("the first runs", || {
        stdout(&herd.run(&["ls", "-o", "json"])).contains("RUNNING")
    });
    let file = second(&herd, "any", "echo ran");
    assert_code(&herd.run(&["submit", file.to_str().unwrap()]), 0);
    // The guard's only child is the driver.
    for driver in children(pid_of(&first)) {
        signal(driver, "-KILL");
    }
    drop(first.wait_with_output());
    assert_code(&herd.run(&["wait", "second"]), 0);
}

#[test]
fn a_job_that_waits_can_be_cancelled() {
    let herd = Herd::new();
    submit(&herd, "sleep 600");
    let file = second(&herd, "", "touch ran");
    assert_code(&herd.run(&["submit", file.to_str().unwrap()]), 0);
    eventually("it waits", || {
        stdout(&herd.run(&["why", "second"])).contains("waits for job")
    });
    assert_code(&herd.run(&["cancel", "second"]), 0);
    let ended = herd.run(&["wait", "second"]);
    assert_ne!(ended.status.code(), Some(0));
    assert!(!herd.path("ran").exists());
    assert_code(&herd.run(&["cancel", "first"]), 0);
    assert!(!herd.run(&["wait", "first"]).status.success());
}
