//! How fast the output of several ranks is merged into one log, checked to be complete.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::bench::{finish, on_path};
use crate::table::Row;

const RANKS: usize = 4;
const LINES_PER_RANK: usize = 1_000_000;
/// With its newline.
const LINE_BYTES: usize = 100;

/// Megabytes the ranks wrote, prefixes not counted, per second of the whole process.
pub(crate) fn measure(herd: &Path, runs: usize) -> Result<Vec<Row>> {
    let megabytes = f64::from(u32::try_from(RANKS * LINES_PER_RANK * LINE_BYTES)?) / 1e6;
    let row = |what: String| Row {
        what,
        unit: "MB/s",
        samples: Vec::new(),
    };
    let size = format!("{RANKS} ranks × {LINES_PER_RANK} lines of {LINE_BYTES} bytes");
    let mut of_herd = row(format!("`herd run`, merged `run.log`, {size}"));
    let mut of_floor =
        row("peer: `sh`, each rank into a file of its own, nothing merged".to_owned());
    let mut of_peer = row("peer: `mpirun -n 4 --tag-output`, into a file, the same".to_owned());
    let mut least = usize::MAX;
    let has_mpirun = on_path("mpirun");
    for _ in 0..runs {
        of_herd.samples.push(megabytes / herd_once(herd)?);
        of_floor.samples.push(megabytes / floor_once()?);
        if has_mpirun {
            let (seconds, lines) = mpirun_once()?;
            of_peer.samples.push(megabytes / seconds);
            least = least.min(lines);
        }
    }
    let all = RANKS * LINES_PER_RANK;
    of_peer.what = format!("{}; {least} of {all} lines whole", of_peer.what);
    Ok(vec![of_herd, of_floor, of_peer])
}

fn line() -> String {
    "x".repeat(LINE_BYTES - 1)
}

/// What each rank runs. `yes` ends by a broken pipe, which must not fail the rank.
fn script() -> String {
    format!("{{ yes {} || true; }} | head -n {LINES_PER_RANK}", line())
}

/// Seconds one job took.
fn herd_once(herd: &Path) -> Result<f64> {
    let directory = tempfile::tempdir().context("make a directory for one run")?;
    let home = directory.path().join("home");
    let job = directory.path().join("job.yaml");
    let text = format!(
        "type: pytorch\nprocs_per_node: {RANKS}\nrun: '{}'\n",
        script()
    );
    fs::write(&job, text).context("write the job file")?;

    let mut command = Command::new(herd);
    command
        .arg("run")
        .arg(&job)
        .env("HERD_HOME", &home)
        .stdout(Stdio::null());
    let begin = Instant::now();
    finish(&mut command)?;
    let seconds = begin.elapsed().as_secs_f64();
    check_complete(&only_run_log(&home)?)?;
    Ok(seconds)
}

/// Seconds the ranks need for themselves, all at once.
fn floor_once() -> Result<f64> {
    let directory = tempfile::tempdir().context("make a directory for one run")?;
    let begin = Instant::now();
    let ranks: Vec<Child> = (0..RANKS)
        .map(|rank| {
            let log = File::create(directory.path().join(rank.to_string()))
                .context("make a log for a rank")?;
            Command::new("sh")
                .args(["-c", &script()])
                .stdin(Stdio::null())
                .stdout(log)
                .stderr(Stdio::null())
                .spawn()
                .context("start a rank")
        })
        .collect::<Result<_>>()?;
    for mut rank in ranks {
        let status = rank.wait().context("wait for a rank")?;
        ensure!(status.success(), "a rank ended with {status}");
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// Seconds the peer took for the same lines, each marked with its rank, into a file, and how many
/// lines came out whole: the peer may mark in the middle of a line, which is told, not an error.
fn mpirun_once() -> Result<(f64, usize)> {
    let directory = tempfile::tempdir().context("make a directory for one run")?;
    let log = directory.path().join("log");
    let file = File::create(&log).context("make a log for mpirun")?;
    let ranks = RANKS.to_string();
    let script = script();
    let mut command = Command::new("mpirun");
    command
        .args(["--allow-run-as-root", "--oversubscribe", "--tag-output"])
        .args(["-n", &ranks, "sh", "-c", &script])
        .stdout(file);
    let begin = Instant::now();
    finish(&mut command)?;
    let seconds = begin.elapsed().as_secs_f64();
    let bytes = fs::read(&log).context("read the log of mpirun")?;
    Ok((seconds, whole_lines(&bytes, line().as_bytes())))
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
    ensure!(
        found.len() == 1,
        "{} run logs in {}, not one",
        found.len(),
        jobs.display()
    );
    found.pop().context("no run log")
}

fn check_complete(log: &Path) -> Result<()> {
    let bytes = fs::read(log).with_context(|| format!("read {}", log.display()))?;
    let lines = whole_lines(&bytes, line().as_bytes());
    ensure!(
        lines == RANKS * LINES_PER_RANK,
        "{} has {lines} whole lines, not {}",
        log.display(),
        RANKS * LINES_PER_RANK
    );
    Ok(())
}

/// Counts the lines that end in a whole line as a rank wrote it. The mark before it must be
/// shorter than such a line, so two lines run together are not taken for one.
fn whole_lines(log: &[u8], written: &[u8]) -> usize {
    log.split(|&byte| byte == b'\n')
        .filter(|line| {
            line.strip_suffix(written)
                .is_some_and(|mark| mark.len() < written.len())
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_and_joined_lines_are_not_whole() {
        let log = b"(0) xxxxxxxx\n(1) xxxx\n(2) xxxxxxxx(3) xxxxxxxx\nxxxxxxxx";
        assert_eq!(whole_lines(log, b"xxxxxxxx"), 2);
    }
}
