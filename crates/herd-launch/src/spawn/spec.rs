//! What a process is to be.

use std::ffi::OsString;
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::process::Signal;

/// A process to start.
#[derive(Debug)]
pub struct ProcessSpec {
    /// Program and arguments. A name without a slash is looked up in the PATH of `env`.
    pub argv: Vec<OsString>,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
    /// Directory it starts in.
    pub cwd: PathBuf,
    /// Where it reads from.
    pub stdin: Stdin,
    /// Where its standard output goes.
    pub stdout: Output,
    /// Where its standard error goes.
    pub stderr: Output,
    /// Processors it is bound to.
    pub cpus: Option<Vec<usize>>,
    /// Limit of open files to give it (soft, hard; `u64::MAX` is none); without it, what this program
    /// was given before [`raise_nofile`](crate::sys::raise_nofile).
    pub nofile: Option<(u64, u64)>,
    /// Open descriptors that it inherits under their own numbers; all others are closed.
    pub keep_fds: Vec<RawFd>,
    /// What the kernel sends it when the caller's thread ends: SIGKILL, SIGTERM for a supervisor,
    /// which then ends its own, or nothing for one that watches the caller itself.
    pub on_parent_death: Option<Signal>,
}

impl ProcessSpec {
    /// A process with these arguments, environment and directory that reads nothing, writes
    /// nowhere and has no other settings.
    pub fn new(
        argv: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        cwd: impl Into<PathBuf>,
    ) -> Self {
        Self {
            argv,
            env,
            cwd: cwd.into(),
            stdin: Stdin::Null,
            stdout: Output::Null,
            stderr: Output::Null,
            cpus: None,
            nofile: None,
            keep_fds: Vec::new(),
            on_parent_death: Some(Signal::KILL),
        }
    }
}

/// Where a process reads from.
#[derive(Debug)]
pub enum Stdin {
    /// Nothing.
    Null,
    /// The caller's own standard input.
    Inherit,
    /// A pipe whose other end is [`crate::child::Child::take_stdin`].
    Pipe,
    /// This descriptor.
    Fd(OwnedFd),
    /// This terminal, which becomes the process's controlling terminal.
    Terminal(OwnedFd),
}

/// Where a process writes to.
#[derive(Debug)]
pub enum Output {
    /// Appended to this file, which is made with mode 0600 where it is absent.
    File(PathBuf),
    /// For standard error: wherever standard output goes. For standard output: nowhere.
    SameAsStdout,
    /// The caller's own stream.
    Inherit,
    /// Nowhere.
    Null,
    /// This descriptor.
    Fd(OwnedFd),
    /// A pipe whose other end is [`crate::child::Child::take_stdout`] or [`crate::child::Child::take_stderr`].
    Pipe,
}
