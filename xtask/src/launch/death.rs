//! What passes between the death of a worker and the request to its peers to end, and the end of the
//! launcher, when the peers end at once.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::{Launchers, row, worker};
use crate::table::Row;

const WORKERS: u32 = 4;
/// torchrun takes seconds each time.
const TORCHRUN_RUNS: usize = 3;

pub(super) fn measure(launchers: &Launchers, runs: usize) -> Result<Vec<Row>> {
    let mut rows = [
        row(
            "`herd launch`, death of 1 of 4 workers → last peer signalled; bound 2",
            "ms",
        ),
        row(
            "`herd launch`, the same → exit of the launcher; bound 10",
            "ms",
        ),
        row(
            "peer: `torchrun`, death of 1 of 4 workers → last peer signalled",
            "ms",
        ),
        row("peer: `torchrun`, the same → exit of the launcher", "ms"),
    ];
    for round in 0..runs {
        let mut of = |launcher: Command, first: usize| -> Result<()> {
            let (signalled, exited) = once(launcher)?;
            rows[first].samples.push(signalled);
            rows[first + 1].samples.push(exited);
            Ok(())
        };
        of(launchers.herd(WORKERS), 0)?;
        if round < TORCHRUN_RUNS {
            of(launchers.torchrun(WORKERS), 2)?;
        }
    }
    Ok(rows.into())
}

/// Milliseconds to the signal and to the exit.
fn once(mut launcher: Command) -> Result<(f64, f64)> {
    let directory = tempfile::tempdir().context("make a directory for the workers")?;
    let own = std::env::current_exe().context("find this program")?;
    let status = launcher
        .arg("--no-python")
        .arg(own)
        .arg("launch-worker")
        .arg(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("run a launcher")?;
    let exited = worker::now()?;
    ensure!(status.code() == Some(1), "a launcher ended with {status}");
    let died = time(directory.path(), "died-0")?;
    let mut asked = died;
    for rank in 1..WORKERS {
        asked = asked.max(time(directory.path(), &format!("asked-{rank}"))?);
    }
    Ok((milliseconds(died, asked), milliseconds(died, exited)))
}

fn time(directory: &Path, name: &str) -> Result<u64> {
    let text = fs::read_to_string(directory.join(name)).with_context(|| format!("read {name}"))?;
    text.parse().with_context(|| format!("read {name}"))
}

fn milliseconds(from: u64, to: u64) -> f64 {
    let micro = u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX);
    f64::from(micro) / 1e3
}
