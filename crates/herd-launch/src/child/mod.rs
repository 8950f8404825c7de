//! One started process: waiting for it, signalling it, and ending what it leaves behind in its
//! process group. It never waits for a process that it did not start.

mod exit;

use std::fmt;
use std::future::{Future as _, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use herd_core::exit::ProcessEnd;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep, sleep};

use crate::sys;
pub use exit::ExitInfo;

/// How often a process is looked at where the kernel has no pidfd (before 5.3).
const POLL: Duration = Duration::from_millis(10);
/// How long what a process leaves behind in its group may take after SIGTERM (D10).
const LEFTOVER_GRACE: Duration = Duration::from_secs(1);
/// How long it may take after SIGKILL before it is given up (uninterruptible sleep).
const LEFTOVER_ABANDON: Duration = Duration::from_secs(5);
/// First and longest pause between looks at a group that is ending; it has no descriptor to wait on.
const LEFTOVER_POLL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// How long a dropped child may take to die before its end is left to the system.
const DROP_BOUND: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

enum Watch {
    /// Not waited for yet; needs no runtime.
    Idle(Option<OwnedFd>),
    Pidfd(AsyncFd<OwnedFd>),
    Timer(Pin<Box<Sleep>>),
}

/// What is left of a process group whose leader has ended.
#[derive(Debug)]
struct Leftovers {
    since: Instant,
    killed: bool,
    pause: Duration,
    timer: Pin<Box<Sleep>>,
}

/// A process that was started, the leader of its own process group. Dropped while it
/// runs, it is killed with its group.
pub struct Child {
    pid: Pid,
    watch: Watch,
    exit: Option<ExitInfo>,
    stopped: bool,
    leftovers: Option<Leftovers>,
    /// Whether what it leaves behind in its group is ended with it.
    ends_group: bool,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("pid", &self.pid)
            .field("exit", &self.exit)
            .finish_non_exhaustive()
    }
}

impl Child {
    pub(crate) fn new(
        pid: Pid,
        stdin: Option<OwnedFd>,
        stdout: Option<OwnedFd>,
        stderr: Option<OwnedFd>,
    ) -> Self {
        // It is not reaped yet, so the id cannot belong to another process.
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
        Self {
            pid,
            watch: Watch::Idle(pidfd),
            exit: None,
            stopped: false,
            leftovers: None,
            ends_group: true,
            stdin,
            stdout,
            stderr,
        }
    }

    /// Process id; also the id of its process group.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// What it leaves behind in its process group is the caller's to end, or may go on.
    pub fn leave_group_alone(&mut self) {
        self.ends_group = false;
    }

    /// How it ended, once that has been observed.
    pub fn exit(&self) -> Option<ExitInfo> {
        self.exit
    }

    /// Writing end of its standard input, once, where that is a pipe.
    pub fn take_stdin(&mut self) -> Option<OwnedFd> {
        self.stdin.take()
    }

    /// Reading end of its standard output, once, where that is a pipe.
    pub fn take_stdout(&mut self) -> Option<OwnedFd> {
        self.stdout.take()
    }

    /// Reading end of its standard error, once, where that is a pipe.
    pub fn take_stderr(&mut self) -> Option<OwnedFd> {
        self.stderr.take()
    }

    /// Waits for its end. Cancel-safe; the same answer again afterwards. What it leaves in its
    /// process group has been sent SIGTERM by then; [`Child::end_leftovers`] waits for that.
    pub async fn wait(&mut self) -> ExitInfo {
        poll_fn(|cx| self.poll_exit(cx)).await
    }

    /// Waits until nothing is left of its process group, killing what outlives a second of grace.
    /// Whether nothing is left: `false` is an uninterruptible sleeper. Cancel-safe.
    pub async fn end_leftovers(&mut self) -> bool {
        poll_fn(|cx| self.poll_leftovers(cx)).await
    }

    /// Signals this process alone. One that has ended is no error.
    pub fn signal(&self, signal: Signal) -> std::io::Result<()> {
        if self.exit.is_some() {
            return Ok(());
        }
        let result = match &self.watch {
            Watch::Idle(Some(pidfd)) => rustix::process::pidfd_send_signal(pidfd, signal),
            Watch::Pidfd(pidfd) => rustix::process::pidfd_send_signal(pidfd, signal),
            // Unreaped, so the id is still its own.
            Watch::Idle(None) | Watch::Timer(_) => rustix::process::kill_process(self.pid, signal),
        };
        gone_is_fine(result)
    }

    /// Signals its whole process group. One that has ended is no error.
    pub fn signal_group(&self, signal: Signal) -> std::io::Result<()> {
        // The group's id is taken as long as the leader is unreaped or anything is left in it.
        if self.exit.is_some() && self.leftovers.is_none() {
            return Ok(());
        }
        gone_is_fine(rustix::process::kill_process_group(self.pid, signal))
    }

    /// Notes that its end is asked for, unless it has ended already.
    pub(crate) fn mark_stopped(&mut self) {
        if self.exit.is_none() && !sys::peek_exited(self.pid) {
            self.stopped = true;
        }
    }

