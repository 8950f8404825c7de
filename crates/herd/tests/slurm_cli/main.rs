//! The command line on a real Slurm (`lab/slurm`): what jobs are read from, what is told of a queue and of a
//! cluster, and what is done to jobs in the queue.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod arrays;
mod input;
mod lab;
mod queue;
mod sites;
