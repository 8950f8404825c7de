//! How many tasks of an array run per second, beside what runs as many processes without records.
//!
//! Every round measures all of them, and the ratio is that of one round: a busy machine slows them
//! together.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::bench::finish;
use crate::table::{Row, markdown};

const TASKS: usize = 5000;
const PROGRAM: &str = "/bin/true";

/// Tasks per second, and the ratio that the budget is about. Printed, not judged.
pub(crate) fn measure(herd: &Path, rounds: usize) -> Result<String> {
    let cores = std::thread::available_parallelism()?.get();
    let row = |what: String, unit| Row {
        what,
        unit,
        samples: Vec::new(),
    };
    let of_what = format!("{TASKS} × `{PROGRAM}`");
    let mut ours = row(
        format!("`herd run`, array of {of_what}, a log and a code each"),
        "tasks/s",
    );
    let mut xargs = row(
        format!("peer: `xargs -n1 -P{cores}`, {of_what}, no logs, no codes"),
        "tasks/s",
    );
    let mut ratio = row("`herd run` by `xargs` in the same round".to_owned(), "%");
    let mut our_cpu = row("processor time of a task of `herd run`".to_owned(), "µs");
    let mut xargs_cpu = row("peer: processor time of a task of `xargs`".to_owned(), "µs");
    let mut peer = row(
        format!("peer: HyperQueue 0.27, {of_what}, a log and a code each"),
        "tasks/s",
    );
    let python = hyperqueue();
    // Removed only after all rounds: ext4 does not use the number of a file again for minutes after it
    // was removed, and looks through all of those numbers for each file it makes meanwhile.
    let mut kept = Vec::new();
    for round in 0..rounds {
        let before = cpu_of_children()?;
        let of_xargs = rate(xargs_once(cores)?)?;
        let between = cpu_of_children()?;
        let of_herd = rate(herd_once(herd, &mut kept)?)?;
        let after = cpu_of_children()?;
        xargs_cpu.samples.push(1e6 / rate(between - before)?);
        our_cpu.samples.push(1e6 / rate(after - between)?);
        xargs.samples.push(of_xargs);
        ours.samples.push(of_herd);
        ratio.samples.push(100.0 * of_herd / of_xargs);
        // It is slow and steady: once tells enough.
        if let Some(python) = python.as_ref().filter(|_| round == 0) {
            peer.samples
                .push(rate(hyperqueue_once(python, cores, &mut kept)?)?);
        }
    }
    let mut text = markdown(&[ours, xargs, ratio, peer, our_cpu, xargs_cpu]);
    if python.is_none() {
        text.push_str("| peer: HyperQueue 0.27 | tasks/s | 0 | not measured | | |\n");
    }
    Ok(text)
}

fn rate(seconds: f64) -> Result<f64> {
    Ok(f64::from(u32::try_from(TASKS)?) / seconds)
}

/// Processor seconds of all processes that were reaped below this one.
fn cpu_of_children() -> Result<f64> {
    /// Of a second, for programs.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").context("read /proc/self/stat")?;
    // After the name, which ends in a bracket, `cutime` and `cstime` are the 14th and 15th.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let mut ticks = 0.0;
    for field in fields.split_whitespace().skip(13).take(2) {
        ticks += field.parse::<f64>().context("read /proc/self/stat")?;
    }
    Ok(ticks / TICKS)
}

/// Seconds of one array, of which everything must be there afterwards.
fn herd_once(herd: &Path, kept: &mut Vec<TempDir>) -> Result<f64> {
    let directory = tempfile::tempdir().context("make a directory for one run")?;
    let home = directory.path().join("home");
    let job = directory.path().join("job.yaml");
    let text = format!("array: 0-{}\nrun: [{PROGRAM}]\n", TASKS - 1);
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
    check_complete(&home)?;
    kept.push(directory);
    Ok(seconds)
}

fn check_complete(home: &Path) -> Result<()> {
    let jobs = home.join("jobs");
    let mut entries = fs::read_dir(&jobs).with_context(|| format!("list {}", jobs.display()))?;
    let job = entries.next().context("no job")??.path();
    let codes = fs::read_to_string(job.join("tasks.jsonl")).context("read the codes")?;
    ensure!(
        codes.lines().count() == TASKS,
        "{} codes, not {TASKS}",
        codes.lines().count()
    );
    let mut logs = 0;
    for group in fs::read_dir(job.join("tasks")).context("list the logs")? {
        logs += fs::read_dir(group?.path())?.count();
    }
    ensure!(logs == TASKS, "{logs} logs, not {TASKS}");
    Ok(())
}

fn xargs_once(cores: usize) -> Result<f64> {
    let script = format!("seq {TASKS} | xargs -n1 -P{cores} {PROGRAM}");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdout(Stdio::null());
    let begin = Instant::now();
    finish(&mut command)?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Seconds by HyperQueue's own client, start of its server not counted.
fn hyperqueue_once(python: &Path, cores: usize, kept: &mut Vec<TempDir>) -> Result<f64> {
    let directory = tempfile::tempdir().context("make a directory for one run")?;
    let output = Command::new(python)
        .arg(lab().join("hyperqueue-array.py"))
        .args([TASKS.to_string(), cores.to_string()])
        .env("HOME", directory.path())
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .context("run HyperQueue")?;
    kept.push(directory);
    ensure!(
        output.status.success(),
        "HyperQueue ended with {}",
        output.status
    );
    let text = String::from_utf8(output.stdout).context("read what HyperQueue printed")?;
    let last = text.lines().last().context("HyperQueue printed nothing")?;
    last.trim().parse().context("read HyperQueue's time")
}

/// The Python with HyperQueue, where it is there or can be had.
fn hyperqueue() -> Option<PathBuf> {
    finish(&mut Command::new(lab().join("hyperqueue"))).ok()?;
    let cache = std::env::var_os("HERD_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| {
        let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
        Some(base.or_else(home)?.join("herdsman"))
    })?;
    let python = cache.join("hyperqueue/bin/python");
    python.is_file().then_some(python)
}

fn lab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab")
}
