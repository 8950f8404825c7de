//! The cluster, up for as long as the value lives.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::bench::finish;

/// Nodes of the cluster, and of the jobs on it.
pub(super) const NODES: u32 = 3;
/// Bound on what a job of a moment takes, on a machine that is loaded.
const DEADLINE: Duration = Duration::from_mins(2);
/// Between two looks at a file that another program writes.
const LOOK: Duration = Duration::from_millis(5);

/// Slurm runs it on each node at the beginning of a job and at its end.
const STAMP: &str = "#!/bin/sh\nprintf '%s\\n' \"$(date +%s%N)\" >>";

/// A cluster.
pub(super) struct Lab {
    directory: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

impl Lab {
    pub(super) fn up() -> Result<Self> {
        let directory = tempfile::tempdir().context("make a directory for the cluster")?;
        for stamp in ["begin", "end"] {
            let file = directory.path().join(stamp);
            let to = directory.path().join("times").display().to_string();
            let text = format!("{STAMP}{to}/$SLURM_JOB_ID.{stamp}.$SLURMD_NODENAME\n");
            fs::create_dir_all(&to).context("make a directory for times")?;
            fs::write(&file, text).context("write a prolog")?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))
                .context("make a prolog executable")?;
        }
        let mut lab = Self {
            directory,
            variables: Vec::new(),
        };
        let nodes = NODES.to_string();
        let conf = |key: &str, stamp: &str| format!("{key}={}", lab.path(stamp).display());
        let (prolog, epilog) = (conf("Prolog", "begin"), conf("Epilog", "end"));
        let mut up = lab.lab(["up", "--no-accounting", "--nodes", &nodes]);
        up.args(["--conf", &prolog, "--conf", &epilog]);
        up.args(["--conf", "MaxJobCount=20000"]);
        finish(up.stdout(Stdio::null()))?;
        let exports = text(&mut lab.lab(["env"]))?;
        let mut shell = Command::new("bash");
        let printed = text(shell.args(["-c", "eval \"$0\"; exec env -0", &exports]))?;
        lab.variables = printed
            .split('\0')
            .filter_map(|variable| variable.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Ok(lab)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn lab<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/slurm");
        let mut command = Command::new(script);
        // The lab's own directory is emptied, so what else is here is beside it.
        command.arg("--dir").arg(self.path("lab")).args(arguments);
        command
    }

    /// A command as from a shell of the cluster.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.variables.iter().cloned());
        command
    }

    /// What one of Slurm's commands prints.
    pub(super) fn ask(&self, program: &str, arguments: &[&str]) -> Result<String> {
        text(self.command(program).args(arguments))
    }

    /// Nanoseconds from the prolog of a job's first node to the epilog of its last.
    pub(super) fn took(&self, job: u32) -> Result<u64> {
        let began = self.times(job, "begin")?;
        let ended = self.times(job, "end")?;
        let began = began.iter().min().context("no prolog has run")?;
        let ended = ended.iter().max().context("no epilog has run")?;
        Ok(ended.saturating_sub(*began))
    }

    /// Waits until all nodes of a job have written.
    fn times(&self, job: u32, stamp: &str) -> Result<Vec<u64>> {
        let started = Instant::now();
        loop {
            let mut found = Vec::new();
            for node in 1..=NODES {
                let file = self.path("times").join(format!("{job}.{stamp}.node{node}"));
                let line = fs::read_to_string(file).unwrap_or_default();
                if let Some(line) = line.strip_suffix('\n') {
                    found.push(line.parse().with_context(|| format!("read {line:?}"))?);
                }
            }
            if found.len() == NODES as usize {
                return Ok(found);
            }
            ensure!(
                started.elapsed() < DEADLINE,
                "job {job} has not written the time of its {stamp} on all nodes"
            );
            pause(LOOK);
        }
    }

    /// Waits until nothing is in the queue and all nodes are free.
    pub(super) fn quiet(&self) -> Result<()> {
        let started = Instant::now();
        while !self.ask("squeue", &["-h"])?.is_empty()
            || self
                .ask("sinfo", &["-h", "-N", "-t", "idle"])?
                .lines()
                .count()
                != NODES as usize
        {
            if started.elapsed() > DEADLINE {
                bail!("the cluster is not free");
            }
            pause(LOOK);
        }
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Whoever looks at the machine finds what stayed.
        drop(finish(self.lab(["down"]).stdout(Stdio::null())));
    }
}

/// Lets time pass: what is waited for is announced by nobody.
#[expect(clippy::disallowed_methods, reason = "bounded by its callers")]
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// What a command prints.
pub(super) fn text(command: &mut Command) -> Result<String> {
    let shown = command.get_program().display().to_string();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("run {shown}"))?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{shown} failed: {}", errors.trim());
    String::from_utf8(output.stdout).with_context(|| format!("read what {shown} prints"))
}
