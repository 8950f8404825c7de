//! How long handing a job over takes, and a job of a moment on all nodes.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::lab::{Lab, NODES, text};
use super::row;
use crate::table::Row;

/// The job; to herd it is given as words, to Slurm in a script.
const JOB: &str = "#!/bin/sh\nsrun true\n";

/// Rounds of herd and of Slurm's own commands, which take turns at being first. Where Slurm is to give the
/// job a login environment (`--export=NONE`), it starts a login shell ahead of it.
pub(super) fn measure(lab: &Lab, herd: &Path, home: &Path, runs: usize) -> Result<Vec<Row>> {
    let mut rows = [
        row(
            "`herd submit -b slurm -N 3 -- true`, until it returns",
            "ms",
        ),
        row(
            "peer: `sbatch`, the same with `srun true`, until it returns",
            "ms",
        ),
        row("herd's above that in the same round; bound 30", "ms"),
        row(
            "the job of `herd submit`, from its nodes' first prolog to their last epilog",
            "ms",
        ),
        row("peer: the job of `sbatch`, the same", "ms"),
        row("herd's above that in the same round; bound 60", "ms"),
        row(
            "peer: the job of `sbatch --export=NONE`, as herd's is",
            "ms",
        ),
        row("herd's above that in the same round", "ms"),
    ];
    let script = home.join("job.sh");
    fs::write(&script, JOB).context("write a batch script")?;
    // One round more than asked for: the first fills the page cache and is thrown away.
    for round in 0..=runs {
        let (mut ours, mut plain, mut same) = ((0.0, 0.0), (0.0, 0.0), (0.0, 0.0));
        for turn in 0..3 {
            match (round + turn) % 3 {
                0 => ours = of_herd(lab, herd, home)?,
                1 => plain = of_slurm(lab, &script, "ALL")?,
                _ => same = of_slurm(lab, &script, "NONE")?,
            }
        }
        if round > 0 {
            let samples = [
                ours.0,
                plain.0,
                ours.0 - plain.0,
                ours.1,
                plain.1,
                ours.1 - plain.1,
                same.1,
                ours.1 - same.1,
            ];
            for (row, sample) in rows.iter_mut().zip(samples) {
                row.samples.push(sample);
            }
        }
    }
    Ok(rows.into())
}

/// Milliseconds until the command returned, and those of the job.
fn of_herd(lab: &Lab, herd: &Path, home: &Path) -> Result<(f64, f64)> {
    lab.quiet()?;
    let nodes = NODES.to_string();
    let mut submit = lab.command(herd);
    submit
        .args(["submit", "-b", "slurm", "-N", &nodes, "--", "true"])
        .env("HERD_HOME", home);
    let begun = Instant::now();
    let id = text(&mut submit)?;
    let returned = begun.elapsed().as_secs_f64() * 1e3;
    let took = lab.took(number(home, id.trim())?)?;
    let mut wait = lab.command(herd);
    text(wait.args(["wait", id.trim()]).env("HERD_HOME", home))?;
    Ok((returned, milliseconds(took)))
}

fn of_slurm(lab: &Lab, script: &Path, export: &str) -> Result<(f64, f64)> {
    lab.quiet()?;
    let nodes = format!("--nodes={NODES}");
    let mut sbatch = lab.command("sbatch");
    sbatch
        .args([
            "--parsable",
            "--ntasks-per-node=1",
            "--output=/dev/null",
            &format!("--export={export}"),
            &nodes,
        ])
        .arg(script);
    let begun = Instant::now();
    let job = text(&mut sbatch)?;
    let returned = begun.elapsed().as_secs_f64() * 1e3;
    let took = lab.took(job.trim().parse().context("read sbatch's job")?)?;
    Ok((returned, milliseconds(took)))
}

/// Slurm's number of a job of herd's.
pub(super) fn number(home: &Path, id: &str) -> Result<u32> {
    let file = home.join("jobs").join(id).join("slurm.json");
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let number = text
        .split_once("\"job\":")
        .map(|(_, rest)| rest.trim_start())
        .and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    number
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("no number in {text:?}"))
}

fn milliseconds(nanoseconds: u64) -> f64 {
    let micro = u32::try_from(nanoseconds / 1000).unwrap_or(u32::MAX);
    f64::from(micro) / 1e3
}
