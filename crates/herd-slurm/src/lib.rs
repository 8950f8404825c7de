//! Slurm's commands as types: what is asked, as argument vectors, and what comes back, as values.
//!
//! Nothing is started here, no file is read, no clock is asked. What the lines below say about
//! Slurm was tried on 22.05.8, 24.11.5 and 26.05.5; recordings of their output are in `tests/`.

pub mod accounting;
pub mod array;
pub mod call;
pub mod charge;
pub mod config;
pub mod control;
pub mod exit;
pub mod facts;
pub mod fit;
pub mod gres;
pub mod import;
pub mod job;
pub mod mpi;
pub mod node;
pub mod outcome;
pub mod partition;
pub mod quote;
pub mod reason;
pub mod refuse;
pub mod sacct;
pub mod sbatch;
pub mod script;
pub mod squeue;
pub mod staging;
pub mod state;
pub mod step;
pub mod time;
pub mod version;

mod text;

pub use call::Call;
pub use version::Version;
