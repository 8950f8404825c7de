//! One command inside a job: a process with pipes or a terminal, and its streams within windows.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use herd_core::exit::ProcessEnd;
use herd_core::text::error_line;
use herd_launch::{Group, Output, Pid, ProcessSpec, Signal, Stdin, spawn};
use herd_link::StdioFrame;
use herd_link::message::Assign;
use herd_link::session::{
    CHUNK, Place, SessionEvent, SessionRequest, TerminalSize, WINDOW, stream,
};
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::node::{FromSession, Input, say};
use super::streams::End;
use crate::environment::{self, Meeting};
use crate::inherited::complete;

/// What a command gets between TERM and KILL when nobody listens any more.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// After the command's end, its streams are read until nothing comes for this long: what it left
/// running may hold them open for ever.
const DRAIN: Duration = Duration::from_millis(200);

/// A stream that the command writes.
struct Source {
    number: u8,
    end: Option<End>,
    /// Bytes that may still be sent before the client has taken some.
    window: usize,
}

impl Source {
    fn new(number: u8, end: Option<End>) -> Self {
        Self {
            number,
            end,
            window: WINDOW,
        }
    }

    /// The next bytes, none at the end. Pends while there is nothing to read or no room.
    async fn read(&self) -> Vec<u8> {
        match &self.end {
            // What cannot be read has ended.
            Some(end) if self.window > 0 => {
                end.read(self.window.min(CHUNK)).await.unwrap_or_default()
            }
            _ => std::future::pending().await,
        }
    }
}

pub(super) struct Command {
    group: Group,
    terminal: bool,
    stdin: Option<End>,
    stdin_waits: VecDeque<u8>,
    stdin_ended: bool,
    stdout: Source,
    stderr: Source,
}

impl Command {
    pub(super) fn start(
        assign: &Assign,
        request: &SessionRequest,
    ) -> Result<Self, (ProcessEnd, String)> {
        let broken = |what: &str, error: io::Error| {
            let code = herd_core::exit::HERD_FAILED;
            (ProcessEnd::Exited(code), format!("cannot {what}: {error}"))
        };
        let mut env = match request.place {
            Place::Rank(rank) => {
                let nowhere = Meeting {
                    address: String::new(),
                    port: 0,
                };
                let local = rank.saturating_sub(assign.first_rank);
                environment::of_rank(assign, local, &nowhere)
            }
            Place::Node(_) | Place::Named(_) => environment::of_node(assign),
        };
        if let Some(terminal) = &request.terminal {
            env.insert("TERM".to_owned(), terminal.kind.clone());
        }
        let mut spec = ProcessSpec::new(
            request.argv.iter().map(OsString::from).collect(),
            complete(assign, env),
            PathBuf::from(&assign.plan.workdir),
        );
        spec.cpus.clone_from(&assign.cpus);
        let master = if let Some(terminal) = &request.terminal {
            let (master, slave) =
                open_terminal(terminal.size).map_err(|e| broken("open a terminal", e))?;
            let stdout = slave
                .try_clone()
                .map_err(|e| broken("share the terminal", e))?;
            spec.stdin = Stdin::Terminal(slave);
            spec.stdout = Output::Fd(stdout);
            spec.stderr = Output::SameAsStdout;
            Some(master)
        } else {
            spec.stdin = Stdin::Pipe;
            spec.stdout = Output::Pipe;
            spec.stderr = Output::Pipe;
            None
        };
        let mut child = spawn(spec)
            .map_err(|error| (ProcessEnd::Exited(error.exit_code()), error_line(&error)))?;
        let end = |fd: Option<OwnedFd>| {
            fd.map(End::new)
                .transpose()
                .map_err(|e| broken("watch the command's streams", e))
        };
        let terminal = master.is_some();
        let (stdin, stdout, stderr) = match end(master)? {
            Some(master) => {
                let both = master
                    .duplicate()
                    .map_err(|e| broken("share the terminal", e))?;
                (Some(both), Some(master), None)
            }
            None => (
                end(child.take_stdin())?,
                end(child.take_stdout())?,
                end(child.take_stderr())?,
            ),
        };
        Ok(Self {
            group: Group::from_children(vec![child]),
            terminal,
            stdin,
            stdin_waits: VecDeque::new(),
            stdin_ended: false,
            stdout: Source::new(stream::STDOUT, stdout),
            stderr: Source::new(stream::STDERR, stderr),
        })
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        let pid = self.group.pids().first().copied()?;
        Pid::from_raw(i32::try_from(pid).ok()?)
    }

