//! What stands against a job on a backend: every reason at once, each with what to change (I13).

use serde::Serialize;
use thiserror::Error;

use super::facts::{BackendFacts, BackendKind};
use super::resolve::{procs_and_gpus, tasks_apart};
use super::starter;
use crate::spec::{JobSpec, JobType, ProcsPerNode, RetryOn};
use crate::state::FailureKind;
use crate::units::Bytes;
use crate::validate;

/// A key that the backend cannot honour, or that contradicts another.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
#[error("{key}: {reason}")]
pub struct Unsupported {
    /// The key, as in the job file.
    pub key: String,
    /// Why not.
    pub reason: String,
    /// What to change.
    pub hint: String,
}

impl Unsupported {
    fn new(key: &str, reason: String, hint: &str) -> Self {
        Self {
            key: key.to_owned(),
            reason,
            hint: hint.to_owned(),
        }
    }
}

/// Every key that breaks a rule, whatever the backend.
pub fn faults(spec: &JobSpec) -> Vec<Unsupported> {
    validate::spec(spec)
        .into_iter()
        .map(|conflict| Unsupported {
            key: conflict.key,
            reason: conflict.refusal.message,
            hint: conflict
                .refusal
                .hint
                .unwrap_or_else(|| "change its value".to_owned()),
        })
        .collect()
}

/// Every key that stands in the way on a backend.
pub(super) fn refusals(spec: &JobSpec, facts: &BackendFacts) -> Vec<Unsupported> {
    let mut refused = faults(spec);
    let place = &facts.name;
    let mut refuse = |key: &str, reason: String, hint: &str| {
        refused.push(Unsupported::new(key, reason, hint));
    };
    if facts.kind == BackendKind::Ray {
        let reason = "the ray backend is not available yet".to_owned();
        refuse("backend", reason, "use `type: ray` on local");
    }
    if let Some((reason, hint)) = own_starter(spec) {
        refuse("run", reason, hint);
    }
    let asks_for_lost_drivers = spec
        .retry
        .as_ref()
        .is_some_and(|retry| retry.on.contains(&RetryOn::Reason(FailureKind::DriverLost)));
    if facts.kind == BackendKind::Local && asks_for_lost_drivers {
        let reason = format!("{place} has nobody who could retry after `driver-lost`");
        refuse(
            "retry.on",
            reason,
            "remove it there, and submit the job again",
        );
    }
    if let Some((key, reason, hint)) = without_shared_home(spec, facts) {
        refuse(key, reason, hint);
    }
    if spec.image.is_some() && !facts.images {
        let hint = "remove `image`, or choose a backend that runs containers";
        refuse("image", format!("{place} runs no containers"), hint);
    }
    if !spec.datasets.is_empty() && !facts.datasets {
        let hint = "remove `datasets` and name the data's path in the command";
        refuse(
            "datasets",
            format!("{place} does not know where datasets are"),
            hint,
        );
    }
    if spec.checkpoint.is_some() && !facts.checkpoints {
        let reason = format!("asking for checkpoints is not available yet on {place}");
        refuse(
            "checkpoint",
            reason,
            "remove `checkpoint`; the command may save by itself",
        );
    }
    for (key, value) in [("org", &spec.org), ("project", &spec.project)] {
        if value.is_some() && !facts.tenants {
            let reason = format!("{place} keeps no account of tenants");
            refuse(key, reason, "remove it, or submit through a server");
        }
    }
    refused.extend(amounts(spec, facts));
    refused
}

/// What an array needs of nodes that share no directory.
fn without_shared_home(
    spec: &JobSpec,
    facts: &BackendFacts,
) -> Option<(&'static str, String, &'static str)> {
    if facts.shared_home || spec.array.is_none() {
        return None;
    }
    let place = &facts.name;
    if tasks_apart(spec, facts) {
        let reason = format!(
            "on {place} tasks share no directory, which those with an allocation of their own need"
        );
        let hint = "run them in one allocation, `slurm: {allocation: job}`";
        return Some(("array", reason, hint));
    }
    // Only the first node's records come back.
    (spec.nodes > 1).then(|| {
        let reason = format!("on {place} nodes share no directory for the logs of tasks");
        ("nodes", reason, "run the tasks on one node")
    })
}

