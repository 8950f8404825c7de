//! How many lines a second are shown of four busy workers, and whether they are whole.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::{Launchers, row};
use crate::table::Row;

const WORKERS: u32 = 4;
const LINES: u32 = 1_000_000;
const LINE_BYTES: usize = 64;

pub(super) fn measure(launchers: &Launchers, runs: usize) -> Result<Vec<Row>> {
    let directory = tempfile::tempdir().context("make a directory for the lines")?;
    let lines = directory.path().join("lines");
    write_lines(&lines)?;
    let what = format!("`--tee 3` into a file, {WORKERS} × {LINES} lines of {LINE_BYTES} bytes");
    let mut herd = row(format!("`herd launch {what}"), "lines/s");
    let mut torchrun = row(format!("peer: `torchrun {what}"), "lines/s");
    let mut ratio = row("herd's by torchrun's in the same round; bound 500", "%");
    let all = WORKERS * LINES;
    let mut least = all;
    for _ in 0..runs {
        let (ours, whole) = once(launchers.herd(WORKERS), &lines)?;
        ensure!(whole == all, "{whole} of {all} lines of herd are whole");
        let (theirs, whole) = once(launchers.torchrun(WORKERS), &lines)?;
        least = least.min(whole);
        herd.samples.push(ours);
        torchrun.samples.push(theirs);
        ratio.samples.push(100.0 * ours / theirs);
    }
    torchrun.what = format!(
        "{}; {least} of {all} whole, once and in order",
        torchrun.what
    );
    Ok(vec![herd, torchrun, ratio])
}

fn write_lines(path: &Path) -> Result<()> {
    let mut text = Vec::new();
    for number in 0..LINES {
        writeln!(text, "{number:0width$}", width = LINE_BYTES - 1)?;
    }
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Lines a second by the time of the whole launcher, and how many of them are whole.
fn once(mut launcher: Command, lines: &Path) -> Result<(f64, u32)> {
    let directory = tempfile::tempdir().context("make a directory for one run")?;
    let shown = directory.path().join("shown");
    let begin = Instant::now();
    let status = launcher
        .args(["--tee=3", "--no-python", "cat"])
        .arg(lines)
        .env("TMPDIR", directory.path())
        .stdin(Stdio::null())
        .stdout(File::create(&shown).context("make a file for the output")?)
        .stderr(Stdio::null())
        .status()
        .context("run a launcher")?;
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(status.success(), "a launcher ended with {status}");
    Ok((f64::from(WORKERS * LINES) / seconds, whole(&shown)?))
}

/// How many lines are the next one of their worker.
fn whole(shown: &Path) -> Result<u32> {
    let mut next = [0; WORKERS as usize];
    let mut found = 0;
    let mut reader = BufReader::new(File::open(shown).context("open the output")?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader
            .read_until(b'\n', &mut line)
            .context("read the output")?
            == 0
        {
            return Ok(found);
        }
        if let Some((rank, number)) = parse(&line) {
            if let Some(next) = next.get_mut(rank) {
                found += u32::from(*next == number);
                *next = number + 1;
            }
        }
    }
}

fn parse(line: &[u8]) -> Option<(usize, u32)> {
    let text = std::str::from_utf8(line).ok()?;
    let text = text.strip_prefix("[default")?.strip_suffix('\n')?;
    let (rank, number) = text.split_once("]:")?;
    (number.len() == LINE_BYTES - 1).then_some(())?;
    Some((rank.parse().ok()?, number.parse().ok()?))
}
