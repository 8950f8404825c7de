//! A connection that breaks makes what is known old; it ends no job, and loses and doubles no line.

use std::fmt::Write as _;

use herd_testing::{signal, within};

use crate::laptop::{DEADLINE, Laptop, Running};

/// Prints numbered lines; waits for the file `go` after some of them.
const COUNTS: &str = "for i in $(seq 1 400); do echo line $i; [ $i != 50 ] || while ! [ -e go ]; do sleep 0.05; \
                      done; [ $((i % 20)) != 0 ] || sleep 0.1; done; exit 5";

fn all_lines(first: usize) -> String {
    (first..=400).fold(String::new(), |mut text, number| {
        writeln!(text, "line {number}").unwrap();
        text
    })
}

#[test]
fn i7_herd_run_goes_on_where_it_was_when_its_connection_is_killed() {
    let laptop = Laptop::new();
    let mut run = Running::start(
        laptop.herd(&["run", "-b", "far", "-J", "counts", "--", "sh", "-c", COUNTS]),
    );
    assert_eq!(run.line(), "line 1");
    signal(laptop.master(), "-KILL");
    laptop.touch_in("counts", "go");
    signal(laptop.master(), "-KILL");
    let answer = run.end();
    assert_eq!(answer.code, 5, "{answer:?}");
    assert_eq!(answer.out, all_lines(2), "{}", answer.err);
    assert!(answer.err.contains("the job goes on"), "{}", answer.err);
}

#[test]
fn i3_a_network_that_is_gone_makes_facts_old_and_fails_no_job() {
    let laptop = Laptop::new();
    let script = "while ! [ -e go ]; do sleep 0.05; done; exit 8";
    let job = laptop.submit(&["-J", "patient", "--", "sh", "-c", script]);
    laptop.await_state(&job, "RUNNING");
    let wait = Running::start(laptop.herd(&["wait", &job]));
    laptop.gate.cut();
    let answer = laptop.ask(&["ls"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.out.contains("RUNNING (as of "), "{answer:?}");
    assert!(
        answer.err.contains("login1 cannot be asked just now"),
        "{answer:?}"
    );
    // The second look does not wait for the network again.
    let row = &laptop.json(&["ls"])[0];
    assert_eq!(row["state"], "RUNNING");
    assert!(row["as_of_ms"].is_u64(), "{row}");
    let refused = laptop.ask(&["cancel", &job]);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.err.contains("hint: "), "{refused:?}");
    laptop.gate.mend();
    laptop.touch_in("patient", "go");
    let answer = wait.end();
    assert_eq!(answer.code, 8, "{answer:?}");
    let row = &laptop.json(&["ls"])[0];
    assert_eq!(
        (&row["state"], row.get("as_of_ms")),
        (&"FAILED".into(), None)
    );
}

#[test]
fn i7_a_laptop_that_slept_goes_on_where_it_was() {
    let laptop = Laptop::new();
    let job = laptop.submit(&["-J", "sleeper", "--", "sh", "-c", COUNTS]);
    let mut logs = Running::start(laptop.herd(&["logs", "-f", &job]));
    assert_eq!(logs.line(), "line 1");
    let master = laptop.master();
    laptop.gate.stall();
    // ssh gives the connection up when nothing has come for 15 s.
    within(DEADLINE, "the end of the connection", || {
        !herd_testing::alive(master)
    });
    laptop.gate.mend();
    laptop.touch_in("sleeper", "go");
    let answer = logs.end();
    assert_eq!(answer.out, all_lines(2), "{}", answer.err);
    assert!(answer.err.contains("answers again"), "{}", answer.err);
}

#[test]
fn an_sshd_that_is_stopped_for_a_while_is_waited_for() {
    let laptop = Laptop::new();
    let mut run =
        Running::start(laptop.herd(&["run", "-b", "far", "-J", "away", "--", "sh", "-c", COUNTS]));
    assert_eq!(run.line(), "line 1");
    laptop.await_state("away", "RUNNING");
    laptop.gate.cut();
    let status = laptop.ask(&["status", "away"]);
    assert!(status.out.contains("RUNNING"), "{status:?}");
    laptop.gate.mend();
    laptop.touch_in("away", "go");
    let answer = run.end();
    assert_eq!(answer.code, 5, "{answer:?}");
    assert_eq!(answer.out, all_lines(2), "{}", answer.err);
}
