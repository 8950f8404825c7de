//! The tree of processes as `/proc` shows it, and ending what is left of it. The looking is free of
//! effects; [`end_all_children`] is for programs that are subreapers, never for a library's caller:
//! it ends and reaps children that it did not start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus};

/// Pause between looks while children are ending; there is no one descriptor for "any child".
const PAUSE: Duration = Duration::from_millis(3);

#[derive(Clone, Copy, Debug)]
struct Entry {
    pid: i32,
    parent: i32,
    group: i32,
    zombie: bool,
    stopped: bool,
}

/// Children of a process, zombies included; empty where there are none or it is gone.
pub fn children_of(pid: Pid) -> Vec<Pid> {
    let parent = pid.as_raw_nonzero().get();
    snapshot()
        .filter(|entry| entry.parent == parent)
        .filter_map(|e| Pid::from_raw(e.pid))
        .collect()
}

/// All descendants of a process, each after its parent, from one look at `/proc`. A process that
/// lost its parent is a descendant of whoever it was given to.
pub fn descendants(pid: Pid) -> Vec<Pid> {
    descendants_of(&[pid])
}

/// Those [`descendants`] that have neither ended nor been stopped.
pub fn running_descendants(pid: Pid) -> Vec<Pid> {
    let all = entries_below(&[pid]).into_iter();
    all.filter(|entry| !entry.zombie && !entry.stopped)
        .filter_map(|entry| Pid::from_raw(entry.pid))
        .collect()
}

/// All descendants of several processes, without these themselves, from one look at `/proc`.
pub fn descendants_of(pids: &[Pid]) -> Vec<Pid> {
    let all = entries_below(pids).into_iter();
    all.filter_map(|entry| Pid::from_raw(entry.pid)).collect()
}

/// Living processes whose environment, as they were started with it, has this entry (`NAME=value`).
pub fn with_environment(entry: &str) -> Vec<Pid> {
    let living = snapshot().filter(|entry| !entry.zombie);
    living
        .filter_map(|entry| Pid::from_raw(entry.pid))
        .filter(|&pid| environ_has(pid, entry))
        .collect()
}

fn entries_below(pids: &[Pid]) -> Vec<Entry> {
    below(pids, snapshot(), |entry| (entry.pid, entry.parent))
}

/// Those of one look that are below `pids`, each after its parent. `family` tells the numbers of a
/// process and of its parent.
pub(crate) fn below<T>(
    pids: &[Pid],
    look: impl Iterator<Item = T>,
    family: impl Fn(&T) -> (i32, i32),
) -> Vec<T> {
    let mut by_parent: BTreeMap<i32, Vec<T>> = BTreeMap::new();
    for process in look {
        let (_, parent) = family(&process);
        by_parent.entry(parent).or_default().push(process);
    }
    let mut found = Vec::new();
    for pid in pids {
        found.extend(
            by_parent
                .remove(&pid.as_raw_nonzero().get())
                .unwrap_or_default(),
        );
    }
    let mut next = 0;
    // Each parent is taken out once, so this ends whatever the look has caught.
    while let Some((parent, _)) = found.get(next).map(&family) {
        found.extend(by_parent.remove(&parent).unwrap_or_default());
        next += 1;
    }
    found
}

/// Whether a process group has a member that has not ended. Zombies stay in their group until they
/// are reaped, which the init of many a container does late or never.
pub fn group_has_living(group: Pid) -> bool {
    let group = group.as_raw_nonzero().get();
    snapshot().any(|entry| entry.group == group && !entry.zombie)
}

/// Whether the environment a process was started with has this entry (`NAME=value`). `false` where
/// it is another user's or gone.
pub fn environ_has(pid: Pid, entry: &str) -> bool {
    std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).is_ok_and(|bytes| {
        bytes
            .split(|&byte| byte == 0)
            .any(|have| have == entry.as_bytes())
    })
}

/// Reaps children that have ended and are none of `except`: orphans that a subreaper was given.
/// Returns how many. For programs that are subreapers.
pub fn reap_orphans(except: &[Pid]) -> usize {
    let mut reaped = 0;
    // A guard asks at each end of a child, and the look through all processes costs milliseconds.
    if !a_child_has_ended() {
        return reaped;
    }
    for child in children_of(rustix::process::getpid()) {
        if !except.contains(&child) && reap_if_ended(child) {
            reaped += 1;
        }
    }
    reaped
}

