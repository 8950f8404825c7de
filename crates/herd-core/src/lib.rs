//! What a job is and what may happen to it: job files, plans, states, events, exit codes.
//!
//! Everything here is a pure function over plain data. No file, no socket, no clock, no async:
//! time and randomness come in as values, and the crates above do what this one decides.

pub mod event;
pub mod exit;
pub mod id;
pub mod plan;
pub mod result;
pub mod spec;
pub mod state;
pub mod units;

pub use id::JobId;
