//! A connection between executor and coordinator that breaks: a proxy between the two cuts it. The
//! executor comes back, and nothing is lost, doubled or mixed; one that cannot come back is lost.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use herd_testing::{Proxy, within};
use live::{Herd, alive, assert_code, children, eventually, pid_of, pids, signal, stderr, stdout};

/// Ranks of the busy job, on two nodes.
const RANKS: usize = 64;
/// Lines of each of them.
const LINES: usize = 400;
/// Bytes after which the proxy cuts the first connection, and the others after their multiples. Logs are read where they are, on one machine, so
/// that only messages travel; the tests of herd-runtime cut logs.
const CUT_AFTER: usize = 700;

/// A copy of the program with executors beside it that go through a proxy.
fn through_a_proxy(herd: &Herd, limit: usize) -> (Proxy, PathBuf) {
    let built = Path::new(env!("CARGO_BIN_EXE_herd"));
    let node = built.with_file_name("herd-node");
    assert!(node.exists(), "build it: cargo build --workspace --bins");
    let (proxy, _) = Proxy::before(&node, &herd.path("herd-node"), limit);
    let own = herd.path("herd");
    fs::copy(built, &own).unwrap();
    (proxy, own)
}

fn start(herd: &Herd, program: &Path, args: &[&str]) -> Child {
    let plain = herd.command(args);
    let mut command = Command::new(program);
    command
        .args(plain.get_args())
        .current_dir(plain.get_current_dir().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    herd_testing::surroundings::copy(&plain, &mut command);
    command.spawn().unwrap()
}

#[test]
fn i7_nothing_is_lost_or_doubled_when_connections_break_while_64_ranks_write() {
    let herd = Herd::new();
    let (proxy, program) = through_a_proxy(&herd, CUT_AFTER);
    herd.file(
        "job.yaml",
        &format!(
            "type: pytorch\nnodes: 2\nprocs_per_node: {}\nrun: |\n  \
             for i in $(seq {LINES}); do echo $RANK:$i:{}; done\n  exit 0\n",
            RANKS / 2,
            "x".repeat(60)
        ),
    );
    let output = start(&herd, &program, &["run", "job.yaml"])
        .wait_with_output()
        .unwrap();
    assert_code(&output, 0);
    let cuts = proxy.cuts();
    assert!(cuts >= 3, "the connections were cut {cuts} times");
    let log = fs::read_to_string(herd.job_dir().join("run.log")).unwrap();
    assert_eq!(log.lines().count(), RANKS * LINES);
    for rank in 0..RANKS {
        let prefix = format!("(node{}, rank={rank}) ", rank / (RANKS / 2));
        let lines: Vec<&str> = log
            .lines()
            .filter_map(|line| line.strip_prefix(&prefix))
            .collect();
        let expected: Vec<String> = (1..=LINES)
            .map(|i| format!("{rank}:{i}:{}", "x".repeat(60)))
            .collect();
        assert_eq!(lines, expected);
    }
    assert_eq!(stdout(&output), log);
    // Messages too: every rank started and ended once, no node was lost.
    let events = herd.events();
    assert_eq!(events.matches("\"rank-started\"").count(), RANKS);
    assert_eq!(events.matches("\"rank-ended\"").count(), RANKS);
    assert!(!events.contains("node-lost"), "{events}");
}

#[test]
fn tasks_of_an_array_run_once_each_when_connections_break() {
    let herd = Herd::new();
    let (proxy, program) = through_a_proxy(&herd, 1_000);
    let list = herd.path("ran");
    herd.file(
        "job.yaml",
        "nodes: 2\narray: 0-299%4\nrun: echo $HERD_ARRAY_INDEX >> ran\n",
    );
    let output = start(&herd, &program, &["run", "job.yaml"])
        .wait_with_output()
        .unwrap();
    assert_code(&output, 0);
    assert!(proxy.cuts() >= 5);
    let mut ran = pids(&list);
    ran.sort_unstable();
    assert_eq!(ran, (0..300).collect::<Vec<_>>());
}

#[test]
fn i6_a_node_that_does_not_come_back_is_lost_and_named() {
    let herd = Herd::new();
    let (proxy, program) = through_a_proxy(&herd, usize::MAX);
    let list = herd.path("pids");
    let run = start(
        &herd,
        &program,
        &[
            "run",
            "-N",
            "2",
            "--",
            "sh",
            "-c",
            "echo $$ >> pids; exec sleep 3000",
        ],
    );
    eventually("both ranks", || pids(&list).len() == 2);
    let cut = Instant::now();
    proxy.close();
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 125);
    assert!(
        cut.elapsed() >= Duration::from_secs(10),
        "{:?}",
        cut.elapsed()
    );
    let text = stderr(&output);
    assert!(text.contains("did not come back"), "{text}");
    assert!(text.contains("node0") || text.contains("node1"), "{text}");
    eventually("the end of the ranks", || {
        pids(&list).iter().all(|&pid| !alive(pid))
    });
}

#[test]
fn i5_ranks_end_when_the_coordinator_is_silent_for_the_lease_however_much_they_write() {
    let herd = Herd::new();
    let list = herd.path("pids");
    let run = herd.start(&[
        "run",
        "-N",
        "2",
        "--",
        "sh",
        "-c",
        "echo $$ >> pids; while :; do echo a line that nobody takes; done",
    ]);
    eventually("both ranks", || pids(&list).len() == 2);
    let driver = children(pid_of(&run))[0];
    // The guard, too, which would end a driver that stands still.
    signal(pid_of(&run), "-STOP");
    signal(driver, "-STOP");
    // Thirty seconds, and five times the two that ending takes.
    within(Duration::from_secs(40), "the end of the ranks", || {
        pids(&list).iter().all(|&pid| !alive(pid))
    });
    signal(driver, "-CONT");
    signal(pid_of(&run), "-CONT");
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 125);
}
