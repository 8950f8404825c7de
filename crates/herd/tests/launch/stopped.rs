//! The rows about ends with workers and leftovers that a SIGSTOP has stopped: they act on nothing but
//! SIGKILL until they are continued.

use std::fs;
use std::time::{Duration, Instant};

use herd_testing::{alive, eventually, signal, state};

use crate::fixture::{Launch, assert_status, end_by_repeating, err, out, pid};

fn all_stopped(launch: &Launch, count: usize) -> Vec<i32> {
    let mut pids = Vec::new();
    eventually("all are stopped", || {
        pids = launch.pids("all");
        pids.len() == count && pids.iter().all(|&pid| state(pid) == Some('T'))
    });
    pids
}

#[test]
fn row_13_lines_of_ranks_that_were_stopped_now_and_then_are_whole() {
    const LINES: usize = 30_000;
    let launch = Launch::new(&format!(
        "echo $$ >> all; seq -f \"$RANK:%.0f:{}\" {LINES}; echo done >> done",
        "x".repeat(40)
    ));
    let child = launch.start(&["--nproc-per-node=3", "--tee=3"]);
    eventually("all have begun", || launch.pids("all").len() == 3);
    let mut turn = 0;
    // The last may be between two looks for its end: one that is gone is not stopped.
    let reader = std::thread::spawn(move || child.wait_with_output().unwrap());
    eventually("the end", || {
        turn += 1;
        for (index, pid) in launch.pids("all").into_iter().enumerate() {
            let name = if (turn + index) % 3 == 0 {
                nix::sys::signal::SIGSTOP
            } else {
                nix::sys::signal::SIGCONT
            };
            let _gone = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(pid), name);
        }
        reader.is_finished()
    });
    let output = reader.join().unwrap();
    assert_status(&output, 0);
    let mut next = [1; 3];
    for line in out(&output).lines() {
        let (rank, rest) = line
            .strip_prefix("[default")
            .unwrap()
            .split_once("]:")
            .unwrap();
        let rank: usize = rank.parse().unwrap();
        assert_eq!(rest, format!("{rank}:{}:{}", next[rank], "x".repeat(40)));
        next[rank] += 1;
    }
    assert_eq!(next, [LINES + 1; 3]);
}

#[test]
fn rows_22_and_23_what_a_worker_leaves_stopped_goes_too() {
    for code in [0, 1] {
        let launch = Launch::new(&format!(
            "sleep 600 & echo $! >> all; setsid sleep 600 & echo $! >> all
             for pid in $(cat all); do kill -STOP $pid; done; until [ -e go ]; do sleep 0.02; done; exit {code}"
        ));
        let child = launch.start(&[]);
        let left = all_stopped(&launch, 2);
        fs::write(launch.path("go"), "").unwrap();
        assert_status(&child.wait_with_output().unwrap(), code);
        assert!(!left.iter().any(|&pid| alive(pid)));
    }
}

#[test]
fn row_24_stopped_workers_go_with_a_launcher_that_is_killed() {
    let launch = Launch::new(
        "trap '' TERM; setsid sleep 600 & echo $! >> all; kill -STOP $!; echo $$ >> all; kill -STOP $$; sleep 600",
    );
    let mut child = launch.start(&["--nproc-per-node=2"]);
    let all = all_stopped(&launch, 4);
    let began = Instant::now();
    signal(pid(&child), "-KILL");
    child.wait().unwrap();
    eventually("all are gone", || !all.iter().any(|&pid| alive(pid)));
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "bound 2 s, times five"
    );
}

#[test]
fn row_26_a_stopped_worker_hears_the_signal() {
    let launch = Launch::new(
        "trap 'echo $RANK >> got; exit 0' TERM; echo $$ >> all; kill -STOP $$; while :; do sleep 0.05; done",
    );
    let child = launch.start(&["--nproc-per-node=2"]);
    all_stopped(&launch, 2);
    signal(pid(&child), "-TERM");
    assert_status(&child.wait_with_output().unwrap(), 1);
    let got = fs::read_to_string(launch.path("got")).unwrap();
    assert_eq!(got.lines().count(), 2, "{got}");
}

#[test]
fn row_27_signals_that_come_again_kill_stopped_workers() {
    let launch =
        Launch::new("trap '' TERM; echo $$ >> all; kill -STOP $$; while :; do kill -STOP $$; done");
    let child = launch.start(&["--nproc-per-node=2"]);
    let all = all_stopped(&launch, 2);
    let began = Instant::now();
    end_by_repeating(pid(&child));
    let output = child.wait_with_output().unwrap();
    assert_status(&output, 1);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "the grace would be 30 s"
    );
    assert!(!all.iter().any(|&pid| alive(pid)));
}

#[test]
pub(crate) fn row_29_a_stopped_peer_is_ended_with_the_others() {
    let launch = Launch::new(
        "if [ $RANK = 0 ]; then until [ -e go ]; do sleep 0.02; done; exit 3; fi
         trap '' TERM; echo $$ >> all; kill -STOP $$; while :; do kill -STOP $$; done",
    );
    let child = launch.start(&["--nproc-per-node=2", "--shutdown-timeout=2"]);
    let all = all_stopped(&launch, 1);
    let began = Instant::now();
    fs::write(launch.path("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_status(&output, 1);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "bound 4 s, times five"
    );
    assert!(err(&output).contains("exitcode  : -9"), "{}", err(&output));
    assert!(!all.iter().any(|&pid| alive(pid)));
}
