//! Resident memory of a launcher, all its processes together, while its workers sleep.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::{Launchers, row};
use crate::memory::{memory_below, sum};
use crate::table::Row;

const WORKER: [&str; 4] = ["--no-python", "sh", "-c", "echo ready; exec sleep 3"];

pub(super) fn measure(launchers: &Launchers, runs: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (workers, bound) in [(4, 5), (64, 8)] {
        let mut herd = row(
            format!(
                "resident memory of `herd launch` with its guard, {workers} workers; bound {bound}"
            ),
            "MB",
        );
        let mut torchrun = row(
            format!("peer: resident memory of `torchrun`, {workers} workers"),
            "MB",
        );
        for _ in 0..runs {
            herd.samples
                .push(sample(launchers.herd(workers), workers, &["herd"])?);
            // A script of Python: the program is the interpreter.
            let python = launchers.torchrun.with_file_name("python3");
            let python = std::fs::canonicalize(python).context("find torchrun's interpreter")?;
            let name = python
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            torchrun
                .samples
                .push(sample(launchers.torchrun(workers), workers, &[&name])?);
        }
        rows.extend([herd, torchrun]);
    }
    Ok(rows)
}

fn sample(mut launcher: Command, workers: u32, names: &[&str]) -> Result<f64> {
    let mut child = launcher
        .args(WORKER)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("start a launcher")?;
    let output = child.stdout.take().context("output of the launcher")?;
    let mut lines = BufReader::new(output).lines();
    // Bounded by the workers' own end.
    for _ in 0..workers {
        let line = lines.next().context("the launcher ended too early")?;
        line.context("read what a worker says")?;
    }
    let found = memory_below(child.id());
    for line in lines {
        line.context("read the rest")?;
    }
    let status = child.wait().context("wait for the launcher")?;
    ensure!(status.success(), "workers that sleep ended with {status}");
    sum(&found?, names)
}
