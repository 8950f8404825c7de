//! The poll of 5,000 jobs that wait: processor time of herd's own part, Slurm's command not counted.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use herd_backends::slurm::cluster::Cluster;
use herd_backends::slurm::observe::{Asked, observe};
use herd_backends::slurm::record::Record;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use super::lab::{Lab, text};
use super::row;
use crate::table::Row;

const JOBS: usize = 5000;

pub(super) fn measure(lab: &Lab, runs: usize) -> Result<Vec<Row>> {
    let numbers = submit(lab)?;
    let file = tempfile::NamedTempFile::new().context("make a file for numbers")?;
    fs::write(file.path(), &numbers).context("write the numbers of the jobs")?;
    let mut cpu = row(
        "a poll of 5000 jobs, herd's own processor time; bound 60",
        "ms",
    );
    let mut whole = row("the same, until the answer is read", "ms");
    let mut peer = row("peer: `squeue` of the same jobs, its processor time", "ms");
    let mut peer_whole = row("peer: `squeue` of the same jobs, until it ends", "ms");
    let own = std::env::current_exe().context("find this program")?;
    for _ in 0..runs {
        let said = text(lab.command(&own).arg("slurm-poll").arg(file.path()))?;
        let (used, took) = said.trim().split_once(' ').context("two times expected")?;
        cpu.samples.push(used.parse().context("read a time")?);
        whole.samples.push(took.parse().context("read a time")?);
        let (used, took) = timed(lab.command("squeue").args(["-h", "-o", "%i %T %r"]))?;
        peer.samples.push(used);
        peer_whole.samples.push(took);
    }
    lab.ask("scancel", &["--user=root"])?;
    Ok(vec![cpu, whole, peer, peer_whole])
}

/// Hands over jobs that are held, so that all stay in the queue; their numbers.
fn submit(lab: &Lab) -> Result<String> {
    let script = format!(
        "for i in $(seq {JOBS}); do sbatch --parsable --hold --output=/dev/null --wrap true || exit; done"
    );
    text(lab.command("sh").args(["-c", &script]))
}

/// Asks once about the jobs whose numbers the file has; processor time and time, milliseconds.
pub(crate) fn poll(file: &Path) -> Result<String> {
    let numbers = fs::read_to_string(file).context("read the numbers of the jobs")?;
    let asked: Vec<Asked> = numbers
        .split_whitespace()
        .map(|number| {
            Ok(Asked::job(Record {
                job: number.parse()?,
                cluster: None,
                submitted_ms: 0,
                staged_to: None,
                parts: Vec::new(),
            }))
        })
        .collect::<Result<_>>()?;
    let (before, begun) = (used(UsageWho::RUSAGE_SELF)?, Instant::now());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the event loop")?;
    let views = runtime.block_on(observe(&Cluster::default(), &asked))?;
    let took = begun.elapsed();
    let used = used(UsageWho::RUSAGE_SELF)?.saturating_sub(before);
    ensure!(
        views.len() == JOBS,
        "Slurm knows {} of {JOBS} jobs",
        views.len()
    );
    Ok(format!("{} {}\n", milliseconds(used), milliseconds(took)))
}

/// User and system time.
fn used(who: UsageWho) -> Result<Duration> {
    let usage = getrusage(who).context("ask for processor time")?;
    let time = usage.user_time() + usage.system_time();
    let micro = u64::try_from(time.num_microseconds()).context("negative processor time")?;
    Ok(Duration::from_micros(micro))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Processor time and time of a command, milliseconds.
fn timed(command: &mut Command) -> Result<(f64, f64)> {
    let (before, begun) = (used(UsageWho::RUSAGE_CHILDREN)?, Instant::now());
    let status = command.stdout(Stdio::null()).status();
    ensure!(status.context("run a command")?.success(), "it failed");
    let took = begun.elapsed();
    let used = used(UsageWho::RUSAGE_CHILDREN)?.saturating_sub(before);
    Ok((milliseconds(used), milliseconds(took)))
}
