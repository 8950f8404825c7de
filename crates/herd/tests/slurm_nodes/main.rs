//! Nodes that are not as comfortable as those of other tests: without a directory that they share with the
//! submitting side, without Slurm's commands, names or the right network (`lab/slurm`).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod bare;
mod images;
mod lab;
mod staged;
