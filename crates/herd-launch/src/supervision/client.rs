//! The host's side: starts a supervisor and talks with it. It sets nothing process-wide, starts no
//! thread, and may be used from any one.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};

use super::protocol::{Decoder, ProtocolError, Report, Request, encode};
use crate::spawn::{Output, ProcessSpec, SpawnError, Stdin, spawn};

/// How long a supervisor may take for one word.
const TALK_BOUND: Duration = Duration::from_mins(1);
/// Bytes read at once.
const READ: usize = 64 * 1024;

/// Why a supervisor cannot be had or was lost.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It cannot be started.
    #[error("cannot start the supervisor of the workers")]
    Spawn(#[from] SpawnError),
    /// The socket.
    #[error("cannot talk with the supervisor of the workers")]
    Channel(#[from] io::Error),
    /// What came over it.
    #[error("cannot talk with the supervisor of the workers")]
    Protocol(#[from] ProtocolError),
}

/// A supervisor. Dropped, it ends its workers by itself, and nobody waits for that.
#[derive(Debug)]
pub struct Supervisor {
    pid: Pid,
    pidfd: Option<OwnedFd>,
    channel: UnixStream,
    decoder: Decoder,
    closed: bool,
    reaped: bool,
    /// The process that started it; another one, forked off it, only has a copy of this.
    owner: u32,
}

impl Supervisor {
    /// Starts `program supervise`, which inherits the standard streams for its workers.
    pub fn start(program: &Path, first: &Request) -> Result<Self, ClientError> {
        let (mine, theirs) = UnixStream::pair()?;
        // A host whose own streams are closed gets their numbers, which its workers' streams need.
        let mine = UnixStream::from(fcntl_dupfd_cloexec(&mine, 3).map_err(io::Error::from)?);
        let theirs = fcntl_dupfd_cloexec(&theirs, 3).map_err(io::Error::from)?;
        mine.set_write_timeout(Some(TALK_BOUND))?;
        let argv = [
            program.as_os_str().to_owned(),
            "supervise".into(),
            "--channel".into(),
            theirs.as_raw_fd().to_string().into(),
            "--host".into(),
            std::process::id().to_string().into(),
        ];
        // One that was removed is entered all the same.
        let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        let env: Vec<(OsString, OsString)> = Vec::new();
        let child = spawn(ProcessSpec {
            stdin: Stdin::Inherit,
            stdout: Output::Inherit,
            stderr: Output::Inherit,
            keep_fds: vec![theirs.as_raw_fd()],
            // It watches this process itself: the calling thread may end before.
            on_parent_death: None,
            ..ProcessSpec::new(argv.to_vec(), env, cwd)
        })?;
        let pid = child.into_pid();
        let mut supervisor = Self {
            pid,
            pidfd: rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok(),
            channel: mine,
            decoder: Decoder::default(),
            closed: false,
            reaped: false,
            owner: std::process::id(),
        };
        drop(theirs);
        supervisor.say(first)?;
        Ok(supervisor)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// The descriptor that becomes readable when there is something to hear.
    pub fn channel(&self) -> &UnixStream {
        &self.channel
    }

    /// Asks for something.
    pub fn say(&mut self, request: &Request) -> Result<(), ClientError> {
        let bytes = encode(request)?;
        self.channel.set_nonblocking(false)?;
        match self.channel.write_all(&bytes) {
            // It has ended, and what it said last is still to be read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => Ok(result?),
        }
    }

    /// What it has said, without waiting.
    pub fn hear(&mut self) -> Result<Option<Report>, ClientError> {
        loop {
            if let Some(report) = self.decoder.take()? {
                return Ok(Some(report));
            }
            if self.closed {
                return Ok(None);
            }
            self.channel.set_nonblocking(true)?;
            let mut bytes = vec![0; READ];
            match self.channel.read(&mut bytes) {
                Ok(0) => self.closed = true,
                Ok(length) => self.decoder.feed(bytes.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.closed = true,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether it has said its last word: nothing is left of the workers.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Lets go of it: it ends its workers, and itself then.
    pub fn leave(&mut self) {
        let _later = self.channel.shutdown(std::net::Shutdown::Both);
        self.closed = true;
    }

    /// Reaps it, when it has ended or does so within the time.
    pub fn reap(&mut self, bound: Duration) -> bool {
        if self.reaped {
            return true;
        }
        if let Some(pidfd) = &self.pidfd {
            let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
            let bound = Timespec {
                tv_sec: i64::try_from(bound.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: bound.subsec_nanos().into(),
            };
            let _ready = rustix::event::poll(&mut fds, Some(&bound));
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        self.reaped = match rustix::process::waitid(WaitId::Pid(self.pid), options) {
            Ok(None) | Err(rustix::io::Errno::INTR) => false,
            // Or somebody else in this process has done it.
            Ok(Some(_)) | Err(_) => true,
        };
        self.reaped
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if self.owner != std::process::id() {
            return;
        }
        self.leave();
        let _ended = self.reap(Duration::ZERO);
    }
}
