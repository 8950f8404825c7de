//! A cluster's login node, reached from elsewhere through the user's own OpenSSH.
//!
//! `herd` here talks to a `herd` there: of the same content, copied there once, started by `ssh` for
//! each question. Nothing of what users write reaches a remote command line. What the login node has
//! of a job is mirrored in a job directory here, so that all commands read the same files as for a
//! local job; a connection that is gone makes these files old, never wrong.

mod channel;
mod digest;
mod error;
mod explain;
pub mod mirror;
pub mod program;
pub mod protocol;
mod script;
pub mod source;
mod ssh;
mod target;
pub mod workdir;

pub use channel::{Channel, Ended};
pub use digest::hex_digest;
pub use error::LoginError;
pub use explain::Said;
pub use ssh::Ssh;
pub use target::{BadTarget, Target};
