//! Frames and their bytes. Pure: no cipher, no socket, and no meaning beyond the header's fields.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::LinkError;
use crate::resume::{Resume, Token};

/// The most bytes of a frame's kind and body together.
pub const MAX_FRAME: usize = 8 * 1024 * 1024;

/// Bytes of the length before each frame.
pub(crate) const LENGTH_BYTES: usize = 4;

const KIND_CLOSE: u8 = 0;
const KIND_CONTROL: u8 = 1;
const KIND_LOG: u8 = 2;
const KIND_STDIO: u8 = 3;
const KIND_RESUME: u8 = 4;
const KIND_RECEIVED: u8 = 5;

/// The close frame with its length.
pub(crate) const CLOSE: [u8; 5] = [0, 0, 0, 1, KIND_CLOSE];

/// One message on the link.
#[derive(Clone, PartialEq, Eq)]
pub enum Frame {
    /// JSON of the layer above.
    Control(Vec<u8>),
    /// A piece of a log.
    Log(LogFrame),
    /// A piece of an interactive session's input or output.
    Stdio(StdioFrame),
    /// The first frame of each connection of a conversation that outlives its connections, and the
    /// answer to it ([`crate::resume`]).
    Resume(Resume),
    /// How many frames of the conversation have been received so far.
    Received(u64),
}

/// A piece of a log at a known place, so that it can arrive twice or be asked for again.
#[derive(Clone, PartialEq, Eq)]
pub struct LogFrame {
    /// Global rank.
    pub rank: u32,
    /// 0 setup, 1 stdout, 2 stderr.
    pub stream: u8,
    /// Index in an array job.
    pub task: Option<u32>,
    /// Place of the first byte in the log's file.
    pub offset: u64,
    /// The bytes, exactly as written. None: the file has grown to `offset`, and the receiver, who
    /// has it at hand, reads it itself.
    pub bytes: Vec<u8>,
}

/// A piece of a session's stream.
#[derive(Clone, PartialEq, Eq)]
pub struct StdioFrame {
    /// The session's number on this connection.
    pub session: u32,
    /// 0 stdin, 1 stdout, 2 stderr.
    pub stream: u8,
    /// The bytes; none means the end of the stream.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// Reads a control frame's JSON.
    pub fn parse_json<T: DeserializeOwned>(&self) -> Result<T, LinkError> {
        match self {
            Self::Control(json) => serde_json::from_slice(json).map_err(LinkError::Parse),
            other => Err(LinkError::NotControl {
                kind: other.kind_name(),
            }),
        }
    }

    /// The name of the frame's kind, for messages.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Self::Control(_) => "control",
            Self::Log(_) => "log",
            Self::Stdio(_) => "stdio",
            Self::Resume(_) => "resume",
            Self::Received(_) => "received",
        }
    }

    /// All whole frames at the beginning of a piece of plaintext, and the rest. Frames of kinds
    /// unknown here are skipped; a close frame ends it. [`crate::Receiver`] is what reads a link;
    /// this is for who has plaintext already.
    pub fn read_all(mut plaintext: &[u8]) -> Result<(Vec<Self>, &[u8]), LinkError> {
        let mut frames = Vec::new();
        loop {
            let used = match decode(plaintext)? {
                Decoded::Frame(frame, used) => {
                    frames.push(frame);
                    used
                }
                Decoded::Unknown(used) => used,
                Decoded::Incomplete | Decoded::Close => return Ok((frames, plaintext)),
            };
            plaintext = plaintext.get(used..).unwrap_or_default();
        }
    }

    /// The frame as it stands in the plaintext. One over [`MAX_FRAME`] is refused.
    pub fn to_bytes(&self) -> Result<Vec<u8>, LinkError> {
        let (head, payload) = self.encode()?;
        Ok([head.as_bytes(), payload].concat())
    }

    /// The bytes before the payload (length, kind, fields), and the payload.
    pub(crate) fn encode(&self) -> Result<(Head, &[u8]), LinkError> {
        let mut head = Head::default();
        let payload = match self {
            Self::Control(json) => {
                head.push(&[KIND_CONTROL]);
                json
            }
            Self::Log(log) => {
                head.push(&[KIND_LOG]);
                head.push(&log.rank.to_be_bytes());
                head.push(&[log.stream, u8::from(log.task.is_some())]);
                head.push(&log.task.unwrap_or(0).to_be_bytes());
                head.push(&log.offset.to_be_bytes());
                &log.bytes
            }
            Self::Stdio(stdio) => {
                head.push(&[KIND_STDIO]);
                head.push(&stdio.session.to_be_bytes());
                head.push(&[stdio.stream]);
                &stdio.bytes
            }
            Self::Resume(resume) => {
                head.push(&[KIND_RESUME]);
                head.push(&resume.received.to_be_bytes());
                &resume.token.0[..]
            }
            Self::Received(count) => {
                head.push(&[KIND_RECEIVED]);
                head.push(&count.to_be_bytes());
                &[]
            }
        };
        head.finish(payload.len())?;
        Ok((head, payload))
    }
}

