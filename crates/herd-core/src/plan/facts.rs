//! What a plan needs to know besides the job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::JobId;
use crate::spec::{After, SetupOn};
use crate::units::Bytes;

/// What sort of backend it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// This machine.
    Local,
    /// A Slurm cluster.
    Slurm,
    /// A Kubernetes cluster with Kueue.
    Kueue,
    /// A Ray cluster.
    Ray,
}

/// What a backend is and can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendFacts {
    /// Its configured name.
    pub name: String,
    /// Its sort.
    pub kind: BackendKind,
    /// Whether ranks start from the executor's own environment.
    pub inherit_env: bool,
    /// Whether shell commands run in a login shell.
    pub login_shell: bool,
    /// Whether nodes see the job directory.
    pub shared_home: bool,
    /// Where setup runs when the job does not say.
    pub setup_on: SetupOn,
    /// GPUs of one node (local: of the machine); absent where unknown.
    pub gpus_per_node: Option<u32>,
    /// CPUs of one node (local: of the machine); absent where unknown.
    pub cpus_per_node: Option<u32>,
    /// Memory of one node (local: of the machine); absent where unknown.
    pub memory_per_node: Option<Bytes>,
    /// Whether a memory limit can be enforced.
    pub memory_enforced: bool,
    /// Most nodes of one job; absent where unknown.
    pub max_nodes: Option<u32>,
    /// Whether it runs containers.
    pub images: bool,
    /// Whether it knows where datasets are.
    pub datasets: bool,
    /// Whether it can ask for checkpoints.
    pub checkpoints: bool,
    /// Whether somebody keeps account of tenants.
    pub tenants: bool,
}

/// Emulated nodes of one machine: each is a process, and all are started before the first rank.
const LOCAL_NODES: u32 = 1024;

impl BackendFacts {
    /// This machine, with so many CPUs and GPUs.
    pub fn local(cpus: u32, gpus: u32) -> Self {
        Self {
            name: "local".to_owned(),
            kind: BackendKind::Local,
            inherit_env: true,
            login_shell: false,
            shared_home: true,
            setup_on: SetupOn::First,
            gpus_per_node: Some(gpus),
            cpus_per_node: Some(cpus),
            memory_per_node: None,
            memory_enforced: false,
            max_nodes: Some(LOCAL_NODES),
            images: false,
            datasets: false,
            checkpoints: false,
            tenants: false,
        }
    }
}

/// What one submission adds to the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The job.
    pub job: JobId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Generation, above every earlier one.
    pub generation: u64,
    /// Absolute directory that `workdir` is relative to: the job file's, else the caller's.
    pub cwd: String,
    /// Name of the job file, for jobs whose command has no name.
    pub file_name: Option<String>,
    /// The submitter's variables; only those named in `env_from` are looked at.
    pub env: BTreeMap<String, String>,
    /// `after` with its selectors resolved to full ids; the caller has the index.
    pub after: Vec<After>,
}

impl Submission {
    /// The first attempt of a job, submitted from a directory.
    pub fn first(job: JobId, cwd: impl Into<String>) -> Self {
        Self {
            job,
            attempt: 1,
            generation: 1,
            cwd: cwd.into(),
            file_name: None,
            env: BTreeMap::new(),
            after: Vec::new(),
        }
    }
}
