//! The client of a running job: asks its coordinator, or runs a command on one of its nodes with
//! this process's own streams.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use herd_core::exit::ProcessEnd;
use herd_link::message::{FromCoordinator, ToCoordinator, VERSION};
use herd_link::session::{
    CHUNK, RequestTooLong, SessionEvent, SessionMessage, SessionRequest, TerminalSize, WINDOW,
    stream,
};
use herd_link::{Channel, Frame, Key, LinkError, Receiver, Sender, StdioFrame};
use rustix::termios::{OptionalActions, Termios};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::executor::{HEARTBEAT, LEASE};
use crate::signals::Signals;

/// Bound on reaching the coordinator, and on its answer to a request.
const BOUND: Duration = Duration::from_secs(5);
/// The only session of a client.
const SESSION: u32 = 0;
/// What a program dies of that writes where nobody reads.
const SIGPIPE: u8 = 13;
/// Chunks of input that wait to be sent.
const INPUT_QUEUE: usize = 2;

/// Why the coordinator of a job could not help.
#[derive(Debug, Error)]
pub enum ClientError {
    /// It could not be reached, or the connection broke.
    #[error("could not talk to the job's driver at {address}")]
    Link {
        /// Where it should be.
        address: SocketAddr,
        /// What the link says.
        #[source]
        source: LinkError,
    },
    /// It did not answer in time.
    #[error("the job's driver at {address} has not answered for {seconds} s")]
    Silent {
        /// Where it is.
        address: SocketAddr,
        /// How long it was waited for.
        seconds: u64,
    },
    /// It refused.
    #[error("the job's driver refused: {reason}")]
    Refused {
        /// Its reason.
        reason: String,
    },
    /// The command is too long to be sent; nobody was asked.
    #[error(transparent)]
    TooLong(#[from] RequestTooLong),
    /// It is gone.
    #[error("the job ended meanwhile")]
    Gone,
    /// This process's own streams or signals failed.
    #[error("could not {what}")]
    Own {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// Where a job's coordinator is and what it takes to be let in.
#[derive(Debug)]
pub struct Target {
    /// Its address.
    pub address: SocketAddr,
    /// The job's key.
    pub key: Key,
    /// Job and attempt.
    pub channel: Channel,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEnd {
    /// How the command ended.
    pub end: ProcessEnd,
    /// Why it could not start, where it never ran.
    pub start_error: Option<String>,
}

impl Target {
    /// Asks for one thing and returns when it was taken up.
    pub async fn ask(&self, request: &ToCoordinator) -> Result<(), ClientError> {
        let asked = async {
            let (mut sender, mut receiver) = self.connect().await?;
            sender.send_json(request).await.map_err(self.link())?;
            sender.flush().await.map_err(self.link())?;
            while let Some(frame) = receiver.recv().await.map_err(self.link())? {
                match message(&frame) {
                    FromCoordinator::Done => return Ok(()),
                    FromCoordinator::Refused { reason } => {
                        return Err(ClientError::Refused { reason });
                    }
                    _ => {}
                }
            }
            Err(ClientError::Gone)
        };
        timeout(BOUND, asked)
            .await
            .unwrap_or_else(|_elapsed| Err(self.silent(BOUND)))
    }

    /// Runs a command in the job; its streams are this process's. Signals that come to this process
    /// are passed on to the command; the second of a kind that ends programs ends the session.
    pub async fn run(
        &self,
        request: SessionRequest,
        signals: &mut Signals,
    ) -> Result<SessionEnd, ClientError> {
        request.check_size()?;
        let (sender, receiver) = self.connect().await?;
        let own = |what| move |source| ClientError::Own { what, source };
        let raw = match request.terminal {
            Some(_) => Some(RawTerminal::enter().map_err(own("prepare the terminal"))?),
            None => None,
        };
        let mut resized =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::window_change())
                .map_err(own("watch the terminal's size"))?;
        let mut session = Session {
            target: self,
            sender,
            stdin_window: WINDOW,
        };
        session.say(SessionEvent::Start(request)).await?;
        let mut input = read_input().map_err(own("read the standard input"))?;
        let ended = session
            .serve(receiver, &mut input, signals, &mut resized, raw.is_some())
            .await;
        drop(raw);
        ended
    }

    pub(super) async fn connect(&self) -> Result<(Sender, Receiver), ClientError> {
        let (mut sender, receiver) =
            herd_link::connect(self.address, &self.key, &self.channel, BOUND)
                .await
                .map_err(self.link())?;
        let hello = ToCoordinator::Client { version: VERSION };
        sender.send_json(&hello).await.map_err(self.link())?;
        sender.flush().await.map_err(self.link())?;
        Ok((sender, receiver))
    }

    pub(super) fn link(&self) -> impl Fn(LinkError) -> ClientError + use<> {
        let address = self.address;
        move |source| ClientError::Link { address, source }
    }

    pub(super) fn silent(&self, bound: Duration) -> ClientError {
        ClientError::Silent {
            address: self.address,
            seconds: bound.as_secs(),
        }
    }
}

pub(super) fn message(frame: &Frame) -> FromCoordinator {
    frame.parse_json().unwrap_or(FromCoordinator::Unknown)
}

struct Session<'a> {
    target: &'a Target,
    sender: Sender,
    /// Bytes of input that may still be sent before the command has taken some.
    stdin_window: usize,
}

impl Session<'_> {
    async fn serve(
        &mut self,
        mut receiver: Receiver,
        input: &mut mpsc::Receiver<Vec<u8>>,
        signals: &mut Signals,
        resized: &mut tokio::signal::unix::Signal,
        terminal: bool,
    ) -> Result<SessionEnd, ClientError> {
        let mut beat = interval(HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut asked: Option<i32> = None;
        loop {
            tokio::select! {
                frame = receiver.recv() => {
                    heard = Instant::now();
                    match frame.map_err(self.target.link())? {
                        None => return Err(ClientError::Gone),
                        Some(Frame::Stdio(frame)) => match self.show(&frame).await {
                            // Whoever read it has seen enough; the command ends with us.
                            Err(ClientError::Own { source, .. })
                                if source.kind() == io::ErrorKind::BrokenPipe =>
                            {
                                let end = ProcessEnd::Signaled(SIGPIPE);
                                return Ok(SessionEnd { end, start_error: None });
                            }
                            shown => shown?,
                        },
                        Some(frame) => if let Some(end) = self.hear(message(&frame))? {
                            return Ok(end);
                        },
                    }
                }
                bytes = input.recv(), if self.stdin_window >= CHUNK => {
                    // A reader that is gone has said the end before.
                    if let Some(bytes) = bytes {
                        self.stdin_window -= bytes.len();
                        let frame = StdioFrame { session: SESSION, stream: stream::STDIN, bytes };
                        self.send(&Frame::Stdio(frame)).await?;
                    } else {
                        self.stdin_window = 0;
                    }
                }
                signal = signals.next() => {
                    if asked == Some(signal) {
                        let end = ProcessEnd::Signaled(u8::try_from(signal).unwrap_or(0));
                        return Ok(SessionEnd { end, start_error: None });
                    }
                    asked = Some(signal);
                    self.say(SessionEvent::Signal(signal)).await?;
                }
                _ = resized.recv(), if terminal => {
                    if let Some(size) = terminal_size() {
                        self.say(SessionEvent::Resize(size)).await?;
                    }
                }
                _ = beat.tick() => {
                    if heard.elapsed() > LEASE {
                        return Err(self.target.silent(LEASE));
                    }
                    let frame = ToCoordinator::Heartbeat;
                    self.sender.send_json(&frame).await.map_err(self.target.link())?;
                    self.sender.flush().await.map_err(self.target.link())?;
                }
            }
        }
    }

    fn hear(&mut self, message: FromCoordinator) -> Result<Option<SessionEnd>, ClientError> {
        match message {
            FromCoordinator::Session(SessionMessage { event, .. }) => match event {
                SessionEvent::Taken { bytes, .. } => {
                    self.stdin_window = WINDOW.min(self.stdin_window + bytes as usize);
                    Ok(None)
                }
                SessionEvent::Ended { end, start_error } => {
                    Ok(Some(SessionEnd { end, start_error }))
                }
                _ => Ok(None),
            },
            FromCoordinator::Refused { reason } => Err(ClientError::Refused { reason }),
            _ => Ok(None),
        }
    }

    /// Writes what the command wrote, and only then says that more may come.
    async fn show(&mut self, frame: &StdioFrame) -> Result<(), ClientError> {
        let written = if frame.stream == stream::STDERR {
            io::stderr().write_all(&frame.bytes)
        } else {
            let mut stdout = io::stdout();
            stdout.write_all(&frame.bytes).and_then(|()| stdout.flush())
        };
        written.map_err(|source| ClientError::Own {
            what: "write the command's output",
            source,
        })?;
        self.say(SessionEvent::Taken {
            stream: frame.stream,
            bytes: u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX),
        })
        .await
    }

    async fn say(&mut self, event: SessionEvent) -> Result<(), ClientError> {
        let message = ToCoordinator::Session(SessionMessage {
            session: SESSION,
            event,
        });
        let link = self.target.link();
        self.sender.send_json(&message).await.map_err(&link)?;
        self.sender.flush().await.map_err(link)
    }

    async fn send(&mut self, frame: &Frame) -> Result<(), ClientError> {
        let link = self.target.link();
        self.sender.send(frame).await.map_err(&link)?;
        self.sender.flush().await.map_err(link)
    }
}

/// Reads the standard input on a thread of its own, because a descriptor that is shared with other
/// programs must not be made non-blocking. The thread ends with the input or with this process.
fn read_input() -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (queue, input) = mpsc::channel(INPUT_QUEUE);
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            let mut stdin = io::stdin().lock();
            loop {
                let mut bytes = vec![0; CHUNK];
                let length = match stdin.read(&mut bytes) {
                    Ok(length) => length,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_unreadable) => 0,
                };
                bytes.truncate(length);
                if queue.blocking_send(bytes).is_err() || length == 0 {
                    return;
                }
            }
        })?;
    Ok(input)
}

/// Size of the terminal at the standard output.
pub fn terminal_size() -> Option<TerminalSize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    Some(TerminalSize {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// The terminal at the standard input passes every key on; dropped, it is what it was.
struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    fn enter() -> io::Result<Self> {
        let stdin = rustix::stdio::stdin();
        let before = rustix::termios::tcgetattr(stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(stdin, OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _gone =
            rustix::termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
    }
}
