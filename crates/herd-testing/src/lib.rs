//! For tests alone: waiting for conditions with a deadline, looking at processes from outside, what
//! commands answer, a job's records, a terminal, a network that breaks, and a cluster. No crate uses it but in its
//! `[dev-dependencies]`. Everything here fails the test that calls it rather than returning an error.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail the test that calls them"
)]

pub mod answer;
pub mod job;
pub mod keeper;
pub mod process;
pub mod proxy;
pub mod slurm;
pub mod surroundings;
pub mod terminal;
pub mod wait;

pub use answer::Answer;
pub use keeper::Keeper;
pub use process::{alive, children, pids, signal, state};
pub use proxy::Proxy;
pub use slurm::SlurmLab;
pub use terminal::Terminal;
pub use wait::{eventually, within};
