//! A connection between executor and coordinator that breaks: a proxy between the two cuts it. The
//! executor comes back, and nothing is lost, doubled or mixed; one that cannot come back is lost.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use herd_testing::within;
use live::{Herd, alive, assert_code, children, eventually, pid_of, pids, signal, stderr, stdout};

/// Ranks of the busy job, on two nodes.
const RANKS: usize = 64;
/// Lines of each of them.
const LINES: usize = 400;
/// Bytes after which the proxy cuts a connection, several times over the whole output.
const CUT_AFTER: usize = 150_000;

/// What lies between executors and coordinator.
#[derive(Clone, Default)]
struct Proxy {
    /// Connections that stand: both sides of each.
    open: Arc<Mutex<Vec<TcpStream>>>,
    cuts: Arc<AtomicUsize>,
    /// New connections are cut at once.
    closed: Arc<AtomicBool>,
}

impl Proxy {
    /// Listens, and connects to the address that stands in the file `target` by then. Each
    /// connection is cut after `limit` bytes to the coordinator.
    fn start(target: PathBuf, limit: usize) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Self::default();
        let own = proxy.clone();
        std::thread::spawn(move || {
            for inner in listener.incoming() {
                let inner = inner.unwrap();
                if own.closed.load(Ordering::Acquire) {
                    continue;
                }
                let target: SocketAddr = fs::read_to_string(&target).unwrap().parse().unwrap();
                let Ok(outer) = TcpStream::connect(target) else {
                    continue;
                };
                own.open
                    .lock()
                    .unwrap()
                    .extend([inner.try_clone().unwrap(), outer.try_clone().unwrap()]);
                own.pump(&inner, &outer, limit);
                own.pump(&outer, &inner, usize::MAX);
            }
        });
        (proxy, address)
    }

    fn pump(&self, from: &TcpStream, to: &TcpStream, limit: usize) {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let cuts = Arc::clone(&self.cuts);
        std::thread::spawn(move || {
            let mut left = limit;
            let mut buffer = [0; 10_000];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                // In the middle of what was read, and so of a record.
                let passed = count.min(left);
                if to.write_all(&buffer[..passed]).is_err() {
                    break;
                }
                left -= passed;
                if left == 0 {
                    cuts.fetch_add(1, Ordering::AcqRel);
                    break;
                }
            }
            drop(from.shutdown(Shutdown::Both));
            drop(to.shutdown(Shutdown::Both));
        });
    }

    /// Cuts everything, and for ever.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for stream in self.open.lock().unwrap().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

/// A copy of the program with executors beside it that go through the proxy.
fn through_a_proxy(herd: &Herd, limit: usize) -> (Proxy, PathBuf) {
    let target = herd.path("target");
    let (proxy, address) = Proxy::start(target.clone(), limit);
    let built = Path::new(env!("CARGO_BIN_EXE_herd"));
    let own = herd.path("herd");
    fs::copy(built, &own).unwrap();
    let node = built.with_file_name("herd-node");
    assert!(node.exists(), "build it: cargo build --workspace --bins");
    // `executor --coordinator ADDRESS …`: the order is the driver's.
    let script = format!(
        "#!/bin/sh\n[ \"$2\" = --coordinator ] || exit 9\n\
         printf %s \"$3\" > {target}.new.$$ && mv {target}.new.$$ {target}\n\
         shift 3\nexec {node} executor --coordinator {address} \"$@\"\n",
        target = target.display(),
        node = node.display()
    );
    let wrapper = herd.file("herd-node", &script);
    fs::set_permissions(wrapper, fs::Permissions::from_mode(0o755)).unwrap();
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
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
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
    let cuts = proxy.cuts.load(Ordering::Acquire);
    assert!(cuts >= 5, "the connections were cut {cuts} times");
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
    let (proxy, program) = through_a_proxy(&herd, 5_000);
    let list = herd.path("ran");
    herd.file(
        "job.yaml",
        "nodes: 2\narray: 0-299%4\nrun: echo $HERD_ARRAY_INDEX >> ran\n",
    );
    let output = start(&herd, &program, &["run", "job.yaml"])
        .wait_with_output()
        .unwrap();
    assert_code(&output, 0);
    assert!(proxy.cuts.load(Ordering::Acquire) >= 5);
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
    signal(driver, "-STOP");
    // Thirty seconds, and five times the two that ending takes.
    within(Duration::from_secs(40), "the end of the ranks", || {
        pids(&list).iter().all(|&pid| !alive(pid))
    });
    signal(driver, "-CONT");
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 125);
}
