//! What runs while a job runs: the driver with its coordinator, the executor of each node, and the
//! guard that ends what a dead supervisor leaves behind.

mod array;
#[cfg(test)]
mod assigned;
pub mod clock;
pub mod command;
pub mod compat;
mod connections;
pub mod coordinator;
pub mod driver;
pub mod entry;
pub mod environment;
pub mod executor;
mod executors;
pub mod guard;
mod inherited;
mod last_resort;
pub mod launch;
mod log_files;
mod merge;
pub mod mpi;
mod phase;
mod rank_files;
mod ray;
mod records;
pub mod rsh;
mod running;
mod service;
pub mod session;
pub mod signals;
mod staged;
pub mod supervise;
mod tasks;
mod told;
mod uplink;
