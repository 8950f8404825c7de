//! How fast the output of several ranks is merged into one log, checked to be complete.

use std::fs::{self, File};
use std::io::Write as _;
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
        row("peer: `cat`, each rank into a file of its own, nothing merged".to_owned());
    let mut of_peer = row("peer: `mpirun -n 4 --tag-output`, into a file, the same".to_owned());
    let mut least = usize::MAX;
    let has_mpirun = on_path("mpirun");
    let directory = tempfile::tempdir().context("make a directory for what the ranks write")?;
    let lines = directory.path().join("lines");
    write_lines(&lines)?;
    for _ in 0..runs {
        of_herd.samples.push(megabytes / herd_once(herd, &lines)?);
        of_floor.samples.push(megabytes / floor_once(&lines)?);
        if has_mpirun {
            let (seconds, whole) = mpirun_once(&lines)?;
            of_peer.samples.push(megabytes / seconds);
            least = least.min(whole);
        }
    }
    let all = RANKS * LINES_PER_RANK;
    of_peer.what = format!("{}; {least} of {all} lines whole", of_peer.what);
    Ok(vec![of_herd, of_floor, of_peer])
}

/// Writes what each rank copies to its output: lines that tell their number, so that one that is
/// lost and one that is doubled cannot make up for each other.
fn write_lines(path: &Path) -> Result<()> {
    let mut text = Vec::with_capacity(LINES_PER_RANK * LINE_BYTES);
    for number in 0..LINES_PER_RANK {
        writeln!(text, "{number:0width$}", width = LINE_BYTES - 1)?;
    }
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Seconds one job took.
fn herd_once(herd: &Path, lines: &Path) -> Result<f64> {
    let directory = tempfile::tempdir().context("make a directory for one run")?;
    let home = directory.path().join("home");
    let job = directory.path().join("job.yaml");
    let text = format!(
        "type: pytorch\nprocs_per_node: {RANKS}\nrun: [cat, {}]\n",
        lines.display()
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
fn floor_once(lines: &Path) -> Result<f64> {
    let directory = tempfile::tempdir().context("make a directory for one run")?;
    let begin = Instant::now();
    let ranks: Vec<Child> = (0..RANKS)
        .map(|rank| {
            // Opened as herd opens it, since that decides how `cat` copies.
            let log = File::options()
                .append(true)
                .create(true)
                .open(directory.path().join(rank.to_string()))
                .context("make a log for a rank")?;
            Command::new("cat")
                .arg(lines)
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
fn mpirun_once(lines: &Path) -> Result<(f64, usize)> {
    let directory = tempfile::tempdir().context("make a directory for one run")?;
    let log = directory.path().join("log");
    let file = File::create(&log).context("make a log for mpirun")?;
    let ranks = RANKS.to_string();
    let mut command = Command::new("mpirun");
    command
        .args(["--allow-run-as-root", "--oversubscribe", "--tag-output"])
        .args(["-n", &ranks, "cat"])
        .arg(lines)
        .stdout(file);
    let begin = Instant::now();
    finish(&mut command)?;
    let seconds = begin.elapsed().as_secs_f64();
    let bytes = fs::read(&log).context("read the log of mpirun")?;
    Ok((seconds, whole_lines(&bytes)))
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

/// Every line of every rank must be there, whole, once and in its order.
fn check_complete(log: &Path) -> Result<()> {
    let bytes = fs::read(log).with_context(|| format!("read {}", log.display()))?;
    let mut next = [0_usize; RANKS];
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let (rank, number) = parse(line).with_context(|| {
            let shown = String::from_utf8_lossy(line);
            format!("{} has the line {shown:?}", log.display())
        })?;
        let expected = next.get_mut(rank).context("a rank that there is not")?;
        ensure!(
            number == *expected,
            "{}: rank {rank} has line {number} where {expected} belongs",
            log.display()
        );
        *expected += 1;
    }
    ensure!(
        next == [LINES_PER_RANK; RANKS],
        "{} has {next:?} lines of the ranks",
        log.display()
    );
    Ok(())
}

/// Rank and number of a whole line of herd's merged log.
fn parse(line: &[u8]) -> Option<(usize, usize)> {
    let text = std::str::from_utf8(line).ok()?;
    let (rank, number) = text
        .strip_prefix("(node0, rank=")?
        .strip_suffix('\n')?
        .split_once(") ")?;
    if number.len() != LINE_BYTES - 1 {
        return None;
    }
    Some((rank.parse().ok()?, number.parse().ok()?))
}

/// Counts the lines that end in a whole line as a rank wrote it, behind a mark that does not end in
/// a digit, so that two lines run together are not taken for one.
fn whole_lines(log: &[u8]) -> usize {
    log.split(|&byte| byte == b'\n')
        .filter(|line| {
            let Some(at) = line.len().checked_sub(LINE_BYTES - 1) else {
                return false;
            };
            let (mark, written) = line.split_at(at);
            written.iter().all(u8::is_ascii_digit)
                && mark.len() < LINE_BYTES - 1
                && !mark.last().is_some_and(u8::is_ascii_digit)
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_and_joined_lines_are_not_whole() {
        let whole = "0".repeat(LINE_BYTES - 1);
        let half = &whole[..LINE_BYTES / 2];
        let log = format!("(0) {whole}\n(1) {half}\n(2) {whole}(3) {whole}\n(4) 0{whole}\n{whole}");
        assert_eq!(whole_lines(log.as_bytes()), 2);
    }

    #[test]
    fn a_line_of_the_merged_log_has_its_rank_and_number() {
        let line = |number: &str| format!("(node0, rank=3) {number}\n").into_bytes();
        let whole = format!("{:0width$}", 17, width = LINE_BYTES - 1);
        assert_eq!(parse(&line(&whole)), Some((3, 17)));
        assert_eq!(parse(&line(&whole[1..])), None);
        assert_eq!(parse(&line(&format!("{whole}{whole}"))), None);
        assert_eq!(parse(b""), None);
    }
}
