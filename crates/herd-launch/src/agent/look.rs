//! The processes of workers as `/proc` shows them: state, processor time, and what they wait in.
//! One that has just ended is left out.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

/// Milliseconds in a tick of the processor times in `/proc` (proc(5): a hundredth of a second for
/// programs, whatever the kernel's own clock).
const TICK_MS: u64 = 10;

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Name of its program, at most 15 bytes.
    pub program: String,
    /// The kernel's letter: R runs, S waits, D waits uninterruptibly, T is stopped, Z has ended.
    pub state: char,
    /// The function of the kernel it waits in; `-` where it runs or that is hidden.
    pub wait_channel: String,
}

#[derive(Clone, Debug)]
struct Entry {
    parent: u32,
    program: String,
    state: char,
    cpu_ms: u64,
}

/// All processes at one moment.
#[derive(Debug)]
pub(super) struct Look {
    entries: BTreeMap<u32, Entry>,
}

impl Look {
    pub(super) fn now() -> Self {
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let entries = pids.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read(entry.path().join("stat")).ok()?;
            Some((pid, parse(&stat)?))
        });
        Self {
            entries: entries.collect(),
        }
    }

    /// A process and those below it, each after its parent.
    fn ids(&self, pid: u32) -> Vec<u32> {
        let mut found: Vec<u32> = self
            .entries
            .contains_key(&pid)
            .then_some(pid)
            .into_iter()
            .collect();
        let mut next = 0;
        // A process has one parent, so nobody is found twice.
        while let Some(&parent) = found.get(next) {
            let below = self
                .entries
                .iter()
                .filter(|(id, entry)| entry.parent == parent && **id != parent);
            found.extend(below.map(|(id, _)| *id));
            next += 1;
        }
        found
    }

    /// Processor time of a process and those below it, and of their children that they waited for.
    pub(super) fn cpu_ms(&self, pid: u32) -> u64 {
        let ids = self.ids(pid);
        ids.iter()
            .filter_map(|id| self.entries.get(id))
            .map(|entry| entry.cpu_ms)
            .sum()
    }

    /// A process and those below it, at most so many.
    pub(super) fn tree(&self, pid: u32, most: usize) -> Vec<Process> {
        let ids = self.ids(pid);
        let some = ids.iter().take(most);
        some.filter_map(|id| {
            let entry = self.entries.get(id)?;
            Some(Process {
                pid: *id,
                program: entry.program.clone(),
                state: entry.state,
                wait_channel: wait_channel(*id),
            })
        })
        .collect()
    }
}

fn wait_channel(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    match text.trim() {
        "" | "0" => "-".to_owned(),
        known => known.to_owned(),
    }
}

/// The name in parentheses may itself hold spaces and parentheses: fields count from the last one.
fn parse(stat: &[u8]) -> Option<Entry> {
    let text = String::from_utf8_lossy(stat);
    let (before, after) = text.rsplit_once(')')?;
    let program = before
        .split_once('(')?
        .1
        .chars()
        .map(herd_core::text::visible);
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // After state and parent: utime, stime, cutime and cstime are fields 14 to 17 of the line.
    let ticks = (11..15).filter_map(number).sum::<u64>();
    Some(Entry {
        parent: fields.get(1)?.parse().ok()?,
        program: program.collect(),
        state: fields.first()?.chars().next()?,
        cpu_ms: ticks.saturating_mul(TICK_MS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_stat_is_read_behind_any_name() {
        let line = b"12 (a b) c) S 7 12 12 0 -1 0 0 0 0 0 5 6 7 8 20 0";
        let entry = parse(line).unwrap();
        assert_eq!(
            (entry.parent, entry.program.as_str(), entry.state),
            (7, "a b) c", 'S')
        );
        assert_eq!(entry.cpu_ms, 260);
        assert!(parse(b"12 (a").is_none() && parse(b"").is_none());
    }

    #[test]
    fn this_process_runs_and_has_itself_in_its_tree() {
        let own = std::process::id();
        let tree = Look::now().tree(own, 1);
        assert_eq!((tree.len(), tree[0].pid), (1, own));
    }
}
