//! Shared by the tests that run the built binary: a home of its own for each.

#![allow(
    dead_code,
    unused_imports,
    clippy::allow_attributes,
    reason = "each test binary uses its own part, some use all"
)]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

pub(crate) use herd_testing::{alive, children, eventually, pids, signal};
use tempfile::TempDir;

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
        herd_testing::surroundings::remove(&mut command);
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

    /// herd as the last arguments of another program, which sets its surroundings.
    pub(crate) fn under(&self, wrapper: &[&str], args: &[&str]) -> Command {
        let plain = self.command(args);
        let mut command = Command::new(wrapper[0]);
        herd_testing::surroundings::copy(&plain, &mut command);
        command
            .args(&wrapper[1..])
            .arg(plain.get_program())
            .args(plain.get_args())
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    /// Starts herd with the signals of a terminal as its user has them, also where the tests run under
    /// nohup or in the background of a script.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.under(&["env", "--default-signal=HUP,INT,QUIT"], args)
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

    /// The directory of the home's only job.
    pub(crate) fn job_dir(&self) -> PathBuf {
        let mut jobs = fs::read_dir(self.path("home/jobs")).unwrap();
        jobs.next().unwrap().unwrap().path()
    }

    /// The events of the first attempt of the home's only job.
    pub(crate) fn events(&self) -> String {
        fs::read_to_string(self.job_dir().join("attempts/1/events.jsonl")).unwrap_or_default()
    }

    /// The address on which the coordinator of the home's only job listens.
    pub(crate) fn coordinator(&self) -> SocketAddr {
        let path = self.job_dir().join("attempts/1/driver.json");
        let text = fs::read_to_string(path).unwrap();
        let (_, rest) = text.split_once("\"address\":\"").unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
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

pub(crate) fn pid_of(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}
