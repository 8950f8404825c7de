//! Waiting for one process, forking, and settings of the whole process.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::time::Duration;

use herd_core::exit::{self, ProcessEnd};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal as NixSignal};
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A process that was waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaped {
    /// How it ended.
    pub(crate) end: ProcessEnd,
    /// Processor time of it and of the children it waited for, milliseconds.
    pub(crate) cpu_ms: u64,
    /// Largest resident memory among them, KiB.
    pub(crate) peak_kib: u64,
}

/// Whether this child has ended and is still to be reaped. One that is no child of ours any more
/// counts as ended.
pub(crate) fn peek_exited(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(None))
}

/// Reaps this child, or returns `None` while it lives. A child whose status was taken by someone
/// else (SIGCHLD ignored, a foreign `waitpid(-1)`) is reported as having exited with 125.
pub(crate) fn reap(pid: Pid, block: bool) -> Option<Reaped> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let options = if block { 0 } else { libc::WNOHANG };
    let result = loop {
        // SAFETY: both pointers are valid for writing for the whole call.
        let result = unsafe {
            libc::wait4(
                pid.as_raw_nonzero().get(),
                &raw mut status,
                options,
                usage.as_mut_ptr(),
            )
        };
        if result >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break result;
        }
    };
    if result == 0 {
        return None;
    }
    if result < 0 {
        return Some(Reaped {
            end: ProcessEnd::Exited(exit::HERD_FAILED),
            cpu_ms: 0,
            peak_kib: 0,
        });
    }
    // SAFETY: all bits zero are a valid `rusage`, and `wait4` has filled it.
    let usage = unsafe { usage.assume_init() };
    let milliseconds = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1000)
            + u64::try_from(time.tv_usec).unwrap_or(0) / 1000
    };
    Some(Reaped {
        end: process_end(status),
        cpu_ms: milliseconds(usage.ru_utime).saturating_add(milliseconds(usage.ru_stime)),
        peak_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
    })
}

fn process_end(status: i32) -> ProcessEnd {
    let low = |value: i32| u8::try_from(value & 0xff).unwrap_or(u8::MAX);
    if libc::WIFSIGNALED(status) {
        ProcessEnd::Signaled(low(libc::WTERMSIG(status)))
    } else {
        ProcessEnd::Exited(low(libc::WEXITSTATUS(status)))
    }
}