/// Ends every child but `except`, and the orphans that come to this subreaper meanwhile: SIGTERM,
/// after `term_grace` SIGKILL, again and again until none is left or `bound` has passed. Returns
/// those that are left (uninterruptible sleepers). Blocks; for programs.
pub fn end_all_children(except: &[Pid], term_grace: Duration, bound: Duration) -> Vec<Pid> {
    let me = rustix::process::getpid();
    let my_number = me.as_raw_nonzero().get();
    // 0 where the group was made outside of this PID namespace, which rustix takes for impossible.
    let my_group = nix::unistd::getpgrp().as_raw();
    let excepted: BTreeSet<i32> = except
        .iter()
        .map(|pid| pid.as_raw_nonzero().get())
        .collect();
    let started = Instant::now();
    let mut asked = BTreeSet::new();
    loop {
        if excepted.is_empty() && !has_children() {
            return Vec::new();
        }
        let age = started.elapsed();
        let kill = age >= term_grace;
        let mut left = Vec::new();
        for entry in snapshot().filter(|entry| entry.parent == my_number) {
            let Some(pid) = Pid::from_raw(entry.pid) else {
                continue;
            };
            if excepted.contains(&entry.pid) {
                continue;
            }
            // A group that the child leads is the child's; another may hold processes that are
            // nobody's to end. Unreaped, neither number can belong to anyone else.
            let leads = entry.group == entry.pid && entry.group != my_group;
            if kill {
                send(pid, leads, Signal::KILL);
            } else if asked.insert(entry.pid) {
                send(pid, leads, Signal::TERM);
                // A stopped process acts on nothing else.
                send(pid, leads, Signal::CONT);
            }
            if !reap_if_ended(pid) {
                left.push(pid);
            }
        }
        if left.is_empty() && !excepted.is_empty() || age >= bound {
            return left;
        }
        pause(PAUSE);
    }
}

fn send(pid: Pid, leads: bool, signal: Signal) {
    // One that has just ended is what is wanted; one that may not be signalled is left over.
    let _gone = if leads {
        rustix::process::kill_process_group(pid, signal)
    } else {
        rustix::process::kill_process(pid, signal)
    };
}

fn reap_if_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    matches!(
        rustix::process::waitid(WaitId::Pid(pid), options),
        Ok(Some(_))
    )
}

/// Whether this process has any child, living or ended; also one that `/proc` does not show. One
/// call of the system, for those who would otherwise start a thread to end none.
pub fn has_children() -> bool {
    !matches!(peek_any(), Err(rustix::io::Errno::CHILD))
}

/// Whether a child has ended that was not reaped.
fn a_child_has_ended() -> bool {
    matches!(peek_any(), Ok(Some(_)))
}

fn peek_any() -> rustix::io::Result<Option<WaitIdStatus>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::All, options)
}

fn pause(duration: Duration) {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: duration.subsec_nanos().into(),
    };
    let _interrupted = rustix::event::poll(&mut [], Some(&timeout));
}

fn snapshot() -> impl Iterator<Item = Entry> {
    stats().filter_map(|(pid, stat)| parse(pid, &stat))
}

/// The number of each process, and its line of `/proc/PID/stat` (proc(5)).
pub(crate) fn stats() -> impl Iterator<Item = (i32, Vec<u8>)> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read(entry.path().join("stat")).ok()?;
            Some((pid, stat))
        })
}

/// The name in parentheses may itself hold spaces and parentheses: fields count from the last one.
fn parse(pid: i32, stat: &[u8]) -> Option<Entry> {
    let end = memchr::memrchr(b')', stat)?;
    let text = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = fields.next()?;
    Some(Entry {
        pid,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
        zombie: matches!(state, "Z" | "X"),
        stopped: matches!(state, "T" | "t"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_no_trouble() {
        let entry = parse(12, b"12 (a) b (c)) S 7 9 9 0").unwrap();
        assert_eq!(
            (entry.pid, entry.parent, entry.group, entry.zombie),
            (12, 7, 9, false)
        );
        assert!(parse(12, b"12 (a) Z 7 9").unwrap().zombie);
        assert!(parse(12, b"12 (a").is_none());
        assert!(parse(12, b"").is_none());
    }

    #[test]
    fn this_process_is_a_descendant_of_its_parent() {
        let me = rustix::process::getpid();
        let parent = rustix::process::getppid().unwrap();
        assert!(children_of(parent).contains(&me));
        assert!(descendants(parent).contains(&me));
        assert!(!descendants(me).contains(&me));
    }
}
