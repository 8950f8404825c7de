//! One call: an `ssh` with its three streams, bounded in time and in what it may say.
//!
//! What login scripts print comes first on both output streams, so an answer begins with a mark that
//! nobody can know beforehand.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::LoginError;
use crate::explain::{self, Said};
use crate::script;
use crate::ssh::Ssh;

/// Most that login scripts may print before the mark.
const MOST_NOISE: usize = 1 << 20;
/// Bytes read at once.
const CHUNK: usize = 64 * 1024;
/// How long a stream may take no byte.
const WRITE_BOUND: Duration = Duration::from_mins(1);
/// No bound: what is waited for is a program that may run as long as it likes.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);
/// How long an `ssh` that has closed its output may take to end.
const END_BOUND: Duration = Duration::from_secs(5);
/// How long its last words are waited for; a connection that stays open may hold the stream.
const WORDS_BOUND: Duration = Duration::from_millis(300);

/// A call under way. Dropping it ends the `ssh`.
#[derive(Debug)]
pub struct Channel {
    child: Child,
    stdin: Option<ChildStdin>,
    out: ChildStdout,
    buffer: Vec<u8>,
    err: Arc<Words>,
    host: String,
    mark: String,
    /// Whether the other side has answered.
    answered: bool,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The exit code; 128 and the number for a signal.
    pub code: u8,
    /// What was said on standard error.
    pub said: Said,
}

/// What comes on standard error, gathered by a thread that ends with the stream.
#[derive(Debug, Default)]
struct Words {
    gathered: Mutex<Gathered>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct Gathered {
    bytes: Vec<u8>,
    over: bool,
}

impl Channel {
    /// Starts a call that runs this script there. What comes on its standard error after the mark is
    /// shown where `relay` says so.
    pub(crate) fn open(
        ssh: &Ssh,
        script: &str,
        mark: &str,
        relay: bool,
    ) -> Result<Self, LoginError> {
        let mut command = ssh.command(script::REMOTE, false);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(LoginError::Start)?;
        let (Some(stdin), Some(out), Some(err)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(LoginError::Start(io::Error::other("it has no streams")));
        };
        let words = Arc::new(Words::default());
        let gather = Arc::clone(&words);
        let after = mark.as_bytes().to_vec();
        let thread = std::thread::Builder::new().name("ssh-stderr".to_owned());
        thread
            .spawn(move || gather.run(err, &after, relay))
            .map_err(LoginError::Start)?;
        rustix::io::ioctl_fionbio(&stdin, true).map_err(|error| LoginError::Start(error.into()))?;
        let mut channel = Self {
            child,
            stdin: Some(stdin),
            out,
            buffer: Vec::new(),
            err: words,
            host: ssh.target().host.clone(),
            mark: mark.to_owned(),
            answered: false,
        };
        channel.write(format!("{script}\n").as_bytes())?;
        Ok(channel)
    }

    /// What follows the next mark on its line.
    pub(crate) fn marked(&mut self, within: Duration) -> Result<String, LoginError> {
        let deadline = Instant::now() + within;
        let mark = format!("{} ", self.mark);
        let mut noise = 0;
        loop {
            let line = self.line(MOST_NOISE, deadline, within)?;
            if let Some(at) = find(&line, mark.as_bytes()) {
                self.answered = true;
                let rest = line.get(at + mark.len()..).unwrap_or_default();
                return Ok(String::from_utf8_lossy(rest).into_owned());
            }
            noise += line.len();
            if noise > MOST_NOISE {
                return Err(self.misunderstood("its login scripts print without end"));
            }
        }
    }

    /// The next line, without its end.
    pub fn line_within(&mut self, most: usize, within: Duration) -> Result<Vec<u8>, LoginError> {
        self.line(most, Instant::now() + within, within)
    }

