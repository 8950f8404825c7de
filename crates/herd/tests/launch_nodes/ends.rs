//! Nodes end together, whichever ends first and how.

use std::time::{Duration, Instant};

use herd_testing::within;

use crate::nodes::{DEADLINE, Nodes};
use crate::{all_end, all_gone};

#[test]
fn nodes_leave_together() {
    let test = Nodes::new(
        "echo $RANK >> done.$GROUP_RANK; [ $GROUP_RANK = 0 ] || until [ -e go ]; do sleep 0.05; done",
    );
    let mut both = test.two(|rank| test.fixed(rank), &[]);
    both[0].says("the workers here are done; waiting for those of other nodes");
    assert_eq!(test.lines("done.0"), ["0", "1"]);
    assert!(both[0].is_running());
    test.touch("go");
    all_end(&mut both, 0);
}

#[test]
fn a_node_that_is_killed_ends_the_others_with_its_name() {
    for (is_numbered, is_outright) in [(true, true), (false, true), (true, false)] {
        let test = Nodes::new("echo $$ >> pids; exec sleep 600");
        let flags = |rank: usize| {
            if is_numbered {
                test.fixed(rank)
            } else {
                let mut flags = test.c10d("2");
                flags.push(format!("--rdzv-conf=is_host={}", rank == 0));
                flags
            }
        };
        let mut both = test.two(flags, &[]);
        within(DEADLINE, "all run", || test.pids("pids").len() == 4);
        let reason = if is_outright {
            both[1].kill_inner();
            "its connection broke"
        } else {
            // What it guards says goodbye.
            both[1].signal("-KILL");
            "it was stopped"
        };
        let began = Instant::now();
        both[0].ends(1);
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "they die of TERM"
        );
        let text = both[0].err();
        let node = text.split("herd launch: node ").nth(1).unwrap();
        let said = format!(" is gone: {reason}; the workers here were ended");
        assert!(node.contains(&said), "{text}");
        all_gone(&test);
    }
}

#[test]
fn the_others_end_when_whoever_serves_the_endpoint_is_killed() {
    let test = Nodes::new("echo $$ >> pids; exec sleep 600");
    let mut both = test.two(|rank| test.fixed(rank), &["--max-restarts=3"]);
    within(DEADLINE, "all run", || test.pids("pids").len() == 4);
    both[0].kill_inner();
    both[1].ends(1);
    both[1].says("lost the launcher that serves the rendezvous");
    all_gone(&test);
}

#[test]
fn a_program_that_cannot_start_on_one_node_ends_the_others_with_the_reason() {
    let test = Nodes::new("exec sleep 600");
    let mut first = test.start(
        "first",
        &mut test.command(&test.fixed(0), &["--nproc-per-node=2"]),
    );
    let mut command = test.herd_in(None);
    command.arg("launch").args(test.fixed(1));
    let mut second = test.start("second", command.args(["--no-python", "./nowhere"]));
    second.ends(1);
    first.ends(1);
    let text = first.err();
    assert!(
        text.contains("node 1 (") && text.contains("./nowhere"),
        "{text}"
    );
}

#[test]
fn a_signal_to_one_node_ends_its_workers_and_the_others_miss_it() {
    let test = Nodes::new("echo $$ >> pids; exec sleep 600");
    let mut both = test.two(|rank| test.fixed(rank), &[]);
    within(DEADLINE, "all run", || test.pids("pids").len() == 4);
    both[1].signal("-TERM");
    both[1].ends(1);
    both[1].says("ended by signal 15");
    both[0].ends(1);
    both[0].says("node 1 (");
    both[0].says("is gone: it was stopped");
    all_gone(&test);
}
