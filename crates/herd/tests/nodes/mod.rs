//! Launchers of several nodes on this machine, each on its own in a network namespace where asked.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared by several test programs; helpers of tests fail the test"
)]

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use herd_testing::{children, pids, signal, within};
use tempfile::TempDir;

/// Bound on what one launcher does, on a machine that is loaded.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

/// Numbers the tests of this process.
static NEXT: AtomicU16 = AtomicU16::new(1);

/// Workers that run a script, and a place to meet that no other test uses.
pub(crate) struct Nodes {
    directory: TempDir,
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Nodes {
    /// Each worker runs this text of the shell, in the directory of the test.
    pub(crate) fn new(script: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("worker");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        // Linux has the whole of 127/8 on loopback.
        let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let process = std::process::id() % 200 + 20;
        let host = format!("127.{process}.{high}.{}", low + 1);
        let free = TcpListener::bind((host.as_str(), 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        Self {
            directory,
            host,
            port,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Lets workers go on that wait for this file.
    pub(crate) fn touch(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    /// The process ids that workers have written into a file.
    pub(crate) fn pids(&self, name: &str) -> Vec<i32> {
        pids(&self.path(name))
    }

    /// The lines of a file, sorted; none where it is absent. The last may be half written.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }

    /// The flags of one node of two that are numbered.
    pub(crate) fn fixed(&self, rank: usize) -> Vec<String> {
        vec![
            "--nnodes=2".into(),
            format!("--node-rank={rank}"),
            format!("--master-addr={}", self.host),
            format!("--master-port={}", self.port),
        ]
    }

    /// The flags of one node among so many (`2`, `1:2`) that come as they like.
    pub(crate) fn c10d(&self, nodes: &str) -> Vec<String> {
        vec![
            format!("--nnodes={nodes}"),
            "--rdzv-backend=c10d".into(),
            format!("--rdzv-endpoint={}:{}", self.host, self.port),
            "--rdzv-id=job".into(),
        ]
    }

    /// `herd launch FLAGS --no-python ./worker`, in the directory of the test.
    pub(crate) fn command(&self, flags: &[String], more: &[&str]) -> Command {
        self.command_in(None, flags, more)
    }

    /// The same in the network namespace of a process.
    pub(crate) fn command_in(
        &self,
        namespace: Option<&Namespace>,
        flags: &[String],
        more: &[&str],
    ) -> Command {
        let mut command = self.herd_in(namespace);
        command
            .arg("launch")
            .args(flags)
            .args(more)
            .args(["--no-python", "./worker"]);
        command
    }

    /// `herd`, with nothing of the tester's surroundings.
    pub(crate) fn herd_in(&self, namespace: Option<&Namespace>) -> Command {
        let herd = env!("CARGO_BIN_EXE_herd");
        let mut command = match namespace {
            None => Command::new(herd),
            Some(namespace) => namespace.command(herd),
        };
        command
            .env("TMPDIR", self.directory.path())
            .env("OMP_NUM_THREADS", "1")
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        herd_testing::surroundings::remove(&mut command);
        command
    }

    /// Starts a command whose output is kept under a name.
    pub(crate) fn start(&self, name: &str, command: &mut Command) -> Node {
        let (out, err) = (
            self.path(&format!("{name}.out")),
            self.path(&format!("{name}.err")),
        );
        let child = command
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap();
        Node {
            name: name.to_owned(),
            child,
            out,
            err,
        }
    }

    /// Starts two nodes with two workers each, which have these flags besides.
    pub(crate) fn two(&self, flags: impl Fn(usize) -> Vec<String>, more: &[&str]) -> [Node; 2] {
        [0, 1].map(|rank| {
            let more = [&["--nproc-per-node=2"], more].concat();
            let mut command = self.command(&flags(rank), &more);
            self.start(&format!("node{rank}"), &mut command)
        })
    }
}

/// One launcher. Killed where the test ends before it does.
pub(crate) struct Node {
    name: String,
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Node {
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// The launcher proper, which the process that was started guards; none before it has forked.
    pub(crate) fn inner(&self) -> Vec<i32> {
        children(self.pid())
    }

    /// Kills the launcher proper, so that nobody says goodbye to the other nodes.
    pub(crate) fn kill_inner(&self) {
        for pid in self.inner() {
            signal(pid, "-KILL");
        }
    }

    pub(crate) fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.err).unwrap()).into_owned()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until its standard error has a text.
    #[track_caller]
    pub(crate) fn says(&self, text: &str) {
        let what = format!("{} says {text:?}", self.name);
        within(DEADLINE, &what, || self.err().contains(text));
    }

    /// Waits for its end, and returns its code.
    #[track_caller]
    pub(crate) fn code(&mut self) -> Option<i32> {
        let mut status = None;
        within(DEADLINE, &format!("{} ends", self.name), || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().code()
    }

    /// Waits for its end with this code.
    #[track_caller]
    pub(crate) fn ends(&mut self, code: i32) {
        let found = self.code();
        let (name, out, err) = (&self.name, self.out(), self.err());
        assert_eq!(found, Some(code), "{name}: {out}{err}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What several nodes printed, sorted.
pub(crate) fn printed(nodes: &[Node]) -> Vec<String> {
    let text: String = nodes.iter().map(Node::out).collect();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// A network namespace that lasts as long as this.
pub(crate) struct Namespace {
    holder: Child,
}

impl Namespace {
    fn new() -> Self {
        let holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo there; exec sleep 3600"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut this = Self { holder };
        // It says so once it is in its namespace.
        let mut line = String::new();
        let stdout = this.holder.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        assert_eq!(
            line, "there\n",
            "a network namespace needs root, like lab/netns"
        );
        this
    }

    /// Two of them, joined by a cable: 10.77.0.1 and 10.77.0.2, the second with 10.77.0.9 besides.
    pub(crate) fn pair() -> [Self; 2] {
        let [first, second] = [Self::new(), Self::new()];
        let peer = second.holder.id().to_string();
        first.ip(&[
            "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", &peer,
        ]);
        first.ip(&["address", "add", "10.77.0.1/24", "dev", "eth0"]);
        second.ip(&["address", "add", "10.77.0.2/24", "dev", "eth0"]);
        second.ip(&["address", "add", "10.77.0.9/24", "dev", "eth0"]);
        for namespace in [&first, &second] {
            namespace.ip(&["link", "set", "lo", "up"]);
            namespace.ip(&["link", "set", "eth0", "up"]);
        }
        [first, second]
    }

    /// `ip` in it.
    pub(crate) fn ip(&self, arguments: &[&str]) {
        let status = self.command("ip").args(arguments).status().unwrap();
        assert!(status.success(), "ip {arguments:?}");
    }

    /// A command in it.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["-t", &self.holder.id().to_string(), "-n", "--"])
            .arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}

/// A file as JSON, once it is complete.
#[track_caller]
pub(crate) fn json(path: &Path) -> serde_json::Value {
    let mut value = None;
    within(DEADLINE, &format!("{} is complete", path.display()), || {
        let bytes = fs::read(path).unwrap_or_default();
        value = serde_json::from_slice(&bytes).ok();
        value.is_some()
    });
    value.unwrap()
}
