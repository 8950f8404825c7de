//! How long it takes to start workers that end at once, and to see them end.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::{Launchers, mpirun, row};
use crate::bench::{finish, on_path};
use crate::table::Row;

const WORKER: &str = "/bin/true";
/// torchrun takes seconds each time.
const TORCHRUN_RUNS: usize = 3;

pub(super) fn measure(launchers: &Launchers, runs: usize) -> Result<Vec<Row>> {
    let has_mpirun = on_path("mpirun");
    let mut herd2 = row("`herd launch`, 2 × `/bin/true`", "ms");
    let mut mpi2 = row("peer: `mpirun -n 2 /bin/true`", "ms");
    let mut ratio = row("herd's by mpirun's in the same round; bound 25", "%");
    let mut torch2 = row("peer: `torchrun`, 2 × `/bin/true`", "ms");
    let mut herd64 = row("`herd launch`, 64 × `/bin/true`", "ms");
    let mut bare64 = row(
        "peer: a program that starts and reaps 64 × `/bin/true`",
        "ms",
    );
    let mut over = row("herd's above that in the same round; bound 20", "ms");
    let mut torch64 = row("peer: `torchrun`, 64 × `/bin/true`", "ms");
    // One round more than asked for: the first fills the page cache and is thrown away.
    for round in 0..=runs {
        let herd_two = timed(launchers.herd(2).args(["--no-python", WORKER]))?;
        let mpi_two = if has_mpirun {
            Some(timed(mpirun(2).arg(WORKER))?)
        } else {
            None
        };
        let herd_many = timed(launchers.herd(64).args(["--no-python", WORKER]))?;
        let bare_many = bare(64)?;
        if round > 0 {
            herd2.samples.push(herd_two);
            mpi2.samples.extend(mpi_two);
            ratio
                .samples
                .extend(mpi_two.map(|mpi| 100.0 * herd_two / mpi));
            herd64.samples.push(herd_many);
            bare64.samples.push(bare_many);
            over.samples.push(herd_many - bare_many);
        }
        if (1..=TORCHRUN_RUNS).contains(&round) {
            torch2
                .samples
                .push(timed(launchers.torchrun(2).args(["--no-python", WORKER]))?);
            torch64
                .samples
                .push(timed(launchers.torchrun(64).args(["--no-python", WORKER]))?);
        }
    }
    Ok(vec![
        herd2, mpi2, ratio, torch2, herd64, bare64, over, torch64,
    ])
}

fn timed(command: &mut Command) -> Result<f64> {
    command.stdout(Stdio::null());
    let begin = Instant::now();
    finish(command)?;
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

/// The floor: a program of its own, as the launchers are, that does nothing else.
fn bare(workers: u32) -> Result<f64> {
    let own = std::env::current_exe().context("find this program")?;
    timed(Command::new(own).args(["bare-launch", &workers.to_string()]))
}

/// What [`bare`] starts.
pub(crate) fn start_and_reap(workers: u32) -> Result<()> {
    let mut all = Vec::new();
    for _ in 0..workers {
        let child = Command::new(WORKER).stdin(Stdio::null()).spawn();
        all.push(child.context("start a worker")?);
    }
    for mut child in all {
        ensure!(child.wait()?.success(), "{WORKER} failed");
    }
    Ok(())
}
