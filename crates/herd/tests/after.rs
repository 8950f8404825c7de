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
    let reason = "ended FAILED, and this one runs only if that succeeds";
    let said = stderr(&output);
    let last = said.lines().find(|line| line.contains("CANCELLED"));
    let last = last.unwrap_or_default();
    assert!(
        last.contains("before it started (job ") && last.contains(reason),
        "{said}"
    );
    let why = stdout(&herd.run(&["why", "second"]));
    assert!(
        why.lines().next().unwrap_or_default().contains(reason),
        "{why}"
    );
    let status = stdout(&herd.run(&["status", "second"]));
    let line = status.lines().find(|line| line.starts_with("Why:"));
    assert!(line.is_some_and(|line| line.contains(reason)), "{status}");
    let waited = herd.run(&["wait", "second"]);
    assert_code(&waited, 130);
    assert!(stderr(&waited).contains(reason), "{}", stderr(&waited));
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
    // As one that runs: 128 and the signal only for a signal from outside.
    assert_code(&herd.run(&["wait", "second"]), 130);
    assert!(!herd.path("ran").exists());
    let why = stdout(&herd.run(&["why", "second"]));
    assert!(why.contains("asked for by herd cancel"), "{why}");
    assert_code(&herd.run(&["cancel", "first"]), 0);
    assert!(!herd.run(&["wait", "first"]).status.success());
}

#[test]
fn i8_a_signal_to_a_job_that_waits_shows_in_its_code() {
    let herd = Herd::new();
    submit(&herd, "sleep 600");
    let file = second(&herd, "", "touch ran");
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let run = herd.start(&["run", file.to_str().unwrap_or_default()]);
        eventually("it waits", || {
            stdout(&herd.run(&["ls", "-o", "json"])).contains("waits for job")
        });
        signal(pid_of(&run), name);
        let output = run.wait_with_output();
        assert_code(&output.unwrap_or_else(|error| panic!("{error}")), code);
    }
    assert_code(&herd.run(&["cancel", "first"]), 0);
    assert_code(&herd.run(&["wait", "first"]), 130);
}

#[test]
fn a_job_cancelled_between_its_attempts_ends_as_any_other() {
    let herd = Herd::new();
    let file = herd.file(
        "job.yaml",
        "retry: {max: 1, on: [rank-failed], backoff: 10m}\nrun: exit 3\n",
    );
    let run = herd.start(&["run", file.to_str().unwrap_or_default()]);
    eventually("the pause", || {
        stdout(&herd.run(&["ls", "-o", "json"])).contains("retries after")
    });
    assert_code(&herd.run(&["cancel", "last"]), 0);
    let output = run.wait_with_output();
    assert_code(&output.unwrap_or_else(|error| panic!("{error}")), 130);
}

#[test]
fn i6_who_waits_in_front_of_a_job_is_told_what_it_waits_for() {
    let herd = Herd::new();
    submit(&herd, "until [ -e go ]; do sleep 0.05; done");
    let file = second(&herd, "", "echo ran");
    let file = file.to_str().unwrap_or_default();
    let waiting: Vec<_> = [vec!["run", file], vec!["submit", "-f", file]]
        .into_iter()
        .map(|command| {
            let stderr = herd.path(command[0]);
            let child = herd
                .command(&command)
                .stderr(std::fs::File::create(&stderr).unwrap_or_else(|e| panic!("{e}")))
                .spawn();
            (stderr, child.unwrap_or_else(|e| panic!("{e}")))
        })
        .collect();
    let said = |path: &PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    for (path, _) in &waiting {
        eventually("it says what it waits for", || {
            said(path).contains("herd: waits for job ")
        });
    }
    herd.file("go", "");
    for (path, mut child) in waiting {
        assert!(child.wait().is_ok_and(|status| status.success()));
        let said = said(&path);
        assert_eq!(said.matches("waits for job").count(), 1, "{said}");
    }
}

#[test]
fn a_job_inside_another_says_that_it_waits_for_that_one() {
    let herd = Herd::new();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let all = cpus.to_string();
    let inner = [env!("CARGO_BIN_EXE_herd"), "run", "-c", "1", "--", "true"];
    let mut words = vec!["run", "-c", &all, "--"];
    words.extend(inner);
    let run = herd.start(&words);
    eventually("the inner job says so", || {
        stdout(&herd.run(&["ls", "-o", "json"])).contains("this job runs inside job")
    });
    signal(pid_of(&run), "-INT");
    let output = run.wait_with_output().unwrap_or_else(|e| panic!("{e}"));
    assert_code(&output, 130);
}