    /// Gives it up: it could not be killed.
    pub(crate) fn abandon(&mut self) -> ExitInfo {
        let info = ExitInfo {
            end: ProcessEnd::Signaled(9),
            at: SystemTime::now(),
            cpu_ms: 0,
            peak_kib: 0,
            stopped: self.stopped,
            abandoned: true,
        };
        *self.exit.get_or_insert(info)
    }

    pub(crate) fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<ExitInfo> {
        loop {
            if let Some(info) = self.try_exit() {
                return Poll::Ready(info);
            }
            match &mut self.watch {
                Watch::Idle(pidfd) => {
                    let registered = pidfd
                        .take()
                        .and_then(|pidfd| sys::watch_readable(pidfd).ok());
                    self.watch = registered
                        .map_or_else(|| Watch::Timer(Box::pin(sleep(POLL))), Watch::Pidfd);
                }
                Watch::Pidfd(pidfd) => match pidfd.poll_read_ready(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(mut ready)) => {
                        if sys::peek_exited(self.pid) {
                            continue;
                        }
                        ready.clear_ready();
                    }
                    // The runtime is shutting down: nothing will wake us but a look.
                    Poll::Ready(Err(_)) => self.watch = Watch::Timer(Box::pin(sleep(POLL))),
                },
                Watch::Timer(timer) => {
                    if timer.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    timer.as_mut().reset(Instant::now() + POLL);
                }
            }
        }
    }

    /// Gives the process up to the caller, who has to reap it: nobody ends it any more.
    pub fn into_pid(mut self) -> Pid {
        self.exit = Some(ExitInfo {
            end: ProcessEnd::Exited(0),
            at: SystemTime::now(),
            cpu_ms: 0,
            peak_kib: 0,
            stopped: false,
            abandoned: true,
        });
        self.pid
    }

    /// Looks whether it has ended, without waiting. Within a tokio runtime, as all waiting.
    pub fn try_exit(&mut self) -> Option<ExitInfo> {
        if self.exit.is_some() {
            return self.exit;
        }
        if !sys::peek_exited(self.pid) {
            return None;
        }
        if self.ends_group {
            // While the leader is unreaped the group's id cannot be another's (D10).
            let _gone = rustix::process::kill_process_group(self.pid, Signal::TERM);
        }
        let reaped = sys::reap(self.pid, false)?;
        let info = ExitInfo {
            end: reaped.end,
            at: SystemTime::now(),
            cpu_ms: reaped.cpu_ms,
            peak_kib: reaped.peak_kib,
            stopped: self.stopped,
            abandoned: false,
        };
        self.exit = Some(info);
        self.watch = Watch::Idle(None);
        if self.ends_group && !group_is_empty(self.pid) {
            self.leftovers = Some(Leftovers {
                since: Instant::now(),
                killed: false,
                pause: LEFTOVER_POLL.0,
                timer: Box::pin(sleep(LEFTOVER_POLL.0)),
            });
        }
        Some(info)
    }

    pub(crate) fn poll_leftovers(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while let Some(left) = &mut self.leftovers {
            // The look through all processes is for groups of which only zombies are left.
            if group_is_empty(self.pid) || !crate::tree::group_has_living(self.pid) {
                self.leftovers = None;
                break;
            }
            let age = left.since.elapsed();
            if age >= LEFTOVER_GRACE {
                let _gone = rustix::process::kill_process_group(self.pid, Signal::KILL);
                if !left.killed {
                    left.killed = true;
                    left.pause = LEFTOVER_POLL.0;
                    left.timer.as_mut().reset(Instant::now() + left.pause);
                }
                if age >= LEFTOVER_GRACE + LEFTOVER_ABANDON {
                    self.leftovers = None;
                    return Poll::Ready(false);
                }
            }
            if left.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            left.pause = (left.pause * 2).min(LEFTOVER_POLL.1);
            left.timer.as_mut().reset(Instant::now() + left.pause);
        }
        Poll::Ready(true)
    }

    /// Ends what is left in the group at once rather than after the grace.
    pub(crate) fn kill_leftovers(&mut self) {
        if let Some(left) = &mut self.leftovers {
            let _gone = rustix::process::kill_process_group(self.pid, Signal::KILL);
            left.killed = true;
        }
    }

    pub(crate) fn has_leftovers(&self) -> bool {
        self.leftovers.is_some()
    }
}

/// Whether nothing is left of a group. Members whose parent has died are reaped where they have
/// become ours (a caller that is a subreaper): no other child is in this group.
fn group_is_empty(group: Pid) -> bool {
    while let Ok(Some(_)) = rustix::process::waitpgid(group, WaitOptions::NOHANG) {}
    rustix::process::test_kill_process_group(group) == Err(rustix::io::Errno::SRCH)
}

fn gone_is_fine(result: rustix::io::Result<()>) -> std::io::Result<()> {
    match result {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.exit.is_some() {
            self.kill_leftovers();
            return;
        }
        let _gone = rustix::process::kill_process_group(self.pid, Signal::KILL);
        if let Ok(pidfd) = rustix::process::pidfd_open(self.pid, PidfdFlags::empty()) {
            let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
            let _ready = rustix::event::poll(&mut fds, Some(&DROP_BOUND));
        }
        let _reaped = sys::reap(self.pid, false);
    }
}

#[cfg(test)]
mod tests;
