//! The encrypted connection between executors or clients and the coordinator.
//!
//! This crate carries frames: it authenticates a peer by the job's key, keeps bytes secret and in
//! order, and tells a clean end from a cut. It gives no meaning to what a frame says and never
//! decides that a peer is dead: heartbeats, barriers and leases belong to the layers above.
//!
//! # Use
//!
//! A coordinator binds a [`Listener`], an executor calls [`connect`]; both get a [`Sender`] and a
//! [`Receiver`], which may live in different tasks. [`Sender::send`] buffers, [`Sender::flush`]
//! writes, [`Sender::close`] ends cleanly. All of [`Listener::accept`], [`Receiver::recv`],
//! [`Sender::send`] and [`Sender::flush`] may be dropped half way (`select!`) and called again.
//!
//! # Wire format
//!
//! All integers are big-endian.
//!
//! **Handshake.** `Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s`; the pre-shared key is the job's
//! 32-byte [`Key`], the prologue the ASCII text `herd/1|JOB|ATTEMPT` of the [`Channel`].
//!
//! 1. The connecting side sends the first Noise message with an empty payload: 48 bytes.
//! 2. The listening side answers with the second one, also 48 bytes. If the first does not
//!    authenticate, it closes the connection without an answer.
//! 3. The connecting side sends one empty record (below). It proves that the first message was not
//!    a replay; only now does the listening side hand out the connection.
//!
//! Both messages have a fixed size, so nothing of a peer is parsed before it has shown the key.
//!
//! **Records.** Everything after the second message is a sequence of records in each direction:
//!
//! | bytes | meaning |
//! |---|---|
//! | 2 | length of the rest, 16 to 65,535 |
//! | 16 to 65,535 | Noise transport message: up to 65,519 bytes of plaintext and a 16-byte tag |
//!
//! Nonces count from 0 in each direction and are not sent. The plaintexts, one after another, form
//! a stream of frames; a frame may span records and a record may hold many frames or none.
//!
//! **Frames.**
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | length of the rest, 1 to 8,388,608 ([`MAX_FRAME`]) |
//! | 1 | kind |
//! | … | body |
//!
//! | kind | name | body |
//! |---|---|---|
//! | 0 | close | empty; nothing follows in this direction |
//! | 1 | control | JSON, not looked at here |
//! | 2 | log | rank u32, stream u8 (0 setup, 1 stdout, 2 stderr), has-task u8 (0 or 1), task u32 (0 without one), offset u64, then the bytes; none: the file has grown to `offset`, and the receiver reads it itself |
//! | 3 | stdio | session u32, stream u8 (0 stdin, 1 stdout, 2 stderr), then the bytes; none: end of that stream |
//! | 4 | resume | count u64 of frames received, token of 16 bytes |
//! | 5 | received | count u64 of frames received |
//!
//! A frame of any other kind is skipped and counted ([`Receiver::skipped`]), so that a newer peer
//! may use kinds that this release does not know. A length outside its bounds, a body that is too
//! short for its kind, or a record that does not authenticate ends the connection with an error.
//! The end of the byte stream without a close frame is [`LinkError::Truncated`].
//!
//! **Conversations** may outlive their connections: see [`resume`].

mod connect;
mod error;
mod frame;
mod handshake;
mod incoming;
mod key;
mod listener;
pub mod message;
mod receiver;
mod record;
pub mod resume;
mod sender;
pub mod session;

pub use connect::connect;
pub use error::LinkError;
pub use frame::{Frame, LogFrame, MAX_FRAME, StdioFrame};
pub use handshake::Channel;
pub use key::Key;
pub use listener::{Accepted, HANDSHAKE_TIMEOUT, Listener, MAX_HANDSHAKES};
pub use receiver::Receiver;
pub use sender::Sender;
