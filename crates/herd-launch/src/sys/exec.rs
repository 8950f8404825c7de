//! Starts one program with `clone(CLONE_VM | CLONE_VFORK)`: the child borrows the parent's memory
//! until it has called `execve`, so starting costs the same however large the parent is, and a
//! failure is reported through memory rather than a pipe. It allocates nothing in the child.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::CpuSet;

/// Bytes of stack for the child between `clone` and `execve`; it uses less than a tenth.
const STACK_BYTES: usize = 64 * 1024;
/// Signals are numbered below this.
const SIGNAL_END: c_int = 65;

/// What a child does before it becomes the program. All memory is prepared by the parent.
#[derive(Debug)]
pub(crate) struct Exec {
    /// Paths to try in order, as `execvp` does.
    pub(crate) candidates: Vec<CString>,
    /// Arguments, the program's name first.
    pub(crate) argv: Vec<CString>,
    /// The complete environment, `NAME=value`.
    pub(crate) env: Vec<CString>,
    /// Directory to start in.
    pub(crate) cwd: CString,
    /// Descriptors that become 0, 1 and 2; each is above 2, or absent where the parent's is kept.
    pub(crate) stdio: [Option<RawFd>; 3],
    /// Whether 2 becomes a copy of 1.
    pub(crate) stderr_is_stdout: bool,
    /// Whether 0 becomes the controlling terminal.
    pub(crate) controls_terminal: bool,
    /// Descriptors that stay open under their own number.
    pub(crate) keep: Vec<RawFd>,
    /// Processors to be bound to.
    pub(crate) cpus: Option<CpuSet>,
    /// Limit of open files to set.
    pub(crate) nofile: Option<Rlimit>,
    /// Whether it leads a session of its own, rather than a process group in the caller's.
    pub(crate) session: bool,
    /// What it gets when the parent's thread ends, if anything.
    pub(crate) on_parent_death: Option<Signal>,
    /// Process that must still be the parent.
    pub(crate) parent: Pid,
}

/// What the child was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Step {
    /// Making the process.
    Clone = 1,
    /// Session, parent-death signal, streams and the like.
    Prepare,
    /// Binding to processors.
    Affinity,
    /// Changing the directory.
    Cwd,
    /// Becoming the program.
    Exec,
}

/// A failed start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecFailure {
    /// What failed.
    pub(crate) step: Step,
    /// The system's reason.
    pub(crate) errno: i32,
}

struct Shared<'a> {
    exec: &'a Exec,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    inherited: Vec<RawFd>,
    step: AtomicI32,
    errno: AtomicI32,
}

