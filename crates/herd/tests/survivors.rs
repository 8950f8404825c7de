//! I5: whichever supervisor dies, by any signal, nothing of the job stays behind.

mod live;

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use herd_testing::within;
use live::{Herd, alive, assert_code, children, eventually, pid_of, pids, signal, stderr};

/// Processes that each rank of the stubborn job starts.
const PER_RANK: usize = 4;

/// A rank that is a shell with a child, a setsid daemon, and a child that ignores SIGTERM.
fn start_stubborn(herd: &Herd) -> (Child, PathBuf) {
    let list = herd.path("pids");
    let text = format!(
        "echo $$ >> {0}\nsleep 3000 & echo $! >> {0}\n\
         setsid sh -c 'echo $$ >> {0}; exec sleep 3000' &\n\
         sh -c 'trap \"\" TERM; echo $$ >> {0}; while :; do sleep 1; done' &\n\
         while :; do sleep 1; done\n",
        list.display()
    );
    herd.file("stubborn.sh", &text);
    let run = herd.start(&["run", "-N", "2", "--", "sh", "stubborn.sh"]);
    eventually("all processes of both ranks", || {
        pids(&list).len() == 2 * PER_RANK
    });
    (run, list)
}

fn all_gone(list: &Path) {
    eventually("the end of every process", || {
        pids(list).iter().all(|&pid| !alive(pid))
    });
}

/// The driver is the only child of the visible process, its guard.
fn driver_of(run: &Child) -> i32 {
    let found = children(pid_of(run));
    assert_eq!(found.len(), 1, "a guard has one child");
    found[0]
}

#[test]
fn i5_sigkill_of_herd_run() {
    let herd = Herd::new();
    let (mut run, list) = start_stubborn(&herd);
    run.kill().unwrap();
    run.wait().unwrap();
    all_gone(&list);
}

#[test]
fn i5_sigkill_of_herd_run_while_an_executor_stands_still() {
    let herd = Herd::new();
    let (mut run, list) = start_stubborn(&herd);
    let driver = driver_of(&run);
    let executors = children(driver);
    signal(executors[0], "-STOP");
    run.kill().unwrap();
    run.wait().unwrap();
    // Five times the bound.
    within(Duration::from_secs(10), "the end of every process", || {
        !pids(&list).iter().any(|&pid| alive(pid))
            && !alive(driver)
            && !executors.iter().any(|&pid| alive(pid))
    });
    assert_code(&herd.run(&["wait", "last"]), 143);
}

#[test]
fn i5_sigkill_of_the_driver() {
    let herd = Herd::new();
    let (mut run, list) = start_stubborn(&herd);
    signal(driver_of(&run), "-KILL");
    assert!(!run.wait().unwrap().success());
    all_gone(&list);
}

#[test]
fn i5_sigkill_of_an_executor_names_its_node() {
    let herd = Herd::new();
    let (run, list) = start_stubborn(&herd);
    let executors = children(driver_of(&run));
    assert_eq!(executors.len(), 2);
    signal(executors[0], "-KILL");
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 125);
    assert!(stderr(&output).contains("node"), "{}", stderr(&output));
    all_gone(&list);
}

#[test]
fn i5_sigkill_of_a_rank() {
    let herd = Herd::new();
    let (run, list) = start_stubborn(&herd);
    signal(pids(&list)[0], "-KILL");
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 137);
    all_gone(&list);
}

#[test]
fn i5_sigterm_of_herd_run() {
    let herd = Herd::new();
    let (run, list) = start_stubborn(&herd);
    signal(pid_of(&run), "-TERM");
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 143);
    all_gone(&list);
}
