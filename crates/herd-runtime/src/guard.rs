//! The thin partner of a supervisor (I5): the visible process is a guard that only passes signals
//! on, waits, and ends what is left; its child does the work. Whichever dies, the other ends the
//! rest. The guard reads nothing, writes nothing and keeps no state but the child's id.
//!
//! # Signals and the terminal
//!
//! The child is in a process group of its own, the guard in the one it was started in. So every
//! signal reaches the guard alone, whoever sends it and however (a terminal's Ctrl-C, `kill PID`,
//! `kill %1` or a batch system to the whole group), and is passed on exactly once: a second TERM
//! means "now" to the child and must never be an echo of the first. A SIGKILL to the whole group
//! takes only the guard, and the child still cleans up. The price is that the child is a background
//! process to the terminal: it does not read it (a rank that is given it as its standard input may,
//! being in a session of its own), and it ignores SIGTTOU, so that it may write it.
//!
//! Ctrl-Z is passed on too. A child that watches for it makes its work wait and then stops its guard
//! ([`stop_guard`]), so that the shell takes the terminal back; it goes on itself and can still be
//! asked for the end. One that does not watch for it is stopped by the system, and the guard stops
//! when it sees that; then nobody cleans up, but the ranks' parent-death signals still hold. A guard
//! that is continued continues its child.
//!
//! A child that somebody else stops (`kill -STOP` of it alone) does nothing any more, and who waits
//! for it or for what it holds would do so for ever. So the guard says so, and when nobody has let it
//! go on within a bound, it is lost: killed, and all that it started is ended (I6). A signal that asks
//! for the end lets it go on, since a stopped process acts on nothing else.
//!
//! Guard and child killed together is the documented exception to I5.

use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use herd_core::exit;
use herd_launch::sys::{self, Fork};
use herd_launch::tree;
use herd_launch::{Pid, Signal};
use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus};

use crate::executor::LEASE;

/// Signals that are passed on to the child. Those that are ignored (nohup) never come.
const PASSED_ON: [NixSignal; 9] = [
    NixSignal::SIGTERM,
    NixSignal::SIGINT,
    NixSignal::SIGHUP,
    NixSignal::SIGQUIT,
    NixSignal::SIGUSR1,
    NixSignal::SIGUSR2,
    NixSignal::SIGTSTP,
    NixSignal::SIGCONT,
    NixSignal::SIGWINCH,
];
/// How long a child may stand still that somebody has stopped: as long as executors do without one.
pub const STOPPED_BOUND: Duration = LEASE;
/// How long leftovers may take after SIGTERM (I5).
const TERM_GRACE: Duration = Duration::from_secs(1);
/// How long ending them may take in all; what is left then sleeps uninterruptibly.
const END_BOUND: Duration = Duration::from_secs(5);

/// The guard's process, in the child.
static GUARD: OnceLock<Pid> = OnceLock::new();

/// How the work came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The code to exit with: the work's, 128 and the number of the signal that killed it, or 125
    /// where it was killed because it stood still.
    pub code: u8,
    /// In the guard: whether the child was killed by a signal, so that whatever it was to write is
    /// missing. All that it started has ended by now. True as well where no guard could be made, and
    /// so nothing was done.
    pub lost: bool,
}

/// Runs `work` in a child under a guard, and returns in both processes. To be called first in main,
/// before any thread exists. A child that is stopped for longer than `stopped_bound` is killed. Where
/// no guard can be made it says so on stderr and returns 125.
pub fn run(stopped_bound: Duration, work: impl FnOnce() -> u8) -> Ended {
    let by_itself = |code| Ended { code, lost: false };
    match start() {
        Ok(Side::Child) => {
            let code = work();
            if guard_is_gone() {
                end_what_is_left();
            }
            by_itself(code)
        }
        Ok(Side::Guard { child }) => keep(child, stopped_bound),
        Err(error) => {
            complain("cannot start the guard", &error);
            Ended {
                code: exit::HERD_FAILED,
                lost: true,
            }
        }
    }
}

