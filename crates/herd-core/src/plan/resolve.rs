//! From a job and a backend's facts to a plan.

use std::collections::BTreeMap;

use super::facts::{BackendFacts, BackendKind, Submission};
use super::naming::{absolute, display_name};
use super::refuse::{Unsupported, refusals};
use super::{FORMAT, Plan, PlannedSetup};
use crate::spec::{Allocation, JobSpec, JobType, Launcher, ProcsPerNode, Resources};
use crate::units::Span;

/// How long ranks may take to end where the job does not say.
pub const DEFAULT_GRACE: Span = Span::from_secs(10);

/// What Ray does on this machine that nobody can forbid it.
const RAY_LISTENS: &str = "Ray listens on all addresses of this machine; it lets in only who has the \
     job's token (Ray 2.52 and newer), but anybody can read its metrics";

/// Priority where the job does not say.
const DEFAULT_PRIORITY: u32 = 50;

/// Resolves a job for one attempt on a backend, or says everything that stands against it.
pub fn plan(
    spec: &JobSpec,
    facts: &BackendFacts,
    submission: Submission,
) -> Result<Plan, Vec<Unsupported>> {
    let refused = refusals(spec, facts);
    if !refused.is_empty() {
        return Err(refused);
    }
    let (procs_per_node, gpus) = procs_and_gpus(spec, facts);
    let herd_starts = match spec.job_type {
        JobType::Pytorch => spec.launcher == Launcher::Herd,
        JobType::Mpi => true,
        JobType::Command | JobType::Ray => false,
    };
    let mut env = BTreeMap::new();
    if !facts.inherit_env {
        for name in &spec.env_from {
            if let Some(value) = submission.env.get(name) {
                env.insert(name.clone(), value.clone());
            }
        }
    }
    env.extend(spec.env.clone());
    Ok(Plan {
        format: FORMAT,
        job: submission.job,
        name: display_name(spec, submission.file_name.as_deref()),
        attempt: submission.attempt,
        generation: submission.generation,
        backend: facts.name.clone(),
        job_type: spec.job_type,
        launcher: spec.launcher,
        nodes: spec.nodes,
        ranks_per_node: if herd_starts { procs_per_node } else { 1 },
        procs_per_node,
        resources: Resources {
            gpus,
            ..spec.resources.clone()
        },
        walltime: spec.walltime,
        grace: spec
            .checkpoint
            .as_ref()
            .and_then(|c| c.grace)
            .unwrap_or(DEFAULT_GRACE),
        workdir: absolute(&submission.cwd, spec.workdir.as_deref().unwrap_or(".")),
        inherit_env: facts.inherit_env,
        env,
        secret_names: spec.secrets.keys().cloned().collect(),
        setup: spec.setup.as_ref().map(|setup| PlannedSetup {
            run: setup.run.clone(),
            on: setup.on.unwrap_or(facts.setup_on),
        }),
        run: spec.run.clone(),
        login_shell: facts.login_shell,
        checkpoint: spec.checkpoint.clone(),
        retry: spec.retry.clone(),
        array: spec.array.clone(),
        tasks_apart: tasks_apart(spec, facts),
        task: None,
        after: submission.after,
        priority: spec.priority.unwrap_or(DEFAULT_PRIORITY),
        shared_home: facts.shared_home,
    })
}

/// Whether each task of an array has an allocation of its own: on a cluster, unless the job wants one
/// for all.
pub(super) fn tasks_apart(spec: &JobSpec, facts: &BackendFacts) -> bool {
    let allocation = spec
        .slurm
        .as_ref()
        .map_or(Allocation::Task, |slurm| slurm.allocation);
    spec.array.is_some() && facts.kind == BackendKind::Slurm && allocation == Allocation::Task
}

/// What a person should know about a job that is accepted.
pub fn notes(spec: &JobSpec, facts: &BackendFacts, submission: &Submission) -> Vec<String> {
    let mut notes = Vec::new();
    if spec.resources.memory.is_some() && !facts.memory_enforced {
        notes.push(format!(
            "resources.memory is only accounted for on {}: no cgroup is writable there",
            facts.name
        ));
    }
    if spec.job_type == JobType::Ray && facts.kind == BackendKind::Local {
        notes.push(RAY_LISTENS.to_owned());
    }
    if let (Some(wanted), BackendKind::Local) = (&spec.resources.gpu_type, facts.kind) {
        notes.push(format!(
            "resources.gpu_type: {} does not ask its GPUs whether they are {wanted}",
            facts.name
        ));
    }
    for name in spec
        .env_from
        .iter()
        .filter(|name| !submission.env.contains_key(*name))
    {
        notes.push(format!(
            "env_from: {name} is not set, so it is not passed on"
        ));
    }
    notes
}

/// Processes per node, and the GPUs per node that go with them.
pub(super) fn procs_and_gpus(spec: &JobSpec, facts: &BackendFacts) -> (u32, Option<u32>) {
    match spec.procs_per_node {
        ProcsPerNode::Count(count) => (count, spec.resources.gpus),
        ProcsPerNode::Gpu => {
            let sharing = if facts.kind == BackendKind::Local {
                spec.nodes.max(1)
            } else {
                1
            };
            let all = facts.gpus_per_node.map(|gpus| gpus / sharing);
            let gpus = spec.resources.gpus.or(all);
            (gpus.unwrap_or(0), gpus)
        }
    }
}