/// Amounts that the place does not have.
fn amounts(spec: &JobSpec, facts: &BackendFacts) -> Vec<Unsupported> {
    let mut refused = Vec::new();
    let place = &facts.name;
    let mut refuse = |key: &str, reason: String, hint: &str| {
        refused.push(Unsupported::new(key, reason, hint));
    };
    if let Some(most) = facts.max_nodes.filter(|most| spec.nodes > *most) {
        refuse(
            "nodes",
            format!("{place} gives at most {most} nodes, not {}", spec.nodes),
            "ask for fewer",
        );
    }
    // Emulated nodes share one machine.
    let sharing = if facts.kind == BackendKind::Local {
        u64::from(spec.nodes)
    } else {
        1
    };
    let mut fits =
        |key: &str, (one, many): (&str, &str), wanted: Option<u32>, most: Option<u32>| {
            let wanted = u64::from(wanted.unwrap_or(0)) * sharing;
            if let Some(most) = most.filter(|most| wanted > u64::from(*most)) {
                let what = if wanted == 1 { one } else { many };
                let has = if most == 0 {
                    "none".to_owned()
                } else {
                    most.to_string()
                };
                let reason = format!("asks for {wanted} {what}, and {place} has {has}");
                let hint = if most == 0 {
                    "leave it out; `herd doctor` says what this machine has"
                } else if sharing > 1 {
                    "ask for fewer, or for fewer nodes: on one machine they share it"
                } else {
                    "ask for fewer"
                };
                refuse(key, reason, hint);
            }
        };
    fits(
        "resources.cpus",
        ("CPU", "CPUs"),
        spec.resources.cpus,
        facts.cpus_per_node,
    );
    fits(
        "resources.gpus",
        ("GPU", "GPUs"),
        spec.resources.gpus,
        facts.gpus_per_node,
    );
    let memory = spec.resources.memory.map_or(0, |memory| memory.0);
    let together = Bytes(memory.saturating_mul(sharing));
    if let Some(most) = facts.memory_per_node.filter(|most| together > *most) {
        let (asked, most) = (together.approximate(), most.approximate());
        let reason = format!("asks for {asked}, and {place} has {most}");
        let hint = if sharing > 1 {
            "ask for less, or for fewer nodes: on one machine they share it"
        } else {
            "ask for less"
        };
        refuse("resources.memory", reason, hint);
    }
    if spec.procs_per_node == ProcsPerNode::Gpu && procs_and_gpus(spec, facts).0 == 0 {
        let reason =
            format!("is `gpu`, but the number of GPUs per node on {place} is 0 or unknown");
        refuse(
            "procs_per_node",
            reason,
            "set `resources.gpus`, or write a number",
        );
    }
    refused
}

/// A launcher of ranks in a job whose ranks herd starts: why not, and what to change.
fn own_starter(spec: &JobSpec) -> Option<(String, &'static str)> {
    let starter = starter::find(spec)?;
    let shown = &starter.shown;
    Some(match (spec.job_type, starter.of_mpi) {
        (JobType::Mpi, true) => (
            format!("has `{shown}`, which herd itself starts for `type: mpi`"),
            "give the MPI program and its arguments alone; `nodes` and `procs_per_node` count \
             its ranks",
        ),
        (JobType::Pytorch, false) => (
            format!(
                "`{shown}` starts ranks, and so does herd with `launcher: herd`: each of herd's \
                 ranks would train on its own"
            ),
            "set `launcher: user`, which starts it once on each node, or give the training \
             program alone, `run: python train.py`",
        ),
        (_, true) => (
            format!("`{shown}` starts MPI ranks, and each rank that herd starts would do so"),
            "set `type: mpi` and give the MPI program and its arguments alone",
        ),
        (_, false) => (
            format!("`{shown}` starts torch's ranks, and each of the MPI ranks would do so"),
            "set `type: pytorch` and `launcher: user`",
        ),
    })
}