/// Registers a descriptor with the runtime, to be told when it is readable.
pub fn watch_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` always gives the same descriptor and keeps it open until it is dropped,
    // which the `AsyncFd` does only after it has deregistered it.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// Registers a pipe's end or a terminal with the runtime, to be told when it can be read or written.
pub fn watch_stream(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: as above.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Takes over a descriptor that whoever started this program left open for it, by its number. Programs
/// call it once for each, before they open anything; the standard streams are refused.
pub fn take_inherited(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= 2 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: the number is not -1, and one that is not open makes the call fail.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and nothing in this program has been told its number, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Which side of a fork this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// The new process; the parent's id.
    Child {
        /// Process that forked.
        parent: Pid,
    },
    /// The process that forked; the child's id.
    Parent {
        /// Process that was made.
        child: Pid,
    },
}

/// Forks. Refused while this process has more than one thread, since the child would have copies of
/// locks that nobody releases.
pub fn fork() -> io::Result<Fork> {
    require_one_thread()?;
    let parent = rustix::process::getpid();
    // SAFETY: this is the only thread, so the child's memory is that of a running program in which
    // no other thread holds a lock or is half-way through anything.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child { parent }),
        raw => match Pid::from_raw(raw) {
            Some(child) => Ok(Fork::Parent { child }),
            None => Err(io::Error::other("fork returned no process")),
        },
    }
}

/// Fails where this process has more than one thread.
pub(super) fn require_one_thread() -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    // `.`, `..` and one directory for each thread.
    if std::fs::metadata("/proc/self/task")?.nlink() != 3 {
        return Err(io::Error::other("the process already has several threads"));
    }
    Ok(())
}

/// Makes this process the one that orphaned descendants are given to. Process-wide: for programs.
///
/// Fails where `/proc` does not show this process under its own number: what is to be ended is found
/// there, and the numbers of another PID namespace would name the wrong processes.
pub fn set_subreaper() -> io::Result<()> {
    require_own_proc()?;
    // The value is a flag: any process id sets it.
    Ok(rustix::process::set_child_subreaper(Some(
        rustix::process::getpid(),
    ))?)
}

fn require_own_proc() -> io::Result<()> {
    let own = std::process::id().to_string();
    match std::fs::read_link("/proc/self") {
        Ok(shown) if shown.as_os_str() == own.as_str() => Ok(()),
        Ok(_) => Err(io::Error::other(
            "/proc shows another PID namespace than the one this process is in; \
             hint: mount its own, as `unshare --mount-proc` does",
        )),
        Err(error) => Err(io::Error::other(format!(
            "processes cannot be seen in /proc: {error}; hint: `mount -t proc proc /proc`"
        ))),
    }
}

/// Asks for a signal when the parent's forking thread ends, and says whether `parent` still was the
/// parent afterwards. Process-wide: for programs.
pub fn set_pdeathsig_checked(signal: Signal, parent: Pid) -> io::Result<bool> {
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    Ok(rustix::process::getppid() == Some(parent))
}

/// The limit of open files (soft, hard) before this program raised it.
static NOFILE_BEFORE: OnceLock<(u64, u64)> = OnceLock::new();

/// Raises the soft limit of open files to the hard one. What is started afterwards gets what they
/// were, as programs expect. Process-wide: for programs.
pub fn raise_nofile() -> io::Result<()> {
    let old = rustix::process::getrlimit(Resource::Nofile);
    // `u64::MAX` is no limit. Only the first raise knows what the caller was given.
    let _first = NOFILE_BEFORE.set((
        old.current.unwrap_or(u64::MAX),
        old.maximum.unwrap_or(u64::MAX),
    ));
    if old.current != old.maximum {
        rustix::process::setrlimit(
            Resource::Nofile,
            Rlimit {
                current: old.maximum,
                maximum: old.maximum,
            },
        )?;
    }
    Ok(())
}

/// The limit of open files that a program started from here is to have, where this one's was raised.
pub(crate) fn nofile_before() -> Option<(u64, u64)> {
    NOFILE_BEFORE.get().copied()
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail instead of killing this process, so
/// that it is told like a full disk. Programs that are started get the default back. Process-wide: for
/// programs.
pub fn survive_file_size_limit() -> io::Result<()> {
    // SAFETY: ignoring installs no code that could run in a signal handler's context.
    unsafe { nix::sys::signal::signal(NixSignal::SIGXFSZ, SigHandler::SigIgn) }?;
    Ok(())
}

/// Blocks these signals in the calling thread and returns the mask before. For programs.
pub fn block_signals(signals: &[NixSignal]) -> io::Result<SigSet> {
    let set: SigSet = signals.iter().copied().collect();
    Ok(set.thread_swap_mask(SigmaskHow::SIG_BLOCK)?)
}

/// Restores a mask that [`block_signals`] returned. For programs.
pub fn unblock_signals(mask: &SigSet) -> io::Result<()> {
    Ok(mask.thread_set_mask()?)
}

/// Waits for one of these signals, which must be blocked, and takes it; `None` when `bound` has passed
/// without any. For programs.
pub fn wait_for_signal(signals: &SigSet, bound: Option<Duration>) -> io::Result<Option<NixSignal>> {
    let Some(bound) = bound else {
        return Ok(Some(signals.wait()?));
    };
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(bound.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: bound.subsec_nanos().into(),
    };
    // SAFETY: the set and the time are valid for the whole call, and nothing is written.
    let number =
        unsafe { libc::sigtimedwait(signals.as_ref(), std::ptr::null_mut(), &raw const timeout) };
    if number >= 0 {
        return Ok(Some(NixSignal::try_from(number)?));
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        error => Err(error),
    }
}

/// Whether this process ignores a signal, as one does that was started by nohup.
pub fn is_ignored(signal: NixSignal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only writes the present one to a valid place.
    let result = unsafe { libc::sigaction(signal as i32, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all bits zero are a valid action, also where the call has written nothing.
    let action = unsafe { action.assume_init() };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// A moment in the time of this place, `YYYY-MM-DD_HH:MM:SS`, from whole seconds since the Unix epoch.
pub fn local_time(seconds: u64) -> String {
    let time = libc::time_t::try_from(seconds).unwrap_or(libc::time_t::MAX);
    let mut fields = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call, which keeps neither.
    let known = unsafe { libc::localtime_r(&raw const time, fields.as_mut_ptr()) };
    if known.is_null() {
        return format!("{seconds} s since 1970");
    }
    // SAFETY: all bits zero are a valid value, and the call has filled it.
    let tm = unsafe { fields.assume_init() };
    format!(
        "{:04}-{:02}-{:02}_{:02}:{:02}:{:02}",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec
    )
}

/// Has the ends of children told again, whatever the parent has left: with SIGCHLD ignored they would
/// vanish unwaited for. Process-wide: for programs.
pub fn hear_of_children() -> io::Result<()> {
    // SAFETY: the default action installs no code that could run in a signal handler's context.
    unsafe { nix::sys::signal::signal(NixSignal::SIGCHLD, SigHandler::SigDfl) }?;
    Ok(())
}

/// Ignores the stops that a terminal sends to background processes that read or write it: a write
/// then simply succeeds and a read fails. Process-wide: for programs.
pub fn ignore_terminal_stops() -> io::Result<()> {
    for signal in [NixSignal::SIGTTIN, NixSignal::SIGTTOU] {
        // SAFETY: ignoring installs no code that could run in a signal handler's context.
        unsafe { nix::sys::signal::signal(signal, SigHandler::SigIgn) }?;
    }
    Ok(())
}
