//! Rows 22 to 24 with what gets away from a process group: shells of shells, daemons in sessions of
//! their own, and children whose parent-death signal the kernel has cleared because they changed
//! their user when they were started. The last need root, which may make a setuid program.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use herd_testing::{alive, children, eventually, signal};

use crate::fixture::{Launch, assert_status, pid};

/// A user that owns nothing here.
const NOBODY: u32 = 65_534;
/// Processes that the script below leaves.
const LEFT: usize = 5;

/// Starts one process of each kind, which say their ids; the last is under another user.
const FAMILY: &str = r#"
sh -c 'echo $$ >> left; sh -c "echo \$\$ >> left; sleep 600; :"; :' &
setsid sh -c 'echo $$ >> left; trap "" TERM; while :; do sleep 0.2; done' &
setsid sh -c 'setsid sleep 600 & echo $! >> left' &
./other 600 & echo $! >> left
"#;

/// A worker with a setuid program beside it.
fn launch(script: &str) -> Launch {
    let launch = Launch::new(&format!("{FAMILY}\n{script}"));
    let other = launch.path("other");
    fs::copy("/bin/sleep", &other).unwrap();
    std::os::unix::fs::chown(&other, Some(NOBODY), Some(NOBODY))
        .expect("this test makes a setuid program, which needs root");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o4755)).unwrap();
    launch
}

/// The effective user of a process.
fn user(pid: i32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn all_have_come(launch: &Launch) -> Vec<i32> {
    let mut left = Vec::new();
    eventually("the whole family and its setuid member run", || {
        left = launch.pids("left");
        left.len() == LEFT && left.iter().any(|&pid| user(pid) == Some(NOBODY))
    });
    left
}

#[test]
pub(crate) fn rows_22_and_23_shells_daemons_and_setuid_children() {
    for code in [0, 1] {
        let launch = launch(&format!(
            "until [ -e go ]; do sleep 0.02; done; exit {code}"
        ));
        let child = launch.start(&[]);
        let left = all_have_come(&launch);
        fs::write(launch.path("go"), "").unwrap();
        assert_status(&child.wait_with_output().unwrap(), code);
        assert!(
            !left.iter().any(|&pid| alive(pid)),
            "the launcher ends after everything that its workers started"
        );
    }
}

#[test]
fn row_22_a_request_to_end_takes_all_of_them() {
    let launch = launch("while :; do sleep 0.1; done");
    let child = launch.start(&["--shutdown-timeout=1"]);
    let left = all_have_come(&launch);
    signal(pid(&child), "-TERM");
    assert_status(&child.wait_with_output().unwrap(), 1);
    assert!(!left.iter().any(|&pid| alive(pid)));
}

#[test]
pub(crate) fn row_24_whichever_of_the_launchers_two_processes_is_killed() {
    for guard in [true, false] {
        let launch = launch("echo $$ >> workers; while :; do sleep 0.1; done");
        let mut child = launch.start(&["--nproc-per-node=1"]);
        let mut left = all_have_come(&launch);
        eventually("the worker says its id", || {
            launch.pids("workers").len() == 1
        });
        left.extend(launch.pids("workers"));
        let agent = children(pid(&child));
        assert_eq!(agent.len(), 1, "the guard has one child");
        left.push(agent[0]);
        let began = Instant::now();
        signal(if guard { pid(&child) } else { agent[0] }, "-KILL");
        child.wait().unwrap();
        eventually("all are gone", || !left.iter().any(|&pid| alive(pid)));
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "bound 2 s, times five"
        );
    }
}

#[test]
fn row_24_a_worker_that_is_setuid_itself() {
    let launch = launch("./other 600 & echo $! >> left; exec ./other 600");
    let mut child = launch.start(&[]);
    eventually("all run", || launch.pids("left").len() == LEFT + 1);
    let agent = children(pid(&child));
    let mut worker = Vec::new();
    eventually("the worker has become setuid", || {
        worker = children(agent[0]);
        worker.iter().any(|&pid| user(pid) == Some(NOBODY))
    });
    signal(agent[0], "-KILL");
    child.wait().unwrap();
    let all = [worker, launch.pids("left")].concat();
    eventually("all are gone", || !all.iter().any(|&pid| alive(pid)));
}
