//! `--hang-timeout`: workers that give no sign are reported with what is known of them, say where they
//! are, and are ended as after a failure.

use std::time::{Duration, Instant};

use herd_testing::{alive, eventually, signal};

use crate::fixture::{Launch, assert_status, err, out, pid};

const FLAG: &str = "--hang-timeout=2s";

#[test]
fn silent_workers_are_reported_and_ended() {
    let launch = Launch::new(
        "echo $$ >> all; echo working; [ $RANK = 1 ] && while :; do :; done; exec sleep 600",
    );
    let began = Instant::now();
    let output = launch.run(&["--nproc-per-node=2", FLAG, "--exit-code=worker"]);
    // SIGABRT.
    assert_status(&output, 134);
    assert!(began.elapsed() >= Duration::from_secs(2));
    let text = err(&output);
    assert!(
        text.contains("all 2 running workers were silent for 2 s"),
        "{text}"
    );
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.contains("waits in"))
        .skip(1)
        .take(2)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        (rows[0][0], rows[0][3], rows[0].last()),
        ("0", "S", Some(&"sleep")),
        "{text}"
    );
    assert_eq!((rows[1][0], rows[1][3]), ("1", "R"), "{text}");
    // The busy one used processor time meanwhile, the sleeping one none.
    assert!(rows[1][2].parse::<f64>().unwrap() > 0.0, "{text}");
    assert_eq!(rows[0][2], "0.0", "{text}");
    let root = text.split("Root Cause").nth(1).unwrap();
    assert!(
        root.contains("note      : silent for") && root.contains("SIGABRT"),
        "{text}"
    );
    // Without a mask the workers' own words look as ever.
    assert_eq!(out(&output), "working\nworking\n");
    assert!(!launch.pids("all").iter().any(|&pid| alive(pid)));
}

#[test]
fn output_of_one_rank_or_heartbeats_show_that_workers_get_on() {
    for sign in [
        "[ $RANK = 1 ] || echo step",
        "[ $RANK = 0 ] || echo step >&2",
        "touch $HERD_HEARTBEAT_FILE",
    ] {
        let launch = Launch::new(&format!(
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do {sign}; sleep 0.2; done; exit 0"
        ));
        // More than the time without a sign, less than it between two: also on a busy machine.
        let output = launch.run(&["--nproc-per-node=2", "--hang-timeout=3s"]);
        assert_status(&output, 0);
    }
}

#[test]
fn each_python_process_says_where_it_is() {
    let launch = Launch::new(
        "exec python3 -c '
import time
def stuck_here():
    time.sleep(600)
print(\"begun\", flush=True)
stuck_here()'",
    );
    let output = launch.run(&["--nproc-per-node=2", FLAG, "--log-dir=logs", "--tee=3"]);
    assert_status(&output, 1);
    let text = err(&output);
    for rank in 0..2 {
        let begins = format!("[default{rank}]:");
        let own: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(&begins))
            .collect();
        let says = |what: &str| own.iter().any(|line| line.contains(what));
        assert!(
            says("Fatal Python error: Aborted") && says("in stuck_here"),
            "{text}"
        );
    }
}

#[test]
fn a_hang_counts_as_a_failure_and_begins_the_next_attempt() {
    let launch = Launch::new(
        "echo $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 600",
    );
    let output = launch.run(&["--max-restarts=1", FLAG]);
    assert_status(&output, 0);
    assert_eq!(out(&output), "0\n1\n");
    assert!(
        err(&output).contains("rank 0 (local rank 0) was silent for"),
        "{}",
        err(&output)
    );
}

#[test]
fn workers_that_ignore_sigabrt_or_are_stopped_are_killed() {
    for script in [
        "trap '' ABRT TERM; while :; do sleep 0.1; done",
        "kill -STOP $$; sleep 600",
    ] {
        let launch = Launch::new(&format!("echo $$ >> all; {script}"));
        let began = Instant::now();
        let output = launch.run(&[FLAG, "--shutdown-timeout=1"]);
        assert_status(&output, 1);
        assert!(began.elapsed() < Duration::from_secs(30));
        assert!(!launch.pids("all").iter().any(|&pid| alive(pid)));
    }
}

#[test]
fn time_in_which_the_launcher_was_stopped_does_not_count() {
    let launch = Launch::new("echo $$ >> all; until [ -e go ]; do sleep 0.02; done; echo done");
    let child = launch.start(&["--hang-timeout=4s"]);
    eventually("it runs", || launch.pids("all").len() == 1);
    let agent = herd_testing::children(pid(&child))[0];
    signal(agent, "-STOP");
    let began = Instant::now();
    eventually("more than the bound has passed", || {
        began.elapsed() > Duration::from_secs(5)
    });
    std::fs::write(launch.path("go"), "").unwrap();
    signal(agent, "-CONT");
    assert_status(&child.wait_with_output().unwrap(), 0);
}

#[test]
fn i13_without_files_nothing_can_be_watched() {
    let launch = Launch::new("true");
    let output = launch.run(&[FLAG, "--log-dir=/dev/null"]);
    assert_status(&output, 1);
    let text = err(&output);
    assert!(
        text.contains("nothing to watch") && text.contains("hint:"),
        "{text}"
    );
}
