//! A job as its author means it: the job file's content after validation, nothing resolved yet.
//!
//! The job file's text becomes a [`JobSpec`] in `jobfile`; a [`JobSpec`] becomes a plan in `plan`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::state::JobState;
use crate::units::{Bytes, Span};

/// One job, validated. Amounts are per node, except `nodes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobSpec {
    /// Name shown to people; derived from the command where absent.
    pub name: Option<String>,
    /// Chooses defaults and how ranks start.
    #[serde(rename = "type")]
    pub job_type: JobType,
    /// Number of nodes; at least 1.
    pub nodes: u32,
    /// Ranks per node.
    pub procs_per_node: ProcsPerNode,
    /// Who starts the ranks of a `pytorch` job.
    pub launcher: Launcher,
    /// What each node needs.
    pub resources: Resources,
    /// Bound on setup, run and grace together.
    pub walltime: Option<Span>,
    /// Container image.
    pub image: Option<String>,
    /// Directory the job runs in; absolute after [`crate::plan`].
    pub workdir: Option<String>,
    /// Variables for every phase and rank.
    pub env: BTreeMap<String, String>,
    /// Names of the submitter's variables to pass on.
    pub env_from: Vec<String>,
    /// Variables whose values are secret.
    pub secrets: BTreeMap<String, SecretSource>,
    /// What runs on nodes before any rank.
    pub setup: Option<Setup>,
    /// What the ranks run; absent in a job that only sets up.
    pub run: Option<Command>,
    /// Named data the job reads.
    pub datasets: Vec<Dataset>,
    /// How the job saves its state.
    pub checkpoint: Option<Checkpoint>,
    /// Which failures are tried again.
    pub retry: Option<Retry>,
    /// Task indices of an array job.
    pub array: Option<Array>,
    /// Jobs that must end before this one starts.
    pub after: Vec<After>,
    /// Tenant.
    pub org: Option<String>,
    /// Project within the tenant.
    pub project: Option<String>,
    /// 0 to 100, higher first; 50 where absent.
    pub priority: Option<u32>,
    /// Backend's name, or `auto`.
    pub backend: Option<String>,
    /// Slurm's own settings.
    pub slurm: Option<SlurmOptions>,
    /// Kueue's own settings.
    pub kueue: Option<KueueOptions>,
}

impl Default for JobSpec {
    /// One node and nothing to run.
    fn default() -> Self {
        Self {
            name: None,
            job_type: JobType::default(),
            nodes: 1,
            procs_per_node: ProcsPerNode::default(),
            launcher: Launcher::default(),
            resources: Resources::default(),
            walltime: None,
            image: None,
            workdir: None,
            env: BTreeMap::new(),
            env_from: Vec::new(),
            secrets: BTreeMap::new(),
            setup: None,
            run: None,
            datasets: Vec::new(),
            checkpoint: None,
            retry: None,
            array: None,
            after: Vec::new(),
            org: None,
            project: None,
            priority: None,
            backend: None,
            slurm: None,
            kueue: None,
        }
    }
}

/// What kind of program the job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobType {
    /// One process per node.
    #[default]
    Command,
    /// Ranks that meet through torch's `env://`.
    Pytorch,
    /// Ranks started by an MPI library.
    Mpi,
    /// A Ray cluster over the nodes and one entry point.
    Ray,
}

/// How many ranks a node gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcsPerNode {
    /// This many.
    Count(u32),
    /// One per GPU of the node.
    Gpu,
}

impl Default for ProcsPerNode {
    fn default() -> Self {
        Self::Count(1)
    }
}

/// Who starts the ranks of a `pytorch` job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Launcher {
    /// Herdsman starts `procs_per_node` ranks on each node.
    #[default]
    Herd,
    /// The command runs once per node and starts its own ranks (torchrun).
    User,
}

/// What one node needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// CPUs.
    pub cpus: Option<u32>,
    /// Memory.
    pub memory: Option<Bytes>,
    /// GPUs.
    pub gpus: Option<u32>,
    /// GPU model, as the backend names it.
    pub gpu_type: Option<String>,
}

