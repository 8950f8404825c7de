//! The local backend: `nodes: N` are N executors on this machine, each over the real link.
//!
//! The driver is a process of the user: the foreground one of `herd run`, or the detached one of
//! `herd submit`. There is no server; the job directory holds everything.

mod announce;
pub mod cancel;
pub mod drive;
pub mod exec;
pub mod leases;
pub mod machine;
pub mod submit;
pub mod unstarted;
mod waits;

pub use announce::Announcer;
pub use cancel::{CancelError, cancel};
pub use drive::{DriveError, DriveOptions, drive};
pub(crate) use exec::target;
pub use exec::{ExecError, exec, follow};
pub use submit::{SubmitError, Submitted, submit};
pub use unstarted::{Taken, end_unstarted, taken};

/// The backend's name in job files and records.
pub const NAME: &str = "local";

/// A power cut ends a local job anyway, so its records need not outlive one: each sync of a disk
/// would cost more than starting the job.
const DURABILITY: herd_jobdir::Durability = herd_jobdir::Durability::Process;
