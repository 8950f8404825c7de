//! `herd` on a machine outside of a real cluster (`lab/slurm --home cluster`), which reaches the login node
//! with `ssh` alone: it has none of the cluster's files, none of Slurm's commands on its PATH, and no
//! configuration of Slurm.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod broken;
mod gate;
mod jobs;
mod laptop;
mod refused;
mod staged;
mod terminal;
