//! What can go wrong on a link. Says its own layer only and never shows a key or a frame's bytes.

use std::io;
use std::net::SocketAddr;

/// A failure of the link.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The text is not a key.
    #[error("reading a key: expected 64 hexadecimal digits")]
    KeyFormat,

    /// The operating system gave no random bytes for a key.
    #[error("generating a key")]
    Random(#[source] getrandom::Error),

    /// The address could not be listened on.
    #[error("listening on {address}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },

    /// The system has given no new connection for a while (no file descriptors, for example).
    #[error("accepting a connection")]
    Accept(#[source] io::Error),

    /// No TCP connection to the address.
    #[error("connecting to {address}")]
    Connect {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },

    /// Connection and handshake together took too long.
    #[error("no link to {address} within {seconds:.1} s")]
    TimedOut {
        /// The address asked for.
        address: SocketAddr,
        /// The time allowed.
        seconds: f64,
    },

    /// The peer ended the connection in the handshake.
    #[error("the peer refused the handshake (another key, job or attempt, or it is overloaded)")]
    Refused,

    /// The peer's handshake message is not one under our key, job and attempt.
    #[error("the peer's handshake does not authenticate")]
    Handshake(#[source] snow::Error),

    /// Reading from the socket failed.
    #[error("reading from the peer")]
    Read(#[source] io::Error),

    /// Writing to the socket failed.
    #[error("writing to the peer")]
    Write(#[source] io::Error),

    /// A record was changed, repeated or left out on the way.
    #[error("record {record} does not authenticate")]
    Record {
        /// Its number in this direction, from 0.
        record: u64,
        /// What the cipher said.
        #[source]
        source: snow::Error,
    },

    /// A record could not be encrypted (all nonces are used up).
    #[error("encrypting record {record}")]
    Seal {
        /// Its number in this direction, from 0.
        record: u64,
        /// What the cipher said.
        #[source]
        source: snow::Error,
    },

    /// A record too short to hold its tag.
    #[error("a record of {length} bytes is shorter than its tag")]
    ShortRecord {
        /// The length it stated.
        length: usize,
    },

    /// A frame's length is outside its bounds.
    #[error("a frame of {length} bytes is outside 1 to {} bytes", crate::MAX_FRAME)]
    FrameLength {
        /// The length of kind and body.
        length: usize,
    },

    /// A frame's body does not fit its kind.
    #[error("malformed {kind} frame of {length} bytes")]
    Malformed {
        /// The kind's name.
        kind: &'static str,
        /// The length of kind and body.
        length: usize,
    },

    /// The byte stream ended without a close frame.
    #[error("the connection was cut")]
    Truncated,

    /// An earlier error has ended this half of the link.
    #[error("the link has already failed")]
    Failed,

    /// A control frame was expected.
    #[error("expected a control frame, got a {kind} frame")]
    NotControl {
        /// The kind's name.
        kind: &'static str,
    },

    /// A control frame is not the JSON that was expected.
    #[error("parsing a control frame")]
    Parse(#[source] serde_json::Error),

    /// A message cannot be written as JSON.
    #[error("writing a control frame")]
    Encode(#[source] serde_json::Error),
}
