//! The Slurm backend. A job is one batch script, whose last line becomes the driver; one step starts
//! the executors of all nodes.

mod allocation;
pub mod array;
pub mod cancel;
pub mod cluster;
mod command;
mod container;
pub mod drive;
pub mod entry;
pub mod evidence;
mod listen;
pub mod observe;
mod parts;
pub mod record;
mod scontrol;
pub mod staging;
mod step;
pub mod submit;
pub mod submitting;
mod variables;

pub use allocation::{Allocation, AllocationError, SlurmRun};
pub use command::CommandError;
pub use container::ContainerError;

/// The backend's records outlive a node that loses its power.
const DURABILITY: herd_jobdir::Durability = herd_jobdir::Durability::Machine;
