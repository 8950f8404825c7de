//! Placeholder until the first code.

pub mod guard;
