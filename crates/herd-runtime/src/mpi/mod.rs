//! `type: mpi`: ranks that an MPI library's own `mpirun` starts.
//!
//! On node 0 runs the `mpirun` of the job's environment (`launch`). It reaches the other nodes by
//! `herd rsh`, and starts `herd shim` as each rank (`shim`), which asks the executor of its node
//! what to run (`ranks`) and is the rank's parent. So ranks have their logs, results and signals
//! as those of every other type, and the command line of `mpirun` holds nothing of the job.
//! Where a batch system can start the ranks itself, it does (`starter`), and the rest is the same.
//! `run` is the run phase of one node, `place` what the node needs for it.

mod launch;
mod library;
pub(crate) mod place;
mod ranks;
pub(crate) mod run;
pub mod shim;
mod starter;
mod wire;
