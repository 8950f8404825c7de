//! What a host and its supervisor say: JSON behind a length of four bytes, both from one release.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The most bytes of one message: the arguments and variables of all workers together.
pub const MESSAGE_MAX: usize = 256 * 1024 * 1024;
const LENGTH_BYTES: usize = 4;

/// Bytes that are text nearly always.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Text {
    /// Text.
    Utf8(String),
    /// Something else that the system takes.
    Bytes(Vec<u8>),
}

impl From<OsString> for Text {
    fn from(text: OsString) -> Self {
        text.into_string()
            .map_or_else(|text| Self::Bytes(text.as_bytes().to_vec()), Self::Utf8)
    }
}

impl From<Text> for OsString {
    fn from(text: Text) -> Self {
        match text {
            Text::Utf8(text) => text.into(),
            Text::Bytes(bytes) => Self::from_vec(bytes),
        }
    }
}

/// One worker to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// Program and arguments.
    pub argv: Vec<Text>,
    /// Variables over those that all have.
    pub env: Vec<(Text, Text)>,
    /// File that its standard output goes to, emptied first; the host's own stream where it is none.
    pub stdout: Option<Text>,
    /// The same for standard error.
    pub stderr: Option<Text>,
}

/// What the host asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Start these, all or none. Once, and first.
    Start {
        /// Variables of all workers.
        env: Vec<(Text, Text)>,
        /// The workers.
        workers: Vec<Worker>,
        /// An entry of the environment (`NAME=value`) that tells what workers of the host's own have
        /// started; none where it has no such workers.
        marker: Option<String>,
    },
    /// The host has started this worker itself: end it, and all below it, if the host dies.
    Watch {
        /// Its process.
        pid: i32,
    },
    /// The host has seen to the workers that it started itself.
    Unwatch,
    /// Send one worker a signal.
    Signal {
        /// Which one.
        index: usize,
        /// The signal's number.
        signal: i32,
        /// Whether its process group gets it, too.
        group: bool,
    },
    /// Ask all workers and their groups to end, and kill those that still run after the grace. Asked
    /// again it kills at once.
    Stop {
        /// The signal's number.
        signal: i32,
        /// Milliseconds.
        grace_ms: u64,
    },
}

/// What the supervisor says. After the last word it ends, and its end of the socket with it, when
/// nothing is left of the workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// All have started.
    Started {
        /// Their processes.
        pids: Vec<u32>,
    },
    /// One could not be started, and none is left.
    Failed {
        /// Which one.
        index: usize,
        /// The system's reason, 0 where it has none.
        errno: i32,
        /// File or program that it is about.
        subject: Option<Text>,
        /// In words.
        message: String,
    },
    /// A worker has ended.
    Exited {
        /// Which one.
        index: usize,
        /// Exit code, or minus the signal that ended it.
        code: i32,
        /// When that was seen, milliseconds since the Unix epoch.
        at_ms: u64,
        /// Whether it had been asked to end before.
        stopped: bool,
        /// Whether it could not be killed and was given up.
        abandoned: bool,
    },
}

/// A message that breaks the rules.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// Too long.
    #[error(
        "a message of {length} bytes is longer than {MESSAGE_MAX}\nhint: give the workers fewer or shorter arguments and variables"
    )]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// Not understood.
    #[error(
        "a message cannot be understood\nhint: the package and its herd-node are of different releases; install it again"
    )]
    Malformed(#[from] serde_json::Error),
}

/// A message with its length.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, ProtocolError> {
    let body = serde_json::to_vec(message)?;
    let length = body.len();
    let header = u32::try_from(length)
        .ok()
        .filter(|_| length <= MESSAGE_MAX)
        .ok_or(ProtocolError::TooLong { length })?;
    Ok([header.to_be_bytes().as_slice(), &body].concat())
}

/// Messages from bytes, however these are split.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
}

impl Decoder {
    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ProtocolError> {
        let Some((header, rest)) = self.buffer.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*header)).unwrap_or(usize::MAX);
        if length > MESSAGE_MAX {
            return Err(ProtocolError::TooLong { length });
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(body)?;
        self.buffer.drain(..LENGTH_BYTES + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_any_split_and_bytes_that_are_no_text() {
        let odd = Text::from(OsString::from_vec(vec![b'a', 0xff]));
        let worker = Worker {
            argv: vec![Text::Utf8("echo".to_owned()), odd.clone()],
            env: vec![(odd.clone(), odd)],
            stdout: None,
            stderr: Some(Text::Utf8("x".to_owned())),
        };
        let request = Request::Start {
            env: Vec::new(),
            workers: vec![worker],
            marker: None,
        };
        let stop = Request::Stop {
            signal: 15,
            grace_ms: 3,
        };
        let bytes = [encode(&request).unwrap(), encode(&stop).unwrap()].concat();
        for size in [1, 3, 7, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                decoder.feed(piece);
                while let Some(message) = decoder.take::<Request>().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, [request.clone(), stop.clone()]);
        }
    }

    #[test]
    fn what_is_too_long_or_no_message_is_refused() {
        let mut decoder = Decoder::default();
        decoder.feed(&[255; 4]);
        assert!(decoder.take::<Request>().is_err());
        let mut decoder = Decoder::default();
        decoder.feed(&[0, 0, 0, 1, b'{']);
        assert!(decoder.take::<Request>().is_err());
    }
}