/// Where a secret's value is read from, at submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretSource {
    /// A variable of the submitter's environment.
    Env(String),
    /// A file; one trailing newline is dropped.
    File(String),
}

/// A command as text for a shell or as an argument vector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Command {
    /// Run by `bash -eo pipefail -c`.
    Shell(String),
    /// Run directly; never empty.
    Argv(Vec<String>),
}

/// What prepares a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The command.
    pub run: Command,
    /// Where; the backend's default when absent (local `first`, others `each`).
    pub on: Option<SetupOn>,
}

/// Which nodes run setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SetupOn {
    /// Node 0 alone.
    First,
    /// Every node.
    Each,
}

/// Named data with known locations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    /// Registered name.
    pub name: String,
    /// Whether the job can run without it being near.
    pub mode: DatasetMode,
    /// Where the job sees it.
    pub mount: Option<String>,
    /// Percentage that must be cached before a node counts as near.
    pub min_cached: Option<u8>,
}

/// Whether nearness of a dataset is demanded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatasetMode {
    /// Only nodes that have it.
    Required,
    /// Such nodes first.
    #[default]
    Preferred,
}

/// How the job saves and resumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Name of the checkpoint format (`torch-rank`, …).
    pub protocol: String,
    /// Directory with checkpoints.
    pub dir: Option<String>,
    /// Signal that asks for one, `SIGUSR1` style.
    pub signal: Option<String>,
    /// How long one may take.
    pub grace: Option<Span>,
    /// How often one is asked for.
    pub interval: Option<Span>,
    /// About how large one is.
    pub expected_size: Option<Bytes>,
}

/// Which failures are tried again, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Retries after the first attempt.
    pub max: u32,
    /// Failures that count; any failure of a node or driver where empty.
    pub on: Vec<RetryOn>,
    /// Pause before the next attempt, doubled each time.
    pub backoff: Option<Span>,
}

/// One failure that is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetryOn {
    /// A failure with this reason.
    Reason(crate::state::FailureKind),
    /// The job's exit code.
    Exit(u8),
}

/// Task indices of an array and how many run at once. In JSON as people write it, `0-99%10`: a
/// million indices stay a few bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Array {
    /// Indices, sorted, without duplicates, never empty.
    pub indices: Vec<u32>,
    /// Tasks at once; no limit of its own where absent.
    pub limit: Option<u32>,
}

/// A job that must end first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    /// Selector of the job: id, end of an id, name.
    pub job: String,
    /// Which end counts.
    pub when: AfterWhen,
}

/// Which end of an earlier job lets this one start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterWhen {
    /// It succeeded.
    #[default]
    Ok,
    /// It failed.
    Failed,
    /// It ended.
    Any,
}

impl AfterWhen {
    /// Whether a job that has ended so lets the next one run.
    pub fn is_met_by(self, ended: JobState) -> bool {
        match self {
            Self::Ok => ended == JobState::Succeeded,
            Self::Failed => ended == JobState::Failed,
            Self::Any => true,
        }
    }
}

/// Slurm's own settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlurmOptions {
    /// Partition.
    pub partition: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// Account.
    pub account: Option<String>,
    /// Further options of sbatch, from an allow-list.
    pub extra: Vec<String>,
    /// What has an allocation of its own, of an array.
    pub allocation: Allocation,
    /// Which of Slurm's variables the command finds.
    pub environment: SlurmEnvironment,
}

/// Which of Slurm's variables a job's command finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlurmEnvironment {
    /// Those that tell of the job, and none by which an `srun` in it would get another shape.
    #[default]
    Rank,
    /// Those that `sbatch` gives a batch script, which begins its steps itself.
    Script,
}

/// What has an allocation of its own, of an array on a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Allocation {
    /// Each task, with what the job asks for.
    #[default]
    Task,
    /// The job: its tasks share one, in which herd's own queue runs them.
    Job,
}

/// Kueue's own settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KueueOptions {
    /// Namespace.
    pub namespace: Option<String>,
    /// Local queue.
    pub queue: Option<String>,
    /// Priority class.
    pub priority_class: Option<String>,
}
