//! A job resolved for one attempt: nothing left to decide, immutable, comparable.
//!
//! [`plan`] decides; it asks no machine and reads no file: what it must know comes in as
//! [`BackendFacts`] and [`Submission`].

mod facts;
mod naming;
mod refuse;
mod resolve;
mod starter;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::JobId;
use crate::spec::{
    After, Array, Checkpoint, Command, JobType, Launcher, Resources, Retry, SetupOn,
};
use crate::units::Span;

pub use facts::{BackendFacts, BackendKind, Submission};
pub use naming::display_name;
pub use refuse::{Unsupported, faults};
pub use resolve::{DEFAULT_GRACE, notes, plan};

/// The newest plan format this release writes.
pub const FORMAT: u32 = 1;

/// Everything driver and executors need to know, except secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this structure.
    pub format: u32,
    /// The job.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Older generations are obeyed by nobody (I4).
    pub generation: u64,
    /// Backend that runs it.
    pub backend: String,
    /// How ranks start.
    #[serde(rename = "type")]
    pub job_type: JobType,
    /// Who starts the ranks of a `pytorch` job.
    pub launcher: Launcher,
    /// Number of nodes.
    pub nodes: u32,
    /// Ranks on each node: 1 for `command`, `ray` and `launcher: user`.
    pub ranks_per_node: u32,
    /// `procs_per_node` as the job asked for it: with `launcher: user`, torchrun's to start.
    pub procs_per_node: u32,
    /// Per node.
    pub resources: Resources,
    /// Bound on setup, run and grace together.
    pub walltime: Option<Span>,
    /// How long ranks may take to end after they were asked to.
    pub grace: Span,
    /// Absolute directory the job runs in.
    pub workdir: String,
    /// Whether ranks start from the executor's own environment (local) or from almost nothing.
    pub inherit_env: bool,
    /// Variables for every phase and rank, without secrets.
    pub env: BTreeMap<String, String>,
    /// Names of the variables whose values come from `secrets.json`.
    pub secret_names: Vec<String>,
    /// What prepares nodes.
    pub setup: Option<PlannedSetup>,
    /// What ranks run.
    pub run: Option<Command>,
    /// Whether a shell command runs in a login shell.
    pub login_shell: bool,
    /// How the job saves its state.
    pub checkpoint: Option<Checkpoint>,
    /// Which failures are tried again.
    pub retry: Option<Retry>,
    /// Task indices.
    pub array: Option<Array>,
    /// Whether each task of the array has an allocation of its own with what the job asks for, and a
    /// driver of its own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tasks_apart: bool,
    /// The task that this plan is for, where tasks are apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u32>,
    /// Jobs that must end first, as full ids in text.
    pub after: Vec<After>,
    /// 0 to 100, higher first.
    pub priority: u32,
    /// Whether nodes write their logs straight into the job directory.
    pub shared_home: bool,
}

impl Plan {
    /// How long before the time limit the ranks are asked to end, so that the grace is within it:
    /// the whole grace where they save a checkpoint in it, else at most a tenth of the limit, since
    /// most programs need little to end and all want the time that they asked for.
    pub fn time_limit_margin(&self) -> Option<Span> {
        let limit = self.walltime?;
        let most = limit.ms / if self.checkpoint.is_some() { 2 } else { 10 };
        Some(Span {
            ms: self.grace.ms.min(most),
        })
    }

    /// The plan of one task's first attempt, where tasks are apart: a job's, but for the index.
    #[must_use]
    pub fn of_task(&self, index: u32) -> Self {
        Self {
            array: None,
            tasks_apart: false,
            task: Some(index),
            ..self.clone()
        }
    }

    /// Ranks of all nodes together. A Ray job has one, its entry point on node 0.
    pub fn world_size(&self) -> u32 {
        match self.job_type {
            JobType::Ray => 1,
            JobType::Command | JobType::Pytorch | JobType::Mpi => {
                self.nodes.saturating_mul(self.ranks_per_node)
            }
        }
    }
}

/// Setup with the place decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedSetup {
    /// The command.
    pub run: Command,
    /// Where.
    pub on: SetupOn,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[cfg(test)]
mod tests;
