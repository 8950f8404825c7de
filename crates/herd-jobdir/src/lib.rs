//! The job directory: where jobs live on disk, and nothing else decides what became of them.
//!
//! Knows the layout, the atomic writes, the logs, the events and the retention. It starts no
//! process, opens no connection and reads the clock only to name temporary files; what is
//! written, and when, is decided by its callers. All calls block: the files are small and near.

pub mod apart;
pub mod attempt;
pub mod driver;
pub mod error;
pub mod events;
mod files;
pub mod gc;
pub mod home;
mod index;
pub mod job;
pub mod listing;
pub mod reserve;
pub mod runlog;
pub mod sanitize;
pub mod select;
pub mod status;
pub mod summary;
mod tail;
pub mod tasks;

pub use attempt::{AttemptDir, RankLogs};
pub use driver::{DriverInfo, Liveness};
pub use error::JobDirError;
pub use events::{EventWriter, read_events};
pub use files::Durability;
pub use home::Home;
pub use job::{EndRequest, JobDir};
pub use reserve::Reserve;
pub use select::SelectError;
pub use status::{JobStatus, finish_lost, status};
pub use summary::Summary;
pub use tail::last_lines;
pub use tasks::{TaskWriter, read_tasks};
