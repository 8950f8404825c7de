//! Ctrl-C: what it says to a person who waits, and who a job was cancelled by.

mod live;

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;

use live::{Herd, assert_code, eventually, pid_of, signal, stderr, stdout};

#[test]
fn a_rank_that_takes_its_time_is_explained_and_a_second_ctrl_c_kills_it() {
    let herd = Herd::new();
    let script = "trap '' INT TERM; touch ready; while :; do sleep 1; done";
    let mut run = herd.start(&["run", "-b", "local", "--", "sh", "-c", script]);
    eventually("the rank runs", || herd.path("ready").exists());
    signal(pid_of(&run), "-INT");
    eventually("herd asked", || herd.events().contains("cancel-requested"));
    // It ends with the job at the latest, when the grace of ten seconds has passed.
    let mut said = String::new();
    let mut lines = BufReader::new(run.stderr.take().unwrap());
    while !said.contains("Ctrl-C again kills them\n") {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{said}");
    }
    assert_eq!(
        said,
        "herd: waits for up to 10s until the ranks have ended; Ctrl-C again kills them\n"
    );
    signal(pid_of(&run), "-INT");
    assert_code(&run.wait_with_output().unwrap(), 130);
    let why = stdout(&herd.run(&["why"]));
    assert!(
        why.contains("CANCELLED: asked for by signal 2 (SIGINT)"),
        "{why}"
    );
}

#[test]
fn i5_ctrl_c_to_one_who_follows_says_that_the_job_goes_on() {
    let herd = Herd::new();
    assert_code(
        &herd.run(&[
            "submit",
            "--name",
            "nap",
            "--",
            "sh",
            "-c",
            "echo up; sleep 600",
        ]),
        0,
    );
    for follow in [
        &["logs", "-f", "nap"][..],
        &["events", "-f", "nap"],
        &["wait", "nap"],
    ] {
        let child = herd.start(follow);
        // Once the signal is blocked it is answered; before, it ends the process as ever.
        let status = format!("/proc/{}/status", pid_of(&child));
        eventually("the signal is waited for", || {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let blocked = text.lines().find_map(|line| line.strip_prefix("SigBlk:\t"));
            // Whoever runs the tests may block others.
            blocked
                .is_some_and(|mask| u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & 2 != 0))
        });
        signal(pid_of(&child), "-INT");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(2), "{follow:?}");
        let said = stderr(&output);
        assert!(
            said.contains("go on") || said.contains("goes on"),
            "{follow:?}: {said}"
        );
    }
    assert_code(&herd.run(&["cancel", "nap"]), 0);
    assert_code(&herd.run(&["wait", "nap"]), 130);
    let why = stdout(&herd.run(&["why"]));
    assert!(why.contains("CANCELLED: asked for by herd cancel"), "{why}");
    // Nobody is told that an ended job goes on.
    assert_code(&herd.run(&["logs", "-f", "nap"]), 0);
}
