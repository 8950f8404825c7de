//! Sessions: a command that somebody runs on a node of the job (`herd rsh`, `herd exec`), with its
//! streams. A client starts one at the coordinator, which passes everything on to the node.
//!
//! Flow: each side sends at most [`WINDOW`] bytes of a stream that the other has not said to have
//! taken, so that the coordinator never holds more than that however slow a reader is.

use herd_core::exit::ProcessEnd;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Bytes of one stream that may be under way.
pub const WINDOW: usize = 128 * 1024;
/// Most bytes of one [`crate::StdioFrame`] of a session.
pub const CHUNK: usize = 32 * 1024;
/// Most bytes of a [`SessionRequest`] as JSON. The kernel takes no more than about twice that for
/// arguments and environment together.
pub const MAX_REQUEST: usize = 1024 * 1024;

/// Numbers of a session's streams in [`crate::StdioFrame`].
pub mod stream {
    /// What the command reads.
    pub const STDIN: u8 = 0;
    /// What it writes.
    pub const STDOUT: u8 = 1;
    /// Its complaints; with a terminal, they are in [`STDOUT`].
    pub const STDERR: u8 = 2;
}

/// Numbers of the streams of the merged output in [`crate::StdioFrame`]. Of the index only such bytes
/// are sent as speak of text that was sent before.
pub mod follow {
    /// The text, `run.log`.
    pub const LOG: u8 = 1;
    /// What says of each piece of it where it came from, `run.index`.
    pub const INDEX: u8 = 2;
}

/// One message about one session. On each connection the client's side numbers them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMessage {
    /// The session's number on this connection.
    pub session: u32,
    /// What is said.
    pub event: SessionEvent,
}

/// What is said about a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionEvent {
    /// To the node: run this.
    Start(SessionRequest),
    /// To the node: pass a signal on to the command.
    Signal(i32),
    /// To the node: the terminal has another size.
    Resize(TerminalSize),
    /// Either way: bytes of a stream were taken, and as many more may come.
    Taken {
        /// The stream's number.
        stream: u8,
        /// How many.
        bytes: u32,
    },
    /// To the node: nobody listens any more; end it.
    Close,
    /// From the node: it ended, and all it wrote was sent.
    Ended {
        /// How.
        end: ProcessEnd,
        /// Why it could not start, where it never ran.
        #[serde(default)]
        start_error: Option<String>,
    },
}

/// A command to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRequest {
    /// Where.
    pub place: Place,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The terminal it is to have; none for plain pipes.
    #[serde(default)]
    pub terminal: Option<Terminal>,
}

impl SessionRequest {
    /// Refuses one of more than [`MAX_REQUEST`] bytes.
    pub fn check_size(&self) -> Result<(), RequestTooLong> {
        // All parts of a request can be written as JSON.
        let bytes = serde_json::to_vec(self).map_or(0, |json| json.len());
        if bytes > MAX_REQUEST {
            return Err(RequestTooLong { bytes });
        }
        Ok(())
    }
}

/// A command and its arguments are more than a session takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the command and its arguments take {bytes} bytes, and {MAX_REQUEST} are the most: \
     put what it needs into a file or its standard input"
)]
pub struct RequestTooLong {
    /// What they take as JSON.
    pub bytes: usize,
}

/// Where a session runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// On the node of this rank and with its environment.
    Rank(u32),
    /// On the node with this index.
    Node(u32),
    /// On the node with this name, as the allocation or a host file has it.
    Named(String),
}

/// A terminal as the client has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Its type, for `TERM`.
    pub kind: String,
    /// Its size.
    pub size: TerminalSize,
}

/// Size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}
