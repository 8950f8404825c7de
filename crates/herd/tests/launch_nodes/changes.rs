//! Nodes come, go and fail, and the others begin again.

use herd_testing::{signal, state, within};

use crate::nodes::{DEADLINE, Nodes};
use crate::{FOUR, PLACE, all_end, is_served};

#[test]
fn row_48_one_node_begins_alone_and_a_late_one_makes_all_begin_again_uncounted() {
    let test = Nodes::new(&format!(
        "{PLACE} >> seen; until [ $WORLD_SIZE = 4 ] && [ -e go ]; do sleep 0.05; done"
    ));
    let more = ["--nproc-per-node=2", "--rdzv-conf=last_call_timeout=1"];
    let start = |name: &str| test.start(name, &mut test.command(&test.c10d("1:2"), &more));
    let first = start("first");
    within(DEADLINE, "it begins alone", || {
        test.lines("seen") == ["0/2 0/1 0", "1/2 0/1 0"]
    });
    let late = start("late");
    within(DEADLINE, "all begin again", || {
        test.lines("seen").len() == 6
    });
    test.touch("go");
    let mut both = [first, late];
    all_end(&mut both, 0);
    let mut expected = vec!["0/2 0/1 0", "1/2 0/1 0"];
    expected.extend(FOUR);
    expected.sort_unstable();
    assert_eq!(test.lines("seen"), expected);
    both[0].says("1 more node is here; all workers start again");
}

#[test]
fn row_48_the_others_go_on_without_a_node_that_dies_where_they_are_enough() {
    // No restart is allowed, and none is counted.
    let test = Nodes::new(&format!(
        "{PLACE} >> seen; until [ $WORLD_SIZE = 2 ]; do sleep 0.05; done"
    ));
    let more = ["--nproc-per-node=2", "--rdzv-conf=last_call_timeout=2"];
    let start = |name: &str| test.start(name, &mut test.command(&test.c10d("1:2"), &more));
    let mut first = start("first");
    // Whoever serves the endpoint is to live.
    is_served(&test);
    let second = start("second");
    within(DEADLINE, "both run", || test.lines("seen").len() == 4);
    second.kill_inner();
    // Nobody is waited for longer than the last call.
    first.ends(0);
    let seen = test.lines("seen");
    assert_eq!(
        seen.iter().filter(|line| line.contains("/2 0/1 0")).count(),
        2
    );
    first.says("is gone: its connection broke");
}

#[test]
fn row_48_a_failure_that_a_dead_node_has_caused_is_no_failure() {
    // As a worker of torch does, this one fails as soon as the other node is gone; its neighbour
    // takes longer to end than a failure is kept from other nodes.
    let test = Nodes::new(&format!(
        "{PLACE} >> seen; [ $WORLD_SIZE = 2 ] && exit
         [ -z \"$SECOND\" ] || {{ echo $PPID > peer; exec sleep 600; }}
         until [ -s peer ]; do sleep 0.02; done
         trap 'sleep 2; exit' TERM
         echo $$ >> ready.$LOCAL_RANK
         while kill -0 $(cat peer); do sleep 0.02; done
         [ $LOCAL_RANK = 0 ] || while :; do sleep 0.1; done
         exit 1"
    ));
    let more = ["--nproc-per-node=2", "--rdzv-conf=last_call_timeout=1"];
    let mut first = test.start("first", &mut test.command(&test.c10d("1:2"), &more));
    is_served(&test);
    let mut command = test.command(&test.c10d("1:2"), &more);
    let second = test.start("second", command.env("SECOND", "yes"));
    within(DEADLINE, "both run", || {
        let ready = ["ready.0", "ready.1"].map(|name| test.pids(name).len());
        test.lines("seen").len() == 4 && ready == [1, 1]
    });
    // So that it sees its worker's end and the other node's together.
    let [launcher] = first.inner()[..] else {
        panic!("no launcher");
    };
    signal(launcher, "-STOP");
    second.kill_inner();
    let failing = test.pids("ready.0")[0];
    within(DEADLINE, "the worker has failed", || {
        state(failing) == Some('Z')
    });
    signal(launcher, "-CONT");
    first.ends(0);
    first.says("is gone");
}

#[test]
fn restarts_are_counted_for_the_job_and_all_nodes_begin_each_together() {
    // Another node's worker fails each time.
    let test = Nodes::new(&format!(
        "{PLACE} >> seen
         case $RANK/$TORCHELASTIC_RESTART_COUNT in
         3/0|0/1|2/2) until [ $(wc -l < seen) = $((4 * (TORCHELASTIC_RESTART_COUNT + 1))) ]; do sleep 0.02; done; exit 5 ;;
         esac; exec sleep 600"
    ));
    let mut both = test.two(
        |rank| test.fixed(rank),
        &["--max-restarts=2", "--exit-code=worker"],
    );
    both[0].ends(1);
    both[1].ends(5);
    let seen = test.lines("seen");
    for attempt in 0..3 {
        let of = |line: &&String| line.ends_with(&format!(" {attempt}"));
        assert_eq!(seen.iter().filter(of).count(), 4, "{seen:?}");
    }
    both[0].says("rank 3 (local rank 1) exited with code 5; all workers start again");
    both[0].says("rank 0 (local rank 0) exited with code 5; attempt 2 begins, 0 restarts are left");
    both[0].says("failed: rank 2 (local rank 0) exited with code 5; the workers here were ended");
    both[1].says("exitcode  : 5");
}

#[test]
fn a_node_that_stands_by_takes_a_place_that_becomes_free_or_ends_with_the_job() {
    let test = Nodes::new(&format!(
        "{PLACE} >> seen; echo $$ >> pids; until [ -e go ]; do sleep 0.05; done"
    ));
    let more = ["--nproc-per-node=2", "--max-restarts=1"];
    let start = |name: &str| test.start(name, &mut test.command(&test.c10d("2"), &more));
    let mut first = start("first");
    is_served(&test);
    let second = start("second");
    within(DEADLINE, "both run", || test.pids("pids").len() == 4);
    let mut third = start("third");
    third.says("all 2 places are taken; this node stands by");
    signal(second.pid(), "-KILL");
    within(DEADLINE, "it takes the place", || {
        test.pids("pids").len() == 8
    });
    let mut fourth = start("fourth");
    fourth.says("this node stands by");
    test.touch("go");
    for node in [&mut first, &mut third, &mut fourth] {
        node.ends(0);
    }
    fourth.says("the job has finished");
}
