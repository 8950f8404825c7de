//! The agent: runs the workers of one node through their attempts (launcher specification §12).
//!
//! For each attempt it meets the other nodes, starts its workers together, shows and keeps what they
//! write, and ends all of them when one fails, however they take it. It sets nothing process-wide.

pub mod events;
pub mod layout;
mod look;
mod outcome;
mod run;
mod settings;
mod silence;
pub mod tee;
mod watch;

pub use look::Process;
pub use outcome::{AgentError, Outcome, WorkerEnd};
pub use run::{Agent, exit_code};
pub use settings::{Describe, FirstFailure, Route, Settings, Streams, Told, Worker, WorkerCommand};
pub use silence::SilentWorker;
