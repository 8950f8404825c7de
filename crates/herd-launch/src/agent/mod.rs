//! The agent: runs the workers of one node through their attempts (launcher specification §12).
//!
//! For each attempt it meets the other nodes, starts its workers together, shows and keeps what they
//! write, and ends all of them when one fails, however they take it. It sets nothing process-wide.

pub mod events;
pub mod layout;
mod look;
mod run;
mod silence;
pub mod tee;
mod watch;

pub use look::Process;
pub use run::{
    Agent, AgentError, Describe, FirstFailure, Outcome, Route, Settings, Streams, Told, Worker,
    WorkerCommand, WorkerEnd, exit_code,
};
pub use silence::SilentWorker;
