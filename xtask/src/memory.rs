//! Memory of the executor while its rank sleeps, from `/proc`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::table::Row;

/// Long enough to read `/proc`, short enough to wait for.
const JOB: &str = "echo ready; exec sleep 2";

/// Resident memory of all `herd-node` processes of a one-node job: everything mapped in, and the
/// private part that no other process shares.
pub(crate) fn measure(herd: &Path, runs: usize) -> Result<Vec<Row>> {
    let row = |what: &str| Row { what: what.to_owned(), unit: "MB", samples: Vec::new() };
    let mut resident = row("`herd-node`, one node, resident memory (VmRSS)");
    let mut private = row("`herd-node`, one node, private memory (RssAnon)");
    for _ in 0..runs {
        let (all, anonymous) = run_once(herd)?;
        resident.samples.push(all);
        private.samples.push(anonymous);
    }
    Ok(vec![resident, private])
}

fn run_once(herd: &Path) -> Result<(f64, f64)> {
    let home = tempfile::tempdir().context("make a home for one run")?;
    let mut child = Command::new(herd)
        .args(["run", "--", "sh", "-c", JOB])
        .env("HERD_HOME", home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("start herd run")?;
    let output = child.stdout.take().context("output of herd run")?;
    // The rank's first line says that the executor has done its work and only waits. No line
    // means that the run has ended, so this read is bounded by the job.
    let mut output = BufReader::new(output);
    let mut first = String::new();
    output.read_line(&mut first).context("wait for the rank's first line")?;
    let figures = executor_memory(child.id());
    // Read to the end, so that herd never writes into a closed pipe.
    std::io::copy(&mut output, &mut std::io::sink()).context("read the rest")?;
    let status = child.wait().context("wait for herd run")?;
    ensure!(status.success(), "herd run of a sleep ended with {status}");
    figures
}

/// Sums over the descendants of `ancestor` that are `herd-node`, in megabytes.
fn executor_memory(ancestor: u32) -> Result<(f64, f64)> {
    let nodes: Vec<u32> = descendants(ancestor)?
        .into_iter()
        .filter(|pid| {
            fs::read_link(format!("/proc/{pid}/exe"))
                .is_ok_and(|program| program.file_name().is_some_and(|name| name == "herd-node"))
        })
        .collect();
    ensure!(!nodes.is_empty(), "no herd-node below process {ancestor}");
    let mut sums = (0.0, 0.0);
    for pid in nodes {
        sums.0 += megabytes(pid, "VmRSS:")?;
        sums.1 += megabytes(pid, "RssAnon:")?;
    }
    Ok(sums)
}

fn megabytes(pid: u32, field: &str) -> Result<f64> {
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

/// All processes below one, found by their parents.
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
        found.extend(parents.iter().filter(|pair| pair.1 == parent).map(|pair| pair.0));
        next += 1;
    }
    Ok(found)
}

/// The parent in a line of `/proc/PID/stat`: the second field after the name, which stands in
/// parentheses and may hold any character.
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
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