/// In the child: whether the guard has died, which SIGTERM has then announced. The work then has two
/// seconds to end everything (I5): nobody does it afterwards. `false` where there is no guard.
pub fn guard_is_gone() -> bool {
    GUARD
        .get()
        .is_some_and(|&guard| rustix::process::getppid() != Some(guard))
}

/// In the child: stops the guard, as the terminal expects after Ctrl-Z. Nothing where there is none.
pub fn stop_guard() {
    if let Some(&guard) = GUARD.get().filter(|_| !guard_is_gone()) {
        let _gone = rustix::process::kill_process(guard, Signal::STOP);
    }
}

/// Ends every child of this process and all orphans that come to it (SIGTERM, after a second
/// SIGKILL), and returns those that cannot be killed. For programs that are subreapers.
pub fn end_what_is_left() -> Vec<Pid> {
    tree::end_all_children(&[], TERM_GRACE, END_BOUND)
}

enum Side {
    Child,
    Guard { child: Pid },
}

fn start() -> io::Result<Side> {
    sys::set_subreaper()?;
    sys::hear_of_children()?;
    // Before the fork, so that none is lost between it and the first wait.
    let blocked: Vec<NixSignal> = PASSED_ON.into_iter().chain([NixSignal::SIGCHLD]).collect();
    let mask = sys::block_signals(&blocked)?;
    let forked = sys::fork();
    match forked {
        Ok(Fork::Parent { child }) => {
            // Both sides do it, so that it has happened on whichever comes first. The child may
            // have done so and ended already.
            let _done = rustix::process::setpgid(Some(child), Some(child));
            Ok(Side::Guard { child })
        }
        Ok(Fork::Child { parent }) => {
            rustix::process::setpgid(None, None)?;
            sys::set_subreaper()?;
            sys::ignore_terminal_stops()?;
            if !sys::set_pdeathsig_checked(Signal::TERM, parent)? {
                return Err(io::Error::other("the guard died at once"));
            }
            // Only this place sets it, once.
            let _first = GUARD.set(parent);
            sys::unblock_signals(&mask)?;
            Ok(Side::Child)
        }
        Err(error) => {
            sys::unblock_signals(&mask)?;
            Err(error)
        }
    }
}

/// The guard's life.
fn keep(child: Pid, stopped_bound: Duration) -> Ended {
    // A reader or writer at the other end of these waits for the work to close them, not for us.
    if let Err(error) = let_go_of_streams() {
        complain("cannot let go of the standard streams", &error);
    }
    // It has started all of the program, and only waits from here on. Where that fails it is larger.
    let _larger = sys::give_back_code();
    let end = Watch {
        child,
        stopped_bound,
        stop_asked: false,
        lost_at: None,
    }
    .until_it_ends();
    let left = end_what_is_left();
    if !left.is_empty() {
        let pids: Vec<i32> = left.iter().map(|pid| pid.as_raw_nonzero().get()).collect();
        complain(
            "processes that cannot be killed are left",
            &io::Error::other(format!("{pids:?}")),
        );
    }
    end
}

/// What the guard knows of its child.
struct Watch {
    child: Pid,
    stopped_bound: Duration,
    /// Only a stop that we passed on is the terminal's; any other is between its sender and the child.
    stop_asked: bool,
    /// The child stands still, stopped by somebody else; from this time on it is lost.
    lost_at: Option<Instant>,
}

impl Watch {
    fn until_it_ends(mut self) -> Ended {
        let set: SigSet = PASSED_ON.into_iter().chain([NixSignal::SIGCHLD]).collect();
        loop {
            // Children end before the first wait, too.
            loop {
                match wait_for(self.child) {
                    ChildNow::Unchanged => break,
                    ChildNow::GoesOn => self.lost_at = None,
                    ChildNow::Stopped => self.stopped(),
                    ChildNow::Ended(end) => return end,
                }
            }
            // Orphans that came to us and ended; their parents are gone.
            tree::reap_orphans(&[self.child]);
            let left = self
                .lost_at
                .map(|at| at.saturating_duration_since(Instant::now()));
            match sys::wait_for_signal(&set, left) {
                Ok(Some(NixSignal::SIGCHLD)) => {}
                Ok(Some(signal)) => self.pass_on(signal),
                Ok(None) => return self.give_up(),
                // Interrupted.
                Err(_) => {}
            }
        }
    }

