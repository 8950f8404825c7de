//! herd on a real Slurm beside `sbatch` and `srun` of the same command, on a cluster of `lab/slurm`.

mod idle;
mod lab;
pub(crate) mod poll;
mod times;

use std::path::Path;

use anyhow::{Context as _, Result};

use self::lab::Lab;
use crate::table::{Row, markdown};

/// Rounds of measurements that are alike each time.
const FEW: usize = 3;

/// Measures on a cluster of its own; the table.
pub(crate) fn run(herd: &Path, runs: usize) -> Result<String> {
    let home = tempfile::tempdir().context("make a home for the jobs")?;
    let lab = Lab::up()?;
    let mut rows = times::measure(&lab, herd, home.path(), runs)?;
    rows.extend(idle::memory(&lab, herd, home.path(), runs.min(FEW))?);
    rows.extend(idle::calls(&lab, herd, home.path())?);
    rows.extend(poll::measure(&lab, runs.min(FEW))?);
    Ok(markdown(&rows))
}

fn row(what: &str, unit: &'static str) -> Row {
    Row {
        what: what.to_owned(),
        unit,
        samples: Vec::new(),
    }
}
