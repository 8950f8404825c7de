//! Workers that the host started itself (an interpreter's own ways to start processes): they are no
//! children of the supervisor, which ends them only when the host has died.
//!
//! Whoever loses the host as its parent goes to init, so a worker's descendants are known by the tree
//! below it, as long as it lives, and by an entry of the environment that they have from it. The
//! workers are stopped before the tree is looked at, so that none can end and let go of its own
//! children meanwhile.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::tree;

/// What they get between the request to end and SIGKILL (I5).
const GRACE: Duration = Duration::from_secs(1);
/// How long ending them may take in all.
const BOUND: Duration = Duration::from_secs(5);
/// Pause between looks.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// The workers of a host's own.
#[derive(Debug)]
pub(super) struct Watched {
    workers: BTreeMap<i32, OwnedFd>,
    marker: String,
}

impl Watched {
    pub(super) fn new(marker: String) -> Self {
        let workers = BTreeMap::new();
        Self { workers, marker }
    }

    /// Looks after one more, which the host has not reaped yet.
    pub(super) fn add(&mut self, raw: i32) {
        let pidfd = Pid::from_raw(raw)
            .filter(|_| raw > 1)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if let Some(pidfd) = pidfd {
            self.workers.insert(raw, pidfd);
        }
    }

    /// Ends all of them and what is below them. Blocks, at most some seconds: the last deed of a
    /// supervisor.
    pub(super) fn end(mut self) {
        self.workers.retain(|_, pidfd| lives(pidfd));
        for pidfd in self.workers.values() {
            send(pidfd, Signal::STOP);
        }
        let mut below = BTreeMap::new();
        self.look(&mut below);
        for pidfd in self.workers.values() {
            // As CPython's workers expect it of a parent that has died.
            send(pidfd, Signal::INT);
        }
        for pidfd in below.values() {
            send(pidfd, Signal::TERM);
        }
        for pidfd in self.workers.values().chain(below.values()) {
            send(pidfd, Signal::CONT);
        }
        let started = Instant::now();
        let mut kills = false;
        loop {
            if !kills && started.elapsed() >= GRACE {
                kills = true;
                self.look(&mut below);
            }
            if kills {
                for pidfd in self.workers.values().chain(below.values()) {
                    send(pidfd, Signal::KILL);
                }
            }
            self.workers.retain(|_, pidfd| lives(pidfd));
            below.retain(|_, pidfd| lives(pidfd));
            if self.workers.is_empty() && below.is_empty() {
                // What was started after the last look.
                self.look(&mut below);
                kills = true;
                if below.is_empty() {
                    return;
                }
            }
            if started.elapsed() >= BOUND {
                return;
            }
            let _interrupted = poll(&mut [], Some(&PAUSE));
        }
    }

    /// Adds whatever is below the workers or has their mark.
    fn look(&self, below: &mut BTreeMap<i32, OwnedFd>) {
        let workers: Vec<Pid> = self
            .workers
            .keys()
            .filter_map(|&raw| Pid::from_raw(raw))
            .collect();
        let mut found = tree::descendants_of(&workers);
        found.extend(tree::with_environment(&self.marker));
        let me = rustix::process::getpid();
        for pid in found {
            let raw = pid.as_raw_nonzero().get();
            if pid == me || self.workers.contains_key(&raw) || below.contains_key(&raw) {
                continue;
            }
            if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
                below.insert(raw, pidfd);
            }
        }
        below.retain(|_, pidfd| lives(pidfd));
    }
}

fn send(pidfd: &OwnedFd, signal: Signal) {
    // One that has just ended is what is wanted.
    let _gone = pidfd_send_signal(pidfd, signal);
}

fn lives(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)) == Ok(0)
}
