//! Placeholder until the first code.
