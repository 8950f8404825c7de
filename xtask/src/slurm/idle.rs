//! A job that only sleeps: the memory of its executors, and what Slurm is asked meanwhile.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::lab::{Lab, NODES, pause, text};
use super::row;
use crate::table::Row;

/// Bound on the start of a job, on a machine that is loaded.
const DEADLINE: Duration = Duration::from_mins(2);
/// `herd run` asks the less often the longer it waits; by then the interval is the longest.
const SETTLED: Duration = Duration::from_secs(62);
/// What the controller counts calls by that no user makes.
const OWN_CALLS: [&str; 3] = [
    "MESSAGE_NODE_REGISTRATION_STATUS",
    "REQUEST_STATS_INFO",
    "REQUEST_CONTROL_STATUS",
];

/// `herd run` of a job that sleeps on all nodes, until it is dropped.
struct Sleeper<'a> {
    lab: &'a Lab,
    herd: &'a Path,
    home: &'a Path,
    run: Child,
    /// How long its ranks would sleep, as no other program does.
    seconds: String,
}

impl<'a> Sleeper<'a> {
    fn start(lab: &'a Lab, herd: &'a Path, home: &'a Path) -> Result<Self> {
        lab.quiet()?;
        let nodes = NODES.to_string();
        let seconds = format!("1{}", std::process::id());
        let run = lab
            .command(herd)
            .args(["run", "-b", "slurm", "-N", &nodes, "--", "sleep", &seconds])
            .env("HERD_HOME", home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start herd run")?;
        Ok(Self {
            lab,
            herd,
            home,
            run,
            seconds,
        })
    }

    /// Waits until the job's ranks sleep.
    fn ranks(&self) -> Result<()> {
        let started = Instant::now();
        while running("sleep", &self.seconds)?.len() != NODES as usize {
            ensure!(started.elapsed() < DEADLINE, "the ranks do not sleep");
            pause(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The executors of the job.
    fn executors(&self) -> Result<Vec<u32>> {
        let mut list = self.lab.command(self.herd);
        list.args(["status", "last", "-o", "json"]);
        let status = text(list.env("HERD_HOME", self.home))?;
        let id = status.split_once("\"id\"").map(|(_, rest)| rest);
        let id = id.and_then(|rest| rest.split('"').nth(1));
        let found = running(
            "herd-node",
            &format!("--job {}", id.context("no id in status")?),
        )?;
        ensure!(found.len() == NODES as usize, "{} executors", found.len());
        Ok(found)
    }

    fn end(mut self) -> Result<()> {
        let mut cancel = self.lab.command(self.herd);
        cancel.args(["cancel", "--grace", "0s", "last"]);
        text(cancel.env("HERD_HOME", self.home))?;
        self.run.wait().context("wait for herd run")?;
        Ok(())
    }
}

/// Resident memory of the executor of a node, beside that of Slurm's own process for the same step.
pub(super) fn memory(lab: &Lab, herd: &Path, home: &Path, runs: usize) -> Result<Vec<Row>> {
    let mut executors = row("resident memory of a node's executor; bound 5", "MB");
    let mut peers = row(
        "peer: resident memory of Slurm's `slurmstepd` above it",
        "MB",
    );
    for _ in 0..runs {
        let sleeper = Sleeper::start(lab, herd, home)?;
        // Each rank runs when its executor has done all but wait.
        sleeper.ranks()?;
        for executor in sleeper.executors()? {
            executors.samples.push(megabytes(executor)?);
            peers.samples.push(megabytes(parent(executor)?)?);
        }
        sleeper.end()?;
    }
    Ok(vec![executors, peers])
}

/// What the controller is asked in a minute in which a job runs and `herd run` waits for it.
pub(super) fn calls(lab: &Lab, herd: &Path, home: &Path) -> Result<Vec<Row>> {
    let sleeper = Sleeper::start(lab, herd, home)?;
    sleeper.ranks()?;
    pause(SETTLED);
    lab.ask("sdiag", &["--reset"])?;
    pause(Duration::from_mins(1));
    let said = lab.ask("sdiag", &[])?;
    sleeper.end()?;
    let mut all = row(
        "calls of Slurm's controller in a minute of `herd run` of a job that sleeps; polls are 30 s apart",
        "calls",
    );
    all.samples.push(f64::from(count(&said)));
    Ok(vec![all])
}

/// Calls by their kinds, the controller's own aside.
fn count(sdiag: &str) -> u32 {
    let kinds = sdiag
        .lines()
        .skip_while(|line| !line.contains("statistics by message type"))
        .skip(1)
        .take_while(|line| !line.contains("statistics by user"));
    kinds
        .filter(|line| !OWN_CALLS.iter().any(|own| line.contains(own)))
        .filter_map(|line| line.split_once("count:")?.1.split_whitespace().next())
        .filter_map(|count| count.parse::<u32>().ok())
        .sum()
}

/// Processes of this machine of this program whose arguments contain this.
fn running(program: &str, arguments: &str) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("list /proc")? {
        let name = entry.context("list /proc")?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end while it is looked at.
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let (first, rest) = line.split_once(' ').unwrap_or_default();
        if Path::new(first).ends_with(program) && rest.contains(arguments) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Resident memory of a process.
fn megabytes(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let kibibytes: u32 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .with_context(|| format!("{path} has no memory"))?
        .parse()
        .with_context(|| format!("read the memory in {path}"))?;
    Ok(f64::from(kibibytes) * 1024.0 / 1e6)
}

fn parent(pid: u32) -> Result<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("read a process")?;
    crate::memory::parent_in(&stat).context("no parent in /proc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_users_are_counted() {
        let text = "Remote Procedure Call statistics by message type\n\
                    \tREQUEST_JOB_INFO    ( 2003) count:2      ave_time:1 total_time:2\n\
                    \tMESSAGE_NODE_REGISTRATION_STATUS ( 1002) count:9 ave_time:1\n\
                    Remote Procedure Call statistics by user\n\troot ( 0) count:11 ave_time:1\n";
        assert_eq!(count(text), 2);
        assert_eq!(count(""), 0);
    }
}