    /// Lives until the command has ended and what it wrote was sent.
    pub(super) async fn run(
        mut self,
        session: u32,
        mut input: mpsc::Receiver<Input>,
        out: mpsc::Sender<FromSession>,
    ) {
        let mut ended: Option<ProcessEnd> = None;
        let mut left = true;
        let mut listens = true;
        let mut cut = false;
        let mut quiet_at = Instant::now();
        loop {
            let open = self.stdout.end.is_some() || self.stderr.end.is_some();
            if !left && (!open || !listens) {
                break;
            }
            tokio::select! {
                next = input.recv(), if listens => match next {
                    Some(Input::Stdin(bytes)) => self.take_input(&bytes),
                    closed @ (Some(Input::Event(SessionEvent::Close)) | None) => {
                        listens = false;
                        cut = closed.is_none();
                        self.stdin = None;
                        self.group.stop(Signal::TERM, CLOSE_GRACE);
                    }
                    Some(Input::Event(event)) => self.obey(&event),
                },
                written = write_some(self.stdin.as_ref(), self.stdin_waits.make_contiguous()) => {
                    let taken = match written {
                        Ok(length) => length,
                        // Nobody reads it any more: what comes is taken and dropped.
                        Err(_closed) => {
                            self.stdin = None;
                            self.stdin_waits.len()
                        }
                    };
                    self.stdin_waits.drain(..taken);
                    let event = SessionEvent::Taken {
                        stream: stream::STDIN,
                        bytes: u32::try_from(taken).unwrap_or(u32::MAX),
                    };
                    say(&out, session, event).await;
                    self.close_finished_input();
                }
                bytes = self.stdout.read() => {
                    quiet_at = Instant::now() + DRAIN;
                    send(&mut self.stdout, session, bytes, &out).await;
                }
                bytes = self.stderr.read() => {
                    quiet_at = Instant::now() + DRAIN;
                    send(&mut self.stderr, session, bytes, &out).await;
                }
                exit = self.group.next_exit(), if left => match exit {
                    Some((_, exit)) => {
                        ended = Some(exit.end);
                        quiet_at = Instant::now() + DRAIN;
                    }
                    None => left = false,
                },
                () = sleep_until(quiet_at), if !left && self.may_send() => break,
            }
        }
        let failed = ProcessEnd::Exited(herd_core::exit::HERD_FAILED);
        // Without its input, what the command came to is nothing that it was asked for.
        let end = ended.filter(|_| !cut).unwrap_or(failed);
        let event = SessionEvent::Ended {
            end,
            start_error: None,
        };
        say(&out, session, event).await;
    }

    fn take_input(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            self.stdin_ended = true;
            self.close_finished_input();
        } else if self.stdin_waits.len() + bytes.len() > WINDOW {
            // The client does not keep to its window.
            self.group.stop(Signal::TERM, CLOSE_GRACE);
        } else {
            self.stdin_waits.extend(bytes);
        }
    }

    /// Whether silence is the command's and not that of a client that takes nothing.
    fn may_send(&self) -> bool {
        self.stdout.window > 0 && self.stderr.window > 0
    }

    fn close_finished_input(&mut self) {
        const END_OF_FILE: u8 = 4;
        if self.stdin_ended && self.stdin_waits.is_empty() {
            if self.terminal && self.stdin.is_some() {
                // A terminal has no end of its own: its user types one.
                self.stdin_ended = false;
                self.stdin_waits.push_back(END_OF_FILE);
                return;
            }
            self.stdin = None;
        }
    }

    fn obey(&mut self, event: &SessionEvent) {
        match *event {
            SessionEvent::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.group.signal_all(signal);
                }
            }
            SessionEvent::Resize(size) => {
                if let Some(end) = self.stdin.as_ref().filter(|_| self.terminal) {
                    // The size is a courtesy.
                    let _kept = rustix::termios::tcsetwinsize(end.fd(), winsize(size));
                }
            }
            SessionEvent::Taken { stream, bytes } => {
                let source = if stream == stream::STDOUT {
                    &mut self.stdout
                } else {
                    &mut self.stderr
                };
                source.window = WINDOW.min(source.window + bytes as usize);
            }
            SessionEvent::Start(_) | SessionEvent::Close | SessionEvent::Ended { .. } => {}
        }
    }
}

/// Writes some of what waits; pends where nothing does. With no reader left it fails at once.
async fn write_some(stdin: Option<&End>, waits: &[u8]) -> io::Result<usize> {
    match stdin {
        _ if waits.is_empty() => std::future::pending().await,
        Some(end) => end.write(waits).await,
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

async fn send(source: &mut Source, session: u32, bytes: Vec<u8>, out: &mpsc::Sender<FromSession>) {
    if bytes.is_empty() {
        source.end = None;
        return;
    }
    source.window -= bytes.len();
    let frame = StdioFrame {
        session,
        stream: source.number,
        bytes,
    };
    drop(out.send(FromSession::Stdio(frame)).await);
}

fn open_terminal(size: TerminalSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let name = rustix::pty::ptsname(&master, Vec::new())?;
    let slave = rustix::fs::open(
        name,
        OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::termios::tcsetwinsize(&master, winsize(size))?;
    Ok((master, slave))
}

fn winsize(size: TerminalSize) -> Winsize {
    Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
