//! Runs every measurement, each beside its peer, and gathers the report.
//!
//! A time is the wall-clock time of a whole process, from before it is started until it was
//! reaped. Samples of herd and of its peers alternate, so that a busy moment of the machine falls
//! on both.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::table::{Row, markdown};
use crate::{arrays, launch, memory, slurm, store, throughput};

/// Runs of measurements that take seconds each.
const SLOW_RUNS: usize = 3;

/// Builds the programs, measures, and returns the table.
pub(crate) fn run(runs: usize) -> Result<String> {
    for (peer, from) in [("mpirun", "lab/mpi"), ("git", "apt-get")] {
        if !on_path(peer) {
            note(&format!(
                "{peer} is not on PATH and has no rows ({from} installs it)"
            ))?;
        }
    }
    let herd = build()?;
    note(&format!("measures, {runs} runs; this takes some minutes"))?;
    let mut rows = start_times(&herd, runs)?;
    rows.extend(memory::measure(&herd, runs.min(SLOW_RUNS))?);
    rows.extend(throughput::measure(&herd, runs.min(SLOW_RUNS))?);
    let arrays = arrays::measure(&herd, runs.min(SLOW_RUNS))?;
    Ok(format!("{}\n{arrays}", markdown(&rows)))
}

/// Says something on standard error, beside the report.
fn note(text: &str) -> Result<()> {
    writeln!(io::stderr(), "xtask: {text}").context("write to standard error")
}

/// Builds the programs and measures `herd launch` and the store it serves.
pub(crate) fn launch(runs: usize) -> Result<String> {
    let launch = launch::run(&build()?, runs)?;
    let store = store::run(runs.min(SLOW_RUNS))?;
    Ok(format!("{launch}\n{store}"))
}

/// Builds the programs and measures jobs on Slurm.
pub(crate) fn slurm(runs: usize) -> Result<String> {
    slurm::run(&build()?, runs)
}

/// Builds the programs and measures arrays only.
pub(crate) fn arrays_alone(runs: usize) -> Result<String> {
    arrays::measure(&build()?, runs.min(SLOW_RUNS))
}

/// Builds `herd` and `herd-node` as they are released; the path of `herd`, beside which
/// `herd-node` lies.
fn build() -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(cargo);
    command
        .args([
            "build",
            "--quiet",
            "--release",
            "--package",
            "herd",
            "--package",
            "herd-node",
        ])
        .current_dir(&root)
        .stdout(Stdio::null());
    finish(&mut command)?;
    // This program is a release build of the same workspace: its neighbours are the programs.
    let own = env::current_exe().context("find the directory of the built programs")?;
    let herd = own.with_file_name("herd");
    if !herd.is_file() || !own.with_file_name("herd-node").is_file() {
        bail!(
            "no herd and herd-node beside {}: start with `cargo xtask`",
            own.display()
        );
    }
    Ok(herd)
}

/// A command line to time.
struct Timed<'a> {
    what: &'static str,
    program: &'a OsStr,
    arguments: &'static [&'static str],
    is_herd: bool,
}

fn start_times(herd: &Path, runs: usize) -> Result<Vec<Row>> {
    let of_herd = |what, arguments| Timed {
        what,
        program: herd.as_os_str(),
        arguments,
        is_herd: true,
    };
    let of_peer = |what, program: &'static str, arguments| Timed {
        what,
        program: OsStr::new(program),
        arguments,
        is_herd: false,
    };
    let mut all = vec![
        of_herd("`herd run -- true`", &["run", "--", "true"]),
        of_peer("peer: `sh -c true`", "sh", &["-c", "true"]),
    ];
    let mpirun_one: &[_] = &["--allow-run-as-root", "-n", "1", "true"];
    let mpirun_two: &[_] = &["--allow-run-as-root", "--oversubscribe", "-n", "2", "true"];
    let has_mpirun = on_path("mpirun");
    if has_mpirun {
        all.push(of_peer("peer: `mpirun -n 1 true`", "mpirun", mpirun_one));
    }
    all.push(of_herd(
        "`herd run -N 2 -- true`",
        &["run", "-N", "2", "--", "true"],
    ));
    if has_mpirun {
        all.push(of_peer("peer: `mpirun -n 2 true`", "mpirun", mpirun_two));
    }
    all.push(of_herd(
        "`herd submit -- true`, until it returns",
        &["submit", "--", "true"],
    ));
    all.push(of_herd("`herd --help`", &["--help"]));
    if on_path("git") {
        all.push(of_peer("peer: `git --help`", "git", &["--help"]));
    }

    let mut rows: Vec<Row> = all
        .iter()
        .map(|timed| Row {
            what: timed.what.to_owned(),
            unit: "ms",
            samples: Vec::new(),
        })
        .collect();
    // Kept until the end: a file system that has just deleted many files makes new ones slowly.
    let homes = tempfile::tempdir().context("make a directory for the homes")?;
    // One round more than asked for: the first fills the page cache and is thrown away.
    for round in 0..=runs {
        for (timed, row) in all.iter().zip(&mut rows) {
            let milliseconds = time_once(timed, homes.path())?;
            if round > 0 {
                row.samples.push(milliseconds);
            }
        }
    }
    Ok(rows)
}

fn time_once(timed: &Timed<'_>, homes: &Path) -> Result<f64> {
    let home = tempfile::tempdir_in(homes)
        .context("make a home for one run")?
        .keep();
    let mut command = Command::new(timed.program);
    command
        .args(timed.arguments)
        .env("HERD_HOME", &home)
        .stdout(Stdio::null());
    let begin = Instant::now();
    finish(&mut command)?;
    let elapsed = begin.elapsed();
    if timed.is_herd && timed.arguments.first() == Some(&"submit") {
        // The job must have ended before its home goes, and before anything else is timed.
        let mut wait = Command::new(timed.program);
        wait.args(["wait", "last"])
            .env("HERD_HOME", &home)
            .stdout(Stdio::null());
        finish(&mut wait)?;
    }
    Ok(elapsed.as_secs_f64() * 1000.0)
}

/// Runs a command to its end. What it writes to standard error is shown only if it fails.
pub(crate) fn finish(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("run {shown}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!(
            "{shown} ended with {}: {}",
            output.status,
            errors.trim_end()
        );
    }
    Ok(())
}

/// Whether a peer is installed; rows of an absent peer are left out.
pub(crate) fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
