//! The complete environment of a process: what the job says over what the executor itself has.

use std::collections::BTreeMap;
use std::ffi::OsString;

use herd_link::message::Assign;

use crate::environment::{self, SCRUBBED, SLURM_MEMORY};

/// Variables that a process has from the executor's own environment where a job does not inherit all of
/// it: the user's, and what the batch system says of the allocation and its devices. What `srun` would
/// take as the shape of a step inside the job is not among them (task executor specification §4).
const KEPT: &[&str] = &[
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TMPDIR",
    "TZ",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
    "SLURMD_NODENAME",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_STEP",
    "SLURM_CLUSTER_NAME",
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "SLURM_GPUS_ON_NODE",
    "SLURM_GPUS_PER_NODE",
    "SLURM_JOBID",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_GPUS",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_QOS",
    "SLURM_MEM_PER_NODE",
    "SLURM_NNODES",
    "SLURM_NODELIST",
    "SLURM_RESTART_COUNT",
    "SLURM_SUBMIT_DIR",
    "SLURM_SUBMIT_HOST",
];

/// The complete environment of a process: what it inherits, then what the job says.
pub(crate) fn complete(
    assign: &Assign,
    own: BTreeMap<String, String>,
) -> Vec<(OsString, OsString)> {
    let says_memory = SLURM_MEMORY.iter().any(|name| own.contains_key(*name));
    let is_kept = |name: &str| {
        let second = says_memory && SLURM_MEMORY.contains(&name);
        let of_all = assign.plan.inherit_env || KEPT.contains(&name) || name.starts_with("LC_");
        of_all && !second && !SCRUBBED.contains(&name)
    };
    // A name that is no text is in no list.
    let kept = |name: &OsString| name.to_str().map_or(assign.plan.inherit_env, is_kept);
    let mut all: BTreeMap<OsString, OsString> =
        std::env::vars_os().filter(|(name, _)| kept(name)).collect();
    for (name, value) in environment::defaults(assign) {
        all.entry(name.into()).or_insert_with(|| value.into());
    }
    all.extend(
        own.into_iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    all.into_iter().collect()
}
