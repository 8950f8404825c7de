//! One node's processes: starting them, following what they write, and ending them with all they
//! leave behind. A library: it installs no signal handler, becomes no subreaper, and waits for no
//! process that it did not start. What only a program may do is in [`sys`] and [`tree`] and says so.

pub mod accelerators;
pub mod agent;
pub mod cgroup;
pub mod child;
pub mod clock;
pub mod cpus;
pub mod error_file;
pub mod follow;
pub mod group;
pub mod lines;
pub mod pause;
mod python_json;
pub mod rendezvous;
pub mod spawn;
pub mod store;
pub mod supervision;
pub mod sys;
pub mod torchrun;
pub mod tree;
pub mod world;

pub use rustix::process::{Pid, Signal};

pub use child::{Child, ExitInfo};
pub use group::{Group, SpawnAllError};
pub use spawn::{Output, ProcessSpec, SpawnError, Stdin, look_for_program, spawn, spawn_in_group};