    fn line(
        &mut self,
        most: usize,
        deadline: Instant,
        within: Duration,
    ) -> Result<Vec<u8>, LoginError> {
        let mut looked = 0;
        loop {
            let rest = self.buffer.get(looked..).unwrap_or_default();
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=looked + at).collect();
                line.pop();
                return Ok(line);
            }
            looked = self.buffer.len();
            if looked > most {
                return Err(self.misunderstood("a line is too long"));
            }
            if self.fill(deadline, within)? == 0 {
                return Err(self.over());
            }
        }
    }

    /// Exactly this many bytes.
    pub fn bytes(&mut self, number: usize, within: Duration) -> Result<Vec<u8>, LoginError> {
        while self.buffer.len() < number {
            if self.fill(Instant::now() + within, within)? == 0 {
                return Err(self.over());
            }
        }
        Ok(self.buffer.drain(..number).collect())
    }

    /// What is there, or comes within the bound; nothing at the end.
    pub fn some(&mut self, within: Option<Duration>) -> Result<Vec<u8>, LoginError> {
        if self.buffer.is_empty() {
            let within = within.unwrap_or(FOR_EVER);
            self.fill(Instant::now() + within, within)?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Reads once; 0 at the end of the stream.
    fn fill(&mut self, deadline: Instant, within: Duration) -> Result<usize, LoginError> {
        if !ready(self.out.as_fd(), PollFlags::POLLIN, deadline) {
            return Err(LoginError::Silent {
                host: self.host.clone(),
                seconds: within.as_secs(),
            });
        }
        let held = self.buffer.len();
        self.buffer.resize(held + CHUNK, 0);
        let read = loop {
            match self
                .out
                .read(self.buffer.get_mut(held..).unwrap_or_default())
            {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => break read,
                Err(_) => break 0,
            }
        };
        self.buffer.truncate(held + read);
        Ok(read)
    }

    /// Writes all of it.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), LoginError> {
        while !bytes.is_empty() {
            let Some(stdin) = &mut self.stdin else {
                return Err(self.over());
            };
            match stdin.write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let deadline = Instant::now() + WRITE_BOUND;
                    if !ready(stdin.as_fd(), PollFlags::POLLOUT, deadline) {
                        return Err(LoginError::Silent {
                            host: self.host.clone(),
                            seconds: WRITE_BOUND.as_secs(),
                        });
                    }
                }
                Err(_) => return Err(self.over()),
            }
        }
        Ok(())
    }

    /// Says that nothing more is sent.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// The stream to the other side, for whoever copies into it; it blocks from now on.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        let stdin = self.stdin.take()?;
        rustix::io::ioctl_fionbio(&stdin, false).ok()?;
        Some(stdin)
    }

    /// Waits for the end of the `ssh`, which has closed its output.
    pub fn end(&mut self) -> Result<Ended, LoginError> {
        self.stdin = None;
        let deadline = Instant::now() + END_BOUND;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => {
                    std::thread::park_timeout(Duration::from_millis(2));
                }
                Ok(None) | Err(_) => {
                    return Err(LoginError::Silent {
                        host: self.host.clone(),
                        seconds: END_BOUND.as_secs(),
                    });
                }
            }
        };
        let code = status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(Ended {
            code: u8::try_from(code).unwrap_or(255),
            said: self.err.said(),
        })
    }

    /// The error of a stream that ended too early.
    pub(crate) fn over(&mut self) -> LoginError {
        let host = self.host.clone();
        match self.end() {
            Ok(ended) if !self.answered => LoginError::Ssh {
                host,
                code: format!("code {}", ended.code),
                said: ended.said,
            },
            Ok(_) | Err(_) => LoginError::Broken {
                host,
                said: self.err.said(),
            },
        }
    }

    /// The error of an answer that is none.
    pub fn misunderstood(&self, what: impl Into<String>) -> LoginError {
        LoginError::Protocol {
            host: self.host.clone(),
            what: what.into(),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // It is ours, and nothing but the connection hangs on it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Words {
    /// What stands before the mark is of login scripts, and is of use only where no mark comes.
    fn run(&self, mut err: ChildStderr, mark: &[u8], relay: bool) {
        let mut chunk = vec![0; 4096];
        let mut marked = false;
        loop {
            let read = match err.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => break,
                Ok(read) => chunk.get(..read).unwrap_or_default(),
            };
            let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
            gathered.bytes.extend_from_slice(read);
            if !marked {
                let at = find(&gathered.bytes, mark);
                let end = at.and_then(|at| Some(at + find(gathered.bytes.get(at..)?, b"\n")? + 1));
                if let Some(end) = end {
                    marked = true;
                    gathered.bytes.drain(..end);
                }
            }
            if marked && relay {
                // A closed standard error leaves nobody to tell.
                drop(io::stderr().write_all(&gathered.bytes));
                gathered.bytes.clear();
            }
            let over = gathered.bytes.len().saturating_sub(explain::MOST);
            gathered.bytes.drain(..over);
        }
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.over = true;
        self.over.notify_all();
    }

    fn said(&self) -> Said {
        let gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let (gathered, _) = self
            .over
            .wait_timeout_while(gathered, WORDS_BOUND, |gathered| !gathered.over)
            .unwrap_or_else(PoisonError::into_inner);
        Said::new(&gathered.bytes)
    }
}

/// Waits until the stream can be used, or is closed.
fn ready(fd: BorrowedFd<'_>, flags: PollFlags, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(fd, flags)], timeout) {
            Ok(0) if left.is_zero() => return false,
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
