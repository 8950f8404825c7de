//! How fast the output of several ranks is merged into the run log, checked to be complete.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::bench::finish;
use crate::table::Row;

const RANKS: usize = 4;
const LINES_PER_RANK: usize = 250_000;
/// With its newline.
const LINE_BYTES: usize = 100;

/// Megabytes the ranks wrote, prefixes not counted, per second of the whole `herd run`.
pub(crate) fn measure(herd: &Path, runs: usize) -> Result<Row> {
    let megabytes = f64::from(u32::try_from(RANKS * LINES_PER_RANK * LINE_BYTES)?) / 1e6;
    let samples = (0..runs)
        .map(|_| Ok(megabytes / run_once(herd)?))
        .collect::<Result<Vec<f64>>>()?;
    let what = format!("merged log, {RANKS} ranks × {LINES_PER_RANK} lines of {LINE_BYTES} bytes");
    Ok(Row { what, unit: "MB/s", samples })
}

/// Seconds one job took.
fn run_once(herd: &Path) -> Result<f64> {
    let directory = tempfile::tempdir().context("make a directory for one run")?;
    let home = directory.path().join("home");
    let job = directory.path().join("job.yaml");
    let line = "x".repeat(LINE_BYTES - 1);
    let text = format!(
        "type: pytorch\nprocs_per_node: {RANKS}\nrun: 'yes {line} | head -n {LINES_PER_RANK}'\n"
    );
    fs::write(&job, text).context("write the job file")?;

    let mut command = Command::new(herd);
    command.arg("run").arg(&job).env("HERD_HOME", &home).stdout(Stdio::null());
    let begin = Instant::now();
    finish(&mut command)?;
    let seconds = begin.elapsed().as_secs_f64();

    let log = only_run_log(&home)?;
    let lines = whole_lines(&log, line.as_bytes())?;
    ensure!(
        lines == RANKS * LINES_PER_RANK,
        "{} has {lines} whole lines of {}",
        log.display(),
        RANKS * LINES_PER_RANK
    );
    Ok(seconds)
}

fn only_run_log(home: &Path) -> Result<PathBuf> {
    let jobs = home.join("jobs");
    let mut found = Vec::new();
    for entry in fs::read_dir(&jobs).with_context(|| format!("list {}", jobs.display()))? {
        let log = entry.context("list the jobs")?.path().join("run.log");
        if log.is_file() {
            found.push(log);
        }
    }
    ensure!(found.len() == 1, "{} run logs in {}, not one", found.len(), jobs.display());
    found.pop().context("no run log")
}

/// Lines that end in what a rank wrote; a torn or mixed line is not counted.
fn whole_lines(log: &Path, written: &[u8]) -> Result<usize> {
    let mut bytes = Vec::new();
    File::open(log)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .with_context(|| format!("read {}", log.display()))?;
    Ok(bytes.split(|&byte| byte == b'\n').filter(|line| line.ends_with(written)).count())
}
