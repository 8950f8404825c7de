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
//! Guard and child killed together is the documented exception to I5.

use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::time::Duration;

use herd_core::exit;
use herd_launch::sys::{self, Fork};
use herd_launch::tree;
use herd_launch::{Pid, Signal};
use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus};

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
/// How long leftovers may take after SIGTERM (I5).
const TERM_GRACE: Duration = Duration::from_secs(1);
/// How long ending them may take in all; what is left then sleeps uninterruptibly.
const END_BOUND: Duration = Duration::from_secs(5);

/// The guard's process, in the child.
static GUARD: OnceLock<Pid> = OnceLock::new();

/// Runs `work` in a child under a guard, and returns the code to exit with, in both processes. To be
/// called first in main, before any thread exists. Where no guard can be made it says so on stderr
/// and returns 125.
pub fn run(work: impl FnOnce() -> u8) -> u8 {
    match start() {
        Ok(Side::Child) => {
            let code = work();
            if guard_is_gone() {
                end_what_is_left();
            }
            code
        }
        Ok(Side::Guard { child }) => keep(child),
        Err(error) => {
            complain("cannot start the guard", &error);
            exit::HERD_FAILED
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
fn keep(child: Pid) -> u8 {
    // A reader or writer at the other end of these waits for the work to close them, not for us.
    if let Err(error) = let_go_of_streams() {
        complain("cannot let go of the standard streams", &error);
    }
    let end = watch(child);
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

fn watch(child: Pid) -> u8 {
    let set: SigSet = PASSED_ON.into_iter().chain([NixSignal::SIGCHLD]).collect();
    // Only a stop that we passed on is the terminal's; any other is between its sender and the child.
    let mut stop_asked = false;
    loop {
        // Children end before the first wait, too.
        loop {
            match wait_for(child) {
                ChildNow::Runs => break,
                ChildNow::Stopped => {
                    if stop_asked {
                        stop_asked = false;
                        let _stopped =
                            rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
                    }
                }
                ChildNow::Ended(code) => return code,
            }
        }
        // Orphans that came to us and ended; their parents are gone.
        tree::reap_orphans(&[child]);
        let signal = match set.wait() {
            Ok(NixSignal::SIGCHLD) => continue,
            Ok(signal) => signal,
            Err(_interrupted) => continue,
        };
        match signal {
            NixSignal::SIGTSTP => stop_asked = true,
            NixSignal::SIGCONT => stop_asked = false,
            _other => {}
        }
        if let Some(signal) = Signal::from_named_raw(signal as i32) {
            // Unreaped, so the id is still the child's; that it has ended is seen next.
            let _gone = rustix::process::kill_process(child, signal);
        }
    }
}

enum ChildNow {
    Runs,
    Stopped,
    Ended(u8),
}

fn wait_for(child: Pid) -> ChildNow {
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    match rustix::process::waitid(WaitId::Pid(child), options) {
        Ok(None) | Err(rustix::io::Errno::INTR) => ChildNow::Runs,
        Ok(Some(status)) if status.stopped() => ChildNow::Stopped,
        Ok(Some(status)) => ChildNow::Ended(code(&status)),
        // Nobody else reaps here: it cannot be.
        Err(_) => ChildNow::Ended(exit::HERD_FAILED),
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

/// The guard has no printer. A closed stderr is no reason to fail.
fn complain(what: &str, error: &io::Error) {
    let _unheard = writeln!(io::stderr(), "herd: guard: {what}: {error}");
}
