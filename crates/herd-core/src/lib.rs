//! What a job is and what may happen to it: job files, plans, states, events, exit codes.
//!
//! Everything here is a pure function over plain data. No file, no socket, no clock, no async:
//! time and randomness come in as values, and the crates above do what this one decides.

pub mod array;
pub mod diagnostic;
pub mod event;
pub mod exit;
pub mod hostlist;
pub mod id;
pub mod jobfile;
pub mod plan;
pub mod result;
pub mod retry;
pub mod rootcause;
pub mod schema;
pub mod sentence;
pub mod signal;
pub mod skypilot;
pub mod spec;
pub mod state;
pub mod text;
pub mod units;
pub mod validate;
pub mod yaml;

pub use id::JobId;