impl Exec {
    /// Starts the program and returns its process once `execve` has succeeded.
    pub(crate) fn start(&self) -> Result<Pid, ExecFailure> {
        let shared = Shared {
            exec: self,
            argv: pointers(&self.argv),
            env: pointers(&self.env),
            inherited: if has_close_range() {
                Vec::new()
            } else {
                inherited_descriptors()
            },
            step: AtomicI32::new(0),
            errno: AtomicI32::new(0),
        };
        let mut stack = Box::<[u8]>::new_uninit_slice(STACK_BYTES);
        // SAFETY: the offset is the length of the allocation, one past its end.
        let end = unsafe { stack.as_mut_ptr().add(STACK_BYTES) };
        let top = end.map_addr(|address| address & !15).cast::<c_void>();

        // No handler of the parent may run in the child, which shares its memory.
        let old_mask = block_all();
        // SAFETY: `child_main` only uses `shared` and its own stack, and CLONE_VFORK keeps this
        // thread suspended, with both alive, until the child has left this memory.
        let raw = unsafe {
            libc::clone(
                child_main,
                top,
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                ptr::from_ref(&shared).cast_mut().cast::<c_void>(),
            )
        };
        let clone_errno = std::io::Error::last_os_error().raw_os_error();
        restore_mask(&old_mask);
        drop(stack);

        let Some(pid) = (raw > 0).then(|| Pid::from_raw(raw)).flatten() else {
            return Err(ExecFailure {
                step: Step::Clone,
                errno: clone_errno.unwrap_or(libc::EAGAIN),
            });
        };
        let step = match shared.step.load(Ordering::Acquire) {
            0 => return Ok(pid),
            2 => Step::Prepare,
            3 => Step::Affinity,
            4 => Step::Cwd,
            _ => Step::Exec,
        };
        // It has ended already: this does not block.
        let _reaped = super::reap(pid, true);
        Err(ExecFailure {
            step,
            errno: shared.errno.load(Ordering::Acquire),
        })
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain([ptr::null()])
        .collect()
}

extern "C" fn child_main(argument: *mut c_void) -> c_int {
    // SAFETY: `start` passes a `Shared` that outlives this function.
    let shared = unsafe { &*argument.cast_const().cast::<Shared<'_>>() };
    let (step, errno) = become_program(shared);
    shared.errno.store(errno, Ordering::Release);
    shared.step.store(step as i32, Ordering::Release);
    // SAFETY: it ends this process at once, without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

/// Returns only on failure.
fn become_program(shared: &Shared<'_>) -> (Step, i32) {
    let exec = shared.exec;
    if let Err(errno) = prepare(shared) {
        return (Step::Prepare, errno.raw_os_error());
    }
    if let Some(cpus) = &exec.cpus
        && let Err(errno) = rustix::thread::sched_setaffinity(None, cpus)
    {
        return (Step::Affinity, errno.raw_os_error());
    }
    if let Err(errno) = rustix::process::chdir(exec.cwd.as_c_str()) {
        return (Step::Cwd, errno.raw_os_error());
    }
    reset_signals();

    let mut refused = libc::ENOENT;
    for path in &exec.candidates {
        // SAFETY: the three are NUL-terminated and outlive the call, as does what they point to.
        unsafe { libc::execve(path.as_ptr(), shared.argv.as_ptr(), shared.env.as_ptr()) };
        match std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::ENOENT)
        {
            libc::ENOENT
            | libc::ENOTDIR
            | libc::ENAMETOOLONG
            | libc::ELOOP
            | libc::ESTALE
            | libc::ENODEV
            | libc::ETIMEDOUT => {}
            libc::EACCES => refused = libc::EACCES,
            other => return (Step::Exec, other),
        }
    }
    (Step::Exec, refused)
}

fn prepare(shared: &Shared<'_>) -> rustix::io::Result<()> {
    let exec = shared.exec;
    if exec.session {
        rustix::process::setsid()?;
    } else {
        rustix::process::setpgid(None, None)?;
    }
    rustix::process::set_parent_process_death_signal(exec.on_parent_death)?;
    if rustix::process::getppid() != Some(exec.parent) {
        return Err(rustix::io::Errno::CHILD);
    }
    let [stdin, stdout, stderr] = exec.stdio;
    if let Some(fd) = stdin {
        rustix::stdio::dup2_stdin(borrow(fd))?;
    }
    if exec.controls_terminal {
        rustix::process::ioctl_tiocsctty(borrow(libc::STDIN_FILENO))?;
    }
    if let Some(fd) = stdout {
        rustix::stdio::dup2_stdout(borrow(fd))?;
    }
    if exec.stderr_is_stdout {
        rustix::stdio::dup2_stderr(borrow(libc::STDOUT_FILENO))?;
    } else if let Some(fd) = stderr {
        rustix::stdio::dup2_stderr(borrow(fd))?;
    }
    if shared.inherited.is_empty() {
        close_range_on_exec(3)?;
    }
    for &fd in &shared.inherited {
        // One that has been closed since is none to close.
        let _closed = rustix::io::fcntl_setfd(borrow(fd), rustix::io::FdFlags::CLOEXEC);
    }
    for &fd in &exec.keep {
        rustix::io::fcntl_setfd(borrow(fd), rustix::io::FdFlags::empty())?;
    }
    if let Some(limit) = exec.nofile {
        rustix::process::setrlimit(Resource::Nofile, limit)?;
    }
    Ok(())
}

fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: these are the numbers of descriptors that the parent holds open meanwhile; one that
    // is not open makes the call fail with EBADF and harms nothing. None is -1.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

fn close_range_on_exec(first: u32) -> rustix::io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    // SAFETY: it only marks descriptors and takes no pointer.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, CLOSE_RANGE_CLOEXEC) };
    if result == 0 {
        Ok(())
    } else {
        Err(rustix::io::Errno::NOSYS)
    }
}

/// Whether the kernel (5.11) can mark all descriptors at once.
fn has_close_range() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    // Nothing is open under the highest number, so this marks nothing.
    *KNOWN.get_or_init(|| close_range_on_exec(u32::MAX).is_ok())
}

fn inherited_descriptors() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return vec![3];
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&fd| fd > 2)
        .collect()
}

fn full_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the pointer is valid for writing one set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: `sigfillset` initialises all of it and cannot fail on a valid pointer.
    unsafe { set.assume_init() }
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the pointer is valid for writing one set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: `sigemptyset` initialises all of it and cannot fail on a valid pointer.
    unsafe { set.assume_init() }
}

fn block_all() -> libc::sigset_t {
    let all = full_set();
    let mut old = empty_set();
    // SAFETY: both sets are initialised and live through the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old) };
    old
}

fn restore_mask(mask: &libc::sigset_t) {
    // SAFETY: the set is initialised; the old mask is not wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

/// Default dispositions for all, then an empty mask: in this order no handler of the parent runs.
fn reset_signals() {
    /// The kernel's own structure (handler, flags, restorer, mask); all zero is the default action.
    const DEFAULT: [u64; 4] = [0; 4];
    const MASK_BYTES: usize = 8;
    for signal in 1..SIGNAL_END {
        // SAFETY: the action is initialised and as large as the kernel's structure. The C library's
        // function would refuse the signals it keeps for itself, and those may be ignored as well.
        // The kernel refuses SIGKILL and SIGSTOP, which is what is wanted.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                DEFAULT.as_ptr(),
                ptr::null_mut::<u64>(),
                MASK_BYTES,
            )
        };
    }
    restore_mask(&empty_set());
}