    fn stopped(&mut self) {
        if self.stop_asked {
            self.stop_asked = false;
            stop_myself();
        } else {
            // Each stop is told once: a second one has followed a continuation that was not seen.
            self.lost_at = Some(Instant::now() + self.stopped_bound);
            let pid = self.child.as_raw_nonzero();
            say(&format!(
                "process {pid}, which runs the job, was stopped; all of it is ended in {} s; \
                 hint: `kill -CONT {pid}` lets it go on",
                self.stopped_bound.as_secs()
            ));
        }
    }

    fn pass_on(&mut self, signal: NixSignal) {
        let stands_still = self.lost_at.is_some();
        match signal {
            // It could not act on it; the terminal is to get its shell back all the same.
            NixSignal::SIGTSTP if stands_still => return stop_myself(),
            NixSignal::SIGTSTP => self.stop_asked = true,
            NixSignal::SIGCONT => self.stop_asked = false,
            _other => {}
        }
        self.send(signal as i32);
        let asks_for_the_end = matches!(
            signal,
            NixSignal::SIGTERM | NixSignal::SIGINT | NixSignal::SIGHUP | NixSignal::SIGQUIT
        );
        if stands_still && asks_for_the_end {
            self.send(NixSignal::SIGCONT as i32);
        }
    }

    /// To the child, which is unreaped: the id is still its own, and that it has ended is seen next.
    fn send(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _gone = rustix::process::kill_process(self.child, signal);
        }
    }

    /// Kills a child that nobody has let go on.
    fn give_up(self) -> Ended {
        let pid = self.child.as_raw_nonzero();
        say(&format!(
            "process {pid}, which runs the job, stood still for {} s and is killed",
            self.stopped_bound.as_secs()
        ));
        self.send(NixSignal::SIGKILL as i32);
        // It is reaped with what it leaves, which has its own bound.
        Ended {
            code: exit::HERD_FAILED,
            lost: true,
        }
    }
}

fn stop_myself() {
    let _stopped = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

enum ChildNow {
    /// There is no news of it.
    Unchanged,
    Stopped,
    GoesOn,
    Ended(Ended),
}

fn wait_for(child: Pid) -> ChildNow {
    let options = WaitIdOptions::EXITED
        | WaitIdOptions::STOPPED
        | WaitIdOptions::CONTINUED
        | WaitIdOptions::NOHANG;
    match rustix::process::waitid(WaitId::Pid(child), options) {
        Ok(None) | Err(rustix::io::Errno::INTR) => ChildNow::Unchanged,
        Ok(Some(status)) if status.stopped() => ChildNow::Stopped,
        Ok(Some(status)) if status.continued() => ChildNow::GoesOn,
        Ok(Some(status)) => ChildNow::Ended(Ended {
            code: code(&status),
            lost: status.terminating_signal().is_some(),
        }),
        // Nobody else reaps here: it cannot be.
        Err(_) => ChildNow::Ended(Ended {
            code: exit::HERD_FAILED,
            lost: true,
        }),
    }
}

fn code(status: &WaitIdStatus) -> u8 {
    let (base, value) = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => (0, code),
        (None, Some(signal)) => (128, signal),
        (None, None) => return exit::HERD_FAILED,
    };
    u8::try_from(base + (value & 0xff)).unwrap_or(u8::MAX)
}

fn let_go_of_streams() -> io::Result<()> {
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

fn complain(what: &str, error: &io::Error) {
    say(&format!("{what}: {error}"));
}

/// The guard has no printer. A closed stderr is no reason to fail.
fn say(text: &str) {
    let _unheard = writeln!(io::stderr(), "herd: guard: {text}");
}
