//! The processes of workers as `/proc` shows them: state, processor time, and what they wait in.
//! One that has just ended is left out.

use std::fs;

use rustix::process::Pid;
use serde::Serialize;

use crate::tree;

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
    pid: u32,
    parent: u32,
    program: String,
    state: char,
    cpu_ms: u64,
}

/// All processes at one moment.
#[derive(Debug)]
pub(super) struct Look {
    entries: Vec<Entry>,
}

impl Look {
    pub(super) fn now() -> Self {
        let entries = tree::stats().filter_map(|(pid, stat)| parse(pid.unsigned_abs(), &stat));
        Self {
            entries: entries.collect(),
        }
    }

    /// A process and those below it, each after its parent.
    fn with_below(&self, pid: u32) -> Vec<&Entry> {
        let Some(top) = self.entries.iter().find(|entry| entry.pid == pid) else {
            return Vec::new();
        };
        let number = |pid: u32| pid.cast_signed();
        let family = |entry: &&Entry| (number(entry.pid), number(entry.parent));
        let root = Pid::from_raw(number(pid));
        let mut found = vec![top];
        found.extend(tree::below(root.as_slice(), self.entries.iter(), family));
        found
    }

    /// Processor time of a process and those below it, and of their children that they waited for.
    pub(super) fn cpu_ms(&self, pid: u32) -> u64 {
        self.with_below(pid).iter().map(|entry| entry.cpu_ms).sum()
    }

    /// A process and those below it, at most so many.
    pub(super) fn tree(&self, pid: u32, most: usize) -> Vec<Process> {
        let some = self.with_below(pid).into_iter().take(most);
        some.map(|entry| Process {
            pid: entry.pid,
            program: entry.program.clone(),
            state: entry.state,
            wait_channel: wait_channel(entry.pid),
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
fn parse(pid: u32, stat: &[u8]) -> Option<Entry> {
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
        pid,
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
        let entry = parse(12, line).unwrap();
        assert_eq!(
            (entry.parent, entry.program.as_str(), entry.state),
            (7, "a b) c", 'S')
        );
        assert_eq!(entry.cpu_ms, 260);
        assert!(parse(12, b"12 (a").is_none() && parse(12, b"").is_none());
    }

    #[test]
    fn this_process_runs_and_has_itself_in_its_tree() {
        let own = std::process::id();
        let tree = Look::now().tree(own, 1);
        assert_eq!((tree.len(), tree[0].pid), (1, own));
    }
}
