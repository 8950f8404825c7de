//! Shared by the tests that run the built binary: a home of its own for each, waiting for
//! conditions with a deadline, and looking at processes.

#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary uses its own part, some use all"
)]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Bound on anything that should take well under a second.
const DEADLINE: Duration = Duration::from_mins(1);

/// A home of its own for each test.
pub(crate) struct Herd {
    directory: TempDir,
}

impl Herd {
    pub(crate) fn new() -> Self {
        Self {
            directory: TempDir::new().unwrap(),
        }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_herd"));
        command
            .args(args)
            .env("HERD_HOME", self.path("home"))
            .env("HERD_LEASE_DIR", self.path("leases"))
            .env("NO_COLOR", "1")
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Starts herd with SIGHUP as a terminal's user has it, also where the tests run under nohup.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        let plain = self.command(args);
        let variables = plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        Command::new("env")
            .arg("--default-signal=HUP")
            .arg(plain.get_program())
            .args(plain.get_args())
            .envs(variables)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts on the exit code and shows what was said where it differs.
#[track_caller]
pub(crate) fn assert_code(output: &Output, code: i32) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "{}\n{}",
        stdout(output),
        stderr(output)
    );
}

/// Waits for a condition; says which one did not come true.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "{what} did not come true within {DEADLINE:?}"
        );
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Process ids that were written to a file, one a line.
pub(crate) fn pids(path: &Path) -> Vec<i32> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect()
}

/// State letter and parent of a process.
fn stat(pid: i32) -> Option<(String, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit(')').next()?.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Whether a process lives: zombies do not count.
pub(crate) fn alive(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// Process ids of the children of `parent`.
pub(crate) fn children(parent: i32) -> Vec<i32> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&pid| stat(pid).is_some_and(|(state, ppid)| ppid == parent && state != "Z"))
        .collect()
}

pub(crate) fn signal(pid: i32, name: &str) {
    assert!(
        Command::new("kill")
            .args([name, &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

pub(crate) fn pid_of(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}
