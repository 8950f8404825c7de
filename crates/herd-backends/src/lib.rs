//! Places where jobs run. Each backend takes a plan, starts its driver, and finds it again.

mod after;
mod attempts;
mod drive_error;
pub mod local;
pub mod slurm;
