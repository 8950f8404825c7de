//! A real Slurm, up as long as this test program runs, and `herd` beside it.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use herd_testing::{Answer, SlurmLab};
use serde_json::Value;
use tempfile::TempDir;

/// Bound on what a cluster does, on a machine that is loaded.
pub(crate) const DEADLINE: Duration = Duration::from_mins(3);

/// The cluster of most tests.
static LAB: OnceLock<SlurmLab> = OnceLock::new();
/// Jobs of one test would be what keeps those of another waiting.
static TURN: Mutex<()> = Mutex::new(());

/// A test's turn on the cluster, with a home and a directory of its own.
pub(crate) struct Bench<'a> {
    pub(crate) lab: &'a SlurmLab,
    pub(crate) dir: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Bench<'static> {
    /// On the cluster that the tests share.
    pub(crate) fn new() -> Self {
        Self::on(None)
    }
}

impl<'a> Bench<'a> {
    /// On this cluster, or the one that the tests share.
    pub(crate) fn on(lab: Option<&'a SlurmLab>) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            lab: lab.unwrap_or_else(|| {
                LAB.get_or_init(|| SlurmLab::up(&["--conf", "PriorityType=priority/multifactor"]))
            }),
            dir: tempfile::Builder::new()
                .prefix("herd-cli-")
                .tempdir()
                .unwrap(),
            _turn: turn,
        }
    }

    /// `herd` in this test's directory and home.
    pub(crate) fn herd(&self) -> Command {
        let mut command = self.lab.command(env!("CARGO_BIN_EXE_herd"));
        command
            .current_dir(self.dir.path())
            .env("HERD_HOME", self.dir.path().join("home"))
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        command
    }

    /// Runs it.
    pub(crate) fn ask(&self, args: &[&str]) -> Answer {
        let output = self.herd().args(args).output().unwrap();
        output.into()
    }

    /// Runs it and reads its JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let answer = self.ask(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    }

    /// Hands a job over; its id. Login shells of the job read no files of whoever runs the tests.
    pub(crate) fn submit(&self, args: &[&str]) -> String {
        let home = format!("HOME={}", self.dir.path().display());
        let first = ["submit", "-b", "slurm", "--env", &home];
        let answer = self.ask(&[&first, args].concat());
        assert_eq!(answer.code, 0, "{answer:?}");
        answer.out.trim().to_owned()
    }

    /// Sets a limit of a `qos`, an `account` or a `user`.
    pub(crate) fn limit(&self, [kind, name]: [&str; 2], limit: &str) {
        let words = ["sacctmgr", "-i", "modify", kind, name, "set", limit];
        self.lab.ask(&words);
    }

    /// Writes a file into the directory.
    pub(crate) fn file(&self, name: &str, content: &str) {
        std::fs::write(self.dir.path().join(name), content).unwrap();
    }

    /// The state of a job.
    pub(crate) fn state(&self, job: &str) -> String {
        self.json(&["status", job])["state"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// The job's directory.
    pub(crate) fn job_dir(&self, job: &str) -> PathBuf {
        self.dir.path().join("home/jobs").join(job)
    }

    /// Slurm's number of a job.
    pub(crate) fn number(&self, job: &str) -> String {
        let text = std::fs::read_to_string(self.job_dir(job).join("slurm.json")).unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        record["job"].to_string()
    }
}
