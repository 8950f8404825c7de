//! One side of the conversation: what comes is read on a thread, so that waiting has a bound.

use std::io::{self, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::wire::{self, Head};

/// How often a side says that it lives.
const BEAT: Duration = Duration::from_secs(5);
/// A side that says nothing for so long is gone.
const SILENCE: Duration = Duration::from_mins(1);
/// Messages that wait to be taken.
const QUEUE: usize = 8;

type Message = io::Result<Option<(Head, Vec<u8>)>>;

/// The two streams.
pub(super) struct Conversation<W> {
    coming: Receiver<Message>,
    to: W,
    heard: Instant,
    said: Instant,
}

impl<W: Write> Conversation<W> {
    /// Over these streams. The thread that reads ends with its stream, or with the process.
    pub(super) fn over(from: impl Read + Send + 'static, to: W) -> io::Result<Self> {
        let (queue, coming) = sync_channel(QUEUE);
        std::thread::Builder::new()
            .name("reads".to_owned())
            .spawn(move || read_all(from, &queue))?;
        Ok(Self {
            coming,
            to,
            heard: Instant::now(),
            said: Instant::now(),
        })
    }

    /// Says something.
    pub(super) fn say(&mut self, head: &Head, bytes: &[u8]) -> io::Result<()> {
        self.said = Instant::now();
        wire::write(&mut self.to, head, bytes)
    }

    /// What comes within this time, signs of life aside; an error at the end of the stream and after a
    /// long silence.
    pub(super) fn next(&mut self, bound: Duration) -> io::Result<Option<(Head, Vec<u8>)>> {
        let until = Instant::now() + bound;
        loop {
            if self.said.elapsed() > BEAT {
                self.say(&Head::Alive, b"")?;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.coming.recv_timeout(left.min(BEAT)) {
                Ok(message) => {
                    self.heard = Instant::now();
                    match message? {
                        Some((Head::Alive | Head::Unknown, _)) => {}
                        Some(message) => return Ok(Some(message)),
                        None => return Err(io::ErrorKind::UnexpectedEof.into()),
                    }
                }
                Err(RecvTimeoutError::Timeout) if self.heard.elapsed() > SILENCE => {
                    let text = format!("nothing was heard for {} s", SILENCE.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// What comes next, however long the other side needs while it lives.
    pub(super) fn wait(&mut self) -> io::Result<(Head, Vec<u8>)> {
        loop {
            if let Some(message) = self.next(BEAT)? {
                return Ok(message);
            }
        }
    }
}

fn read_all(from: impl Read, queue: &SyncSender<Message>) {
    let mut from = BufReader::new(from);
    loop {
        let message = wire::read(&mut from);
        let last = !matches!(message, Ok(Some(_)));
        if queue.send(message).is_err() || last {
            return;
        }
    }
}
