//! What runs while a job runs: the driver with its coordinator, the executor of each node, and the
//! guard that ends what a dead supervisor leaves behind.

pub mod clock;
pub mod command;
pub mod coordinator;
pub mod driver;
pub mod entry;
pub mod environment;
pub mod executor;
pub mod guard;
mod connections;
mod executors;
mod merge;
mod phase;
pub mod signals;
