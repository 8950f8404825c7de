//! I6: a driver that somebody stops keeps nobody waiting for ever, and what it held is free again.

mod live;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use herd_testing::within;
use live::{Herd, alive, assert_code, children, eventually, pid_of, pids, signal, stderr, stdout};

/// Five times the lease of a driver that stands still.
const LOST: Duration = Duration::from_secs(150);
/// Processes of the job of [`write_stubborn`].
const STUBBORN: usize = 3;

/// A rank with a daemon in a session of its own, both of which ignore SIGTERM.
fn write_stubborn(herd: &Herd) -> PathBuf {
    herd.file(
        "job.sh",
        "trap '' TERM\necho $$ >> pids\n\
         setsid sh -c 'trap \"\" TERM; echo $$ >> pids; while :; do sleep 1; done' &\n\
         sleep 3000 & echo $! >> pids\nwhile :; do sleep 1; done\n",
    );
    herd.path("pids")
}

fn all_gone(list: &Path) {
    eventually("the end of every process", || {
        pids(list).iter().all(|&pid| !alive(pid))
    });
}

fn driver_of(run: &Child) -> i32 {
    let found = children(pid_of(run));
    assert_eq!(found.len(), 1, "a guard has one child");
    found[0]
}

#[test]
fn i6_a_driver_that_stays_stopped_is_lost_and_its_leases_are_free() {
    let herd = Herd::new();
    let list = write_stubborn(&herd);
    let stopped = herd.start(&["run", "-c", "1", "--name", "stopped", "--", "sh", "job.sh"]);
    eventually("the rank's processes", || pids(&list).len() == STUBBORN);
    let driver = driver_of(&stopped);
    // All CPUs: it waits for the one above.
    let all = std::thread::available_parallelism().unwrap().to_string();
    let waiting = herd.run(&["submit", "-c", &all, "--name", "waiting", "--", "true"]);
    assert_code(&waiting, 0);
    let waiting = stdout(&waiting).trim().to_owned();
    eventually("the queue", || {
        stdout(&herd.run(&["why", &waiting])).contains("CPU")
    });
    signal(driver, "-STOP");
    let output = stopped.wait_with_output().unwrap();
    assert_code(&output, 125);
    all_gone(&list);
    let said = stderr(&output);
    let hint = format!("hint: `kill -CONT {driver}`");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(&hint)).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(said.contains("FAILED") && said.contains("driver"), "{said}");
    let jobs = fs::read_dir(herd.path("home/jobs")).unwrap();
    let ends =
        jobs.filter_map(|job| fs::read_to_string(job.unwrap().path().join("attempts/1/end")).ok());
    assert_eq!(ends.filter(|end| end.contains("driver-lost")).count(), 1);
    assert_code(&herd.run(&["wait", "stopped"]), 125);
    assert_code(&herd.run(&["wait", &waiting]), 0);
}

#[test]
fn i6_a_submitted_driver_that_stays_stopped_is_lost() {
    let herd = Herd::new();
    let list = write_stubborn(&herd);
    assert_code(&herd.run(&["submit", "--", "sh", "job.sh"]), 0);
    eventually("the rank's processes", || pids(&list).len() == STUBBORN);
    let driver = fs::read_to_string(herd.job_dir().join("attempts/1/driver.json")).unwrap();
    let (_, rest) = driver.split_once("\"pid\":").unwrap();
    signal(rest.split(',').next().unwrap().parse().unwrap(), "-STOP");
    // Nobody looks at the job: its guard alone ends it.
    let result = herd.job_dir().join("result.json");
    within(LOST, "the result", || result.exists());
    all_gone(&list);
    let log = fs::read_to_string(herd.job_dir().join("driver.log")).unwrap();
    assert!(log.contains("hint: `kill -CONT "), "{log}");
    assert_code(&herd.run(&["wait", "last"]), 125);
}

#[test]
fn i6_an_executor_that_stands_still_during_setup_is_not_waited_for_twice() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "name: setup\nnodes: 2\nsetup:\n  on: each\n  run: |\n    trap '' TERM\n    \
         echo $$ > up.$HERD_NODE_RANK\n    while :; do sleep 1; done\nrun: 'true'\n",
    );
    let run = herd.start(&["run", "job.yaml"]);
    let up = ["up.0", "up.1"].map(|name| herd.path(name));
    eventually("setup on both nodes", || {
        up.iter().all(|file| !pids(file).is_empty())
    });
    let (peer, own) = (pids(&up[0])[0], pids(&up[1])[0]);
    let parent = |pid| {
        let executors = children(driver_of(&run));
        executors
            .into_iter()
            .find(|&executor| children(executor).contains(&pid))
    };
    let executor = parent(own).unwrap();
    signal(executor, "-STOP");
    // It is given up after 15 s of silence. Its peer has 10 s of grace then, which it uses.
    within(LOST, "the end of the silent executor", || !alive(executor));
    assert!(alive(peer), "the peer's grace came first");
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 125);
    assert!(
        stderr(&output).contains("node1 was lost: silent for"),
        "{}",
        stderr(&output)
    );
    assert!(!alive(peer) && !alive(own));
}

#[test]
fn a_driver_that_is_let_go_on_in_time_goes_on() {
    let herd = Herd::new();
    let run = herd.start(&[
        "run",
        "--",
        "sh",
        "-c",
        "touch up; until [ -e go ]; do sleep 0.1; done; exit 7",
    ]);
    eventually("the rank", || herd.path("up").exists());
    let driver = driver_of(&run);
    signal(driver, "-STOP");
    eventually("the stop", || herd_testing::state(driver) == Some('T'));
    fs::write(herd.path("go"), "").unwrap();
    signal(driver, "-CONT");
    assert_code(&run.wait_with_output().unwrap(), 7);
}

#[test]
fn a_job_whose_driver_was_killed_ends_with_the_same_code_for_all() {
    let herd = Herd::new();
    let list = write_stubborn(&herd);
    let run = herd.start(&["run", "--", "sh", "job.sh"]);
    eventually("the rank's processes", || pids(&list).len() == STUBBORN);
    signal(driver_of(&run), "-KILL");
    assert_code(&run.wait_with_output().unwrap(), 125);
    all_gone(&list);
    assert_code(&herd.run(&["wait", "last"]), 125);
}
