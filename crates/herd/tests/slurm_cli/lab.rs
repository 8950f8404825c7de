//! A real Slurm, up as long as this test program runs, and `herd` beside it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// Bound on what a cluster does, on a machine that is loaded.
pub(crate) const DEADLINE: Duration = Duration::from_mins(3);

/// The cluster of most tests.
static LAB: OnceLock<Lab> = OnceLock::new();
/// Jobs of one test would be what keeps those of another waiting.
static TURN: Mutex<()> = Mutex::new(());

/// A cluster. It goes down when the process that looks after it has lost its standard input, so also when
/// this one is killed.
pub(crate) struct Lab {
    directory: PathBuf,
    _keeper: Mutex<std::process::Child>,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/slurm")
}

impl Lab {
    /// Brings one up with these options of `lab/slurm up`.
    pub(crate) fn up(options: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("hs").tempdir_in("/run");
        let directory = directory.unwrap().keep();
        let keeper = Command::new("sh")
            .args(["-c", "read -r _; \"$0\" --dir \"$1\" down; rm -rf \"$1\""])
            .arg(script())
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lab = Self {
            directory,
            _keeper: Mutex::new(keeper),
        };
        let up = Command::new(script())
            .arg("--dir")
            .arg(&lab.directory)
            .arg("up")
            .args(options)
            .output()
            .unwrap();
        assert!(
            up.status.success(),
            "{}",
            String::from_utf8_lossy(&up.stderr)
        );
        lab
    }

    /// A command as from a shell of the cluster: the variables that `lab/slurm env` sets.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let shell = Command::new(script())
            .arg("--dir")
            .arg(&self.directory)
            .arg("env")
            .output()
            .unwrap();
        assert!(shell.status.success());
        let mut command = Command::new("bash");
        command
            .args(["-c", "eval \"$0\"; exec \"$@\""])
            .arg(String::from_utf8(shell.stdout).unwrap())
            .arg(program);
        for name in [
            "NO_COLOR",
            "COLUMNS",
            "SLURM_JOB_ID",
            "HERD_JOB_ID",
            "HERD_CONFIG",
        ] {
            command.env_remove(name);
        }
        command.env("TZ", "UTC");
        command
    }

    /// One of Slurm's own commands; what it printed, on either stream.
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        let output = self.command(words[0]).args(&words[1..]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        said
    }
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A test's turn on the cluster, with a home and a directory of its own.
pub(crate) struct Bench<'a> {
    pub(crate) lab: &'a Lab,
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
    pub(crate) fn on(lab: Option<&'a Lab>) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            lab: lab.unwrap_or_else(|| LAB.get_or_init(|| Lab::up(&[]))),
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
            .stdin(Stdio::null());
        command
    }

    /// Runs it.
    pub(crate) fn ask(&self, args: &[&str]) -> Answer {
        let output = self.herd().args(args).output().unwrap();
        Answer {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
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
