//! A worker script in a directory of its own, and `herd launch` with it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use herd_testing::{alive, eventually, pids};
use nix::sys::signal::SIGTERM;
use nix::unistd::Pid;
use tempfile::TempDir;

/// A program with nothing of the tester's surroundings.
pub(crate) fn program(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    herd_testing::surroundings::remove(&mut command);
    command
}

/// A directory with a worker script.
pub(crate) struct Launch {
    pub(crate) directory: TempDir,
}

impl Launch {
    pub(crate) fn new(script: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("worker");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `herd launch FLAGS --no-python worker ARGS` in the directory.
    pub(crate) fn command(&self, flags: &[&str], args: &[&str]) -> Command {
        let mut command = program(env!("CARGO_BIN_EXE_herd"));
        command
            .arg("launch")
            .args(flags)
            .args(["--no-python", "./worker"])
            .args(args)
            .env("TMPDIR", self.directory.path())
            .env("OMP_NUM_THREADS", "1")
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, flags: &[&str]) -> Output {
        self.command(flags, &[]).output().unwrap()
    }

    pub(crate) fn start(&self, flags: &[&str]) -> Child {
        self.command(flags, &[])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    pub(crate) fn pids(&self, name: &str) -> Vec<i32> {
        pids(&self.path(name))
    }
}

pub(crate) fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub(crate) fn assert_status(output: &Output, code: i32) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "{}{}",
        out(output),
        err(output)
    );
}

pub(crate) fn pid(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

pub(crate) fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// All files below a directory, relative to it.
pub(crate) fn files(root: &Path) -> Vec<String> {
    fn walk(root: &Path, at: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(at).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(root, &path, found);
            } else {
                found.push(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
    let mut found = Vec::new();
    walk(root, root, &mut found);
    found.sort();
    found
}

/// Sends SIGTERM again and again until the launcher has ended. Not three times in a row: the kernel
/// keeps one of several that have not been taken yet.
pub(crate) fn end_by_repeating(launcher: i32) {
    eventually("the end of the launcher", || {
        if alive(launcher) {
            let _gone = nix::sys::signal::kill(Pid::from_raw(launcher), SIGTERM);
        }
        !alive(launcher)
    });
}

/// Keeps all processors busy until it is dropped.
pub(crate) struct Load(Vec<Child>);

/// The load of the tests that run now.
static LOAD: Mutex<Weak<Load>> = Mutex::new(Weak::new());

impl Load {
    /// Two busy processes for each processor. Tests side by side have the same ones: where there are many processors
    /// and so many tests at once, each one's own would be more than any deadline allows for.
    pub(crate) fn start() -> Arc<Self> {
        let mut shared = LOAD.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let processors = std::thread::available_parallelism().map_or(2, usize::from);
            let load = Arc::new(Self((0..processors * 2).map(|_| busy()).collect()));
            *shared = Arc::downgrade(&load);
            load
        })
    }
}

/// A busy process, no longer than this one lives.
fn busy() -> Child {
    let script = "while kill -0 $0 2>/dev/null; do i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; done";
    let own = std::process::id().to_string();
    let mut command = Command::new("sh");
    command.args(["-c", script, &own]).spawn().unwrap()
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
