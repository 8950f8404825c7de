//! `herd launch` beside torchrun, mpirun and a program that only starts and reaps: each figure in the
//! same run, in turns, with its bound.
//!
//! Two figures are differences or ratios within a round, which a busy machine disturbs less.

mod death;
mod memory;
pub(crate) mod start;
mod tee;
pub(crate) mod worker;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::table::{Row, markdown};

/// Rounds of what takes seconds each.
const SLOW_RUNS: usize = 3;

/// The launchers that are compared.
pub(crate) struct Launchers {
    herd: PathBuf,
    torchrun: PathBuf,
}

impl Launchers {
    /// `herd launch` with so many workers, each of which is the program that follows.
    fn herd(&self, workers: u32) -> Command {
        let mut command = Command::new(&self.herd);
        command.arg("launch");
        torchruns(&mut command, workers);
        command
    }

    /// The same of torchrun.
    fn torchrun(&self, workers: u32) -> Command {
        let mut command = Command::new(&self.torchrun);
        torchruns(&mut command, workers);
        command
    }
}

fn torchruns(command: &mut Command, workers: u32) {
    command
        .arg(format!("--nproc-per-node={workers}"))
        .env("OMP_NUM_THREADS", "1");
}

fn mpirun(workers: u32) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n"]);
    command.arg(workers.to_string());
    command
}

fn row(what: impl Into<String>, unit: &'static str) -> Row {
    Row {
        what: what.into(),
        unit,
        samples: Vec::new(),
    }
}

/// Measures everything but the store.
pub(crate) fn run(herd: &Path, runs: usize) -> Result<String> {
    let python = std::env::var_os("HERD_LAB_TORCH_PYTHON");
    let python = python.context("set HERD_LAB_TORCH_PYTHON: eval \"$(lab/env)\"")?;
    let launchers = Launchers {
        herd: herd.to_owned(),
        torchrun: Path::new(&python).with_file_name("torchrun"),
    };
    let mut rows = start::measure(&launchers, runs)?;
    rows.extend(memory::measure(&launchers, runs.min(SLOW_RUNS))?);
    rows.extend(death::measure(&launchers, runs)?);
    rows.extend(tee::measure(&launchers, runs.min(SLOW_RUNS))?);
    Ok(markdown(&rows))
}