/// `Debug` shows sizes only: control frames carry secrets (I12).
impl fmt::Debug for Frame {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Control(json) => write!(formatter, "Control({} bytes)", json.len()),
            Self::Log(log) => log.fmt(formatter),
            Self::Stdio(stdio) => stdio.fmt(formatter),
            Self::Resume(resume) => write!(formatter, "Resume(received {})", resume.received),
            Self::Received(count) => write!(formatter, "Received({count})"),
        }
    }
}

impl fmt::Debug for LogFrame {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rank,
            stream,
            task,
            offset,
            bytes,
        } = self;
        write!(
            formatter,
            "Log(rank {rank}, stream {stream}, task {task:?}, "
        )?;
        write!(formatter, "offset {offset}, {} bytes)", bytes.len())
    }
}

impl fmt::Debug for StdioFrame {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            session,
            stream,
            bytes,
        } = self;
        write!(
            formatter,
            "Stdio(session {session}, stream {stream}, {} bytes)",
            bytes.len()
        )
    }
}

/// Length, kind and fields of a frame on the stack, so that a payload is never copied to join them.
#[derive(Debug)]
pub(crate) struct Head {
    bytes: [u8; 24],
    length: usize,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            bytes: [0; 24],
            length: LENGTH_BYTES,
        }
    }
}

impl Head {
    fn push(&mut self, field: &[u8]) {
        let end = self.length + field.len();
        self.bytes[self.length..end].copy_from_slice(field);
        self.length = end;
    }

    fn finish(&mut self, payload: usize) -> Result<(), LinkError> {
        let length = self.length - LENGTH_BYTES + payload;
        let stated = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME);
        let stated = stated.ok_or(LinkError::FrameLength { length })?;
        self.bytes[..LENGTH_BYTES].copy_from_slice(&stated.to_be_bytes());
        Ok(())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// What stands at the beginning of a piece of the frame stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// More bytes are needed.
    Incomplete,
    /// A frame, and how many bytes it took.
    Frame(Frame, usize),
    /// A frame of a kind unknown here, and how many bytes it took.
    Unknown(usize),
    /// The peer sends no more.
    Close,
}

/// Reads the first frame of `stream`. A bad length is refused before its body has arrived.
pub(crate) fn decode(stream: &[u8]) -> Result<Decoded, LinkError> {
    let Some((length, rest)) = stream.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(Decoded::Incomplete);
    };
    let length = u32::from_be_bytes(*length);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length == 0 || length > MAX_FRAME {
        return Err(LinkError::FrameLength { length });
    }
    let Some(frame) = rest.get(..length) else {
        return Ok(Decoded::Incomplete);
    };
    let malformed = |kind| LinkError::Malformed { kind, length };
    let (kind, body) = (frame[0], &frame[1..]);
    let frame = match kind {
        KIND_CLOSE if body.is_empty() => return Ok(Decoded::Close),
        KIND_CLOSE => return Err(malformed("close")),
        KIND_CONTROL => Frame::Control(body.to_vec()),
        KIND_LOG => Frame::Log(decode_log(body).ok_or_else(|| malformed("log"))?),
        KIND_STDIO => Frame::Stdio(decode_stdio(body).ok_or_else(|| malformed("stdio"))?),
        KIND_RESUME => Frame::Resume(decode_resume(body).ok_or_else(|| malformed("resume"))?),
        KIND_RECEIVED => {
            let count = body.first_chunk().filter(|_| body.len() == 8);
            Frame::Received(u64::from_be_bytes(
                *count.ok_or_else(|| malformed("received"))?,
            ))
        }
        _ => return Ok(Decoded::Unknown(LENGTH_BYTES + length)),
    };
    Ok(Decoded::Frame(frame, LENGTH_BYTES + length))
}

fn decode_log(body: &[u8]) -> Option<LogFrame> {
    let (rank, body) = body.split_first_chunk()?;
    let ([stream, has_task], body) = body.split_first_chunk()?;
    let (task, body) = body.split_first_chunk()?;
    let (offset, bytes) = body.split_first_chunk()?;
    let task = match has_task {
        0 => None,
        1 => Some(u32::from_be_bytes(*task)),
        _ => return None,
    };
    Some(LogFrame {
        rank: u32::from_be_bytes(*rank),
        stream: *stream,
        task,
        offset: u64::from_be_bytes(*offset),
        bytes: bytes.to_vec(),
    })
}

fn decode_stdio(body: &[u8]) -> Option<StdioFrame> {
    let (session, body) = body.split_first_chunk()?;
    let (stream, bytes) = body.split_first()?;
    Some(StdioFrame {
        session: u32::from_be_bytes(*session),
        stream: *stream,
        bytes: bytes.to_vec(),
    })
}

fn decode_resume(body: &[u8]) -> Option<Resume> {
    let (received, token) = body.split_first_chunk()?;
    Some(Resume {
        token: Token(token.try_into().ok()?),
        received: u64::from_be_bytes(*received),
    })
}

#[cfg(test)]
pub(crate) mod tests;
