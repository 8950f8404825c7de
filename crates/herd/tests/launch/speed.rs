//! Row 50, as a deadline: the bounds are those of a quiet machine, and tests run beside others.

use std::time::{Duration, Instant};

use herd_testing::process::peak_memory_kib;
use herd_testing::{children, eventually};

use crate::fixture::{Launch, assert_status, pid};

#[test]
fn row_50_four_workers_start_and_end_at_once() {
    let launch = Launch::new("exit 0");
    let best = (0..3)
        .map(|_| {
            let began = Instant::now();
            assert_status(&launch.run(&["--nproc-per-node=4"]), 0);
            began.elapsed()
        })
        .min();
    assert!(
        best.unwrap() < Duration::from_millis(500),
        "bound 0.1 s, times five: {best:?}"
    );
}

#[test]
fn row_50_the_launcher_is_small() {
    let launch = Launch::new("echo $$ >> ready; until [ -e go ]; do sleep 0.05; done");
    let child = launch.start(&["--nproc-per-node=4", "--tee=3"]);
    eventually("all run", || launch.pids("ready").len() == 4);
    let both = [vec![pid(&child)], children(pid(&child))].concat();
    assert_eq!(both.len(), 2);
    let kib: u64 = both.iter().map(|&pid| peak_memory_kib(pid)).sum();
    std::fs::write(launch.path("go"), "").unwrap();
    assert_status(&child.wait_with_output().unwrap(), 0);
    // A development build, whose two processes share most of what they have.
    assert!(kib < 5 * 20 * 1024, "bound 20 MB, times five: {kib} KiB");
}
