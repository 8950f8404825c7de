//! Memory of herd's processes while a rank sleeps, from `/proc`.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::bench::on_path;
use crate::table::Row;

/// Long enough to read `/proc`, short enough to wait for.
const JOB: &str = "echo ready; exec sleep 2";

/// Resident memory while one rank sleeps on one node: the executor, which is what a node of a
/// cluster carries, then the command and its coordinator, then the peer.
pub(crate) fn measure(herd: &Path, runs: usize) -> Result<Vec<Row>> {
    let row = |what: &str| Row {
        what: what.to_owned(),
        unit: "MB",
        samples: Vec::new(),
    };
    let mut executor = row("resident memory of `herd-node`, one node");
    let mut command = row("resident memory of `herd run` with its coordinator, one node");
    let mut peer = row("peer: resident memory of `mpirun`, one node");
    let has_mpirun = on_path("mpirun");
    for _ in 0..runs {
        let home = tempfile::tempdir().context("make a home for one run")?;
        let mut run = Command::new(herd);
        run.arg("run").arg("--").env("HERD_HOME", home.path());
        let found = sample(run)?;
        executor.samples.push(sum(&found, &["herd-node"])?);
        command.samples.push(sum(&found, &["herd"])?);
        if has_mpirun {
            let mut mpirun = Command::new("mpirun");
            mpirun.args(["--allow-run-as-root", "-n", "1"]);
            peer.samples
                .push(sum(&sample(mpirun)?, &["mpirun", "orterun", "prterun"])?);
        }
    }
    Ok(vec![executor, command, peer])
}

/// Starts the job with a launcher, and takes the memory of the launcher and all below it, by the
/// name of the program.
fn sample(mut launcher: Command) -> Result<Vec<(String, f64)>> {
    let mut child = launcher
        .args(["sh", "-c", JOB])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("start {}", launcher.get_program().display()))?;
    let output = child.stdout.take().context("output of the launcher")?;
    // The rank's first line says that the launcher has done its work and only waits. No line
    // means that the job has ended, so this read is bounded by the job.
    let mut output = BufReader::new(output);
    let mut first = String::new();
    output
        .read_line(&mut first)
        .context("wait for the rank's first line")?;
    let found = memory_below(child.id());
    // Read to the end, so that the launcher never writes into a closed pipe.
    io::copy(&mut output, &mut io::sink()).context("read the rest")?;
    let status = child.wait().context("wait for the launcher")?;
    ensure!(status.success(), "a job that sleeps ended with {status}");
    found
}

/// Megabytes of the programs of these names.
pub(crate) fn sum(found: &[(String, f64)], names: &[&str]) -> Result<f64> {
    let of_name: Vec<f64> = found
        .iter()
        .filter(|(name, _)| names.contains(&name.as_str()))
        .map(|&(_, megabytes)| megabytes)
        .collect();
    ensure!(!of_name.is_empty(), "no process of {}", names.join(", "));
    Ok(of_name.iter().sum())
}

/// Program and resident memory of a process and of all below it.
pub(crate) fn memory_below(ancestor: u32) -> Result<Vec<(String, f64)>> {
    let mut found = Vec::new();
    for pid in descendants(ancestor)? {
        let program = fs::read_link(format!("/proc/{pid}/exe"))
            .with_context(|| format!("read the program of process {pid}"))?;
        let name = program.file_name().unwrap_or_default();
        found.push((
            name.to_string_lossy().into_owned(),
            megabytes(pid, "VmRSS:")?,
        ));
    }
    Ok(found)
}

/// Megabytes of a field of `/proc/PID/status`.
pub(crate) fn megabytes(pid: u32, field: &str) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let kibibytes: u32 = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next())
        .with_context(|| format!("{path} has no {field}"))?
        .parse()
        .with_context(|| format!("number after {field} in {path}"))?;
    Ok(f64::from(kibibytes) * 1024.0 / 1e6)
}

/// A process and all below it, found by their parents.
fn descendants(ancestor: u32) -> Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").context("list /proc")? {
        let name = entry.context("list /proc")?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end while it is looked at: then it is not counted.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some(parent) = parent_in(&stat) {
            parents.push((pid, parent));
        }
    }
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(
            parents
                .iter()
                .filter(|pair| pair.1 == parent)
                .map(|pair| pair.0),
        );
        next += 1;
    }
    Ok(found)
}

/// The parent in a line of `/proc/PID/stat`: the second field after the name, which stands in
/// parentheses and may hold any character.
pub(crate) fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_is_found_behind_any_name() {
        assert_eq!(parent_in("12 (a) b) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in(""), None);
    }
}
