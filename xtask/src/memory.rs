//! Memory of herd's processes while a rank sleeps, from `/proc`.

use std::collections::BTreeMap;
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

/// Starts the job with a launcher, and takes the memory of the launcher and all below it.
fn sample(mut launcher: Command) -> Result<Vec<Resident>> {
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

/// What one process has in memory, KiB.
#[derive(Debug)]
pub(crate) struct Resident {
    /// Name of its program.
    program: String,
    /// What no other process has.
    private: u32,
    /// What others have as well, by file and place in it: pages of a file that several have mapped, and
    /// what neither side of a fork has written since.
    shared: BTreeMap<String, u32>,
}

/// Megabytes of the programs of these names. What several of them share is in memory once, and counted
/// once.
pub(crate) fn sum(found: &[Resident], names: &[&str]) -> Result<f64> {
    let mut kibibytes = 0;
    let mut shared = BTreeMap::new();
    let mut any = false;
    for process in found {
        if names.contains(&process.program.as_str()) {
            any = true;
            kibibytes += process.private;
            for (place, &size) in &process.shared {
                let most = shared.entry(place).or_insert(0);
                *most = size.max(*most);
            }
        }
    }
    ensure!(any, "no process of {}", names.join(", "));
    kibibytes += shared.values().sum::<u32>();
    Ok(f64::from(kibibytes) * 1024.0 / 1e6)
}

/// Memory of a process and of all below it.
pub(crate) fn memory_below(ancestor: u32) -> Result<Vec<Resident>> {
    let of = |pid: u32| -> Result<Resident> {
        let program = fs::read_link(format!("/proc/{pid}/exe"))
            .with_context(|| format!("read the program of process {pid}"))?;
        let name = program.file_name().unwrap_or_default();
        let path = format!("/proc/{pid}/smaps");
        let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let (private, shared) = resident_in(&text);
        Ok(Resident {
            program: name.to_string_lossy().into_owned(),
            private,
            shared,
        })
    };
    descendants(ancestor)?.into_iter().map(of).collect()
}

/// Private and shared pages in `/proc/PID/smaps`, KiB: for each mapping a line with its addresses,
/// permissions, offset, device, inode and path, then lines of `Field: number kB`.
fn resident_in(smaps: &str) -> (u32, BTreeMap<String, u32>) {
    let mut private = 0;
    let mut shared = BTreeMap::<String, u32>::new();
    let mut place = String::new();
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        match first {
            "Private_Clean:" | "Private_Dirty:" => private += number(),
            "Shared_Clean:" | "Shared_Dirty:" => {
                *shared.entry(place.clone()).or_default() += number();
            }
            _ if first.ends_with(':') => {}
            // Without what differs between processes: the addresses.
            _ => place = words.collect::<Vec<_>>().join(" "),
        }
    }
    (private, shared)
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
    fn what_two_processes_share_counts_once() {
        let process = |addresses: &str, own: u32| {
            let smaps = format!(
                "{addresses} r-xp 00001000 08:01 77    /usr/bin/herd\nRss:  500 kB\nShared_Clean:  490 kB\n\
                 Private_Clean:  10 kB\n{addresses} rw-p 00000000 00:00 0    [heap]\nRss:  99 kB\n\
                 Shared_Dirty:  20 kB\nPrivate_Dirty:  {own} kB\nVmFlags: rd wr\n"
            );
            let (private, shared) = resident_in(&smaps);
            Resident {
                program: "herd".to_owned(),
                private,
                shared,
            }
        };
        let found = [process("55a0-55b0", 100), process("7fa0-7fb0", 30)];
        let megabytes = sum(&found, &["herd"]).unwrap();
        let kibibytes = 490.0 + 20.0 + 2.0 * 10.0 + 130.0;
        assert!(
            (megabytes - kibibytes * 1024.0 / 1e6).abs() < 1e-9,
            "{megabytes}"
        );
        assert!(sum(&found, &["mpirun"]).is_err());
    }

    #[test]
    fn parent_is_found_behind_any_name() {
        assert_eq!(parent_in("12 (a) b) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in(""), None);
    }
}
