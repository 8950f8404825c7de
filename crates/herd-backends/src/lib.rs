//! Places where jobs run. Each backend takes a plan, starts its driver, and finds it again.

mod attempts;
pub mod local;
pub mod slurm;
