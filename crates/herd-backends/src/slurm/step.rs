//! The step that starts the executors: `srun` on all nodes of the allocation, one task each.

use std::ffi::OsString;

use herd_core::plan::Plan;

use super::allocation::Allocation;

/// The arguments, up to those of the executor itself.
pub(super) fn argv(plan: &Plan, allocation: &Allocation, executor: &[OsString]) -> Vec<OsString> {
    let nodes = allocation.nodes.len().to_string();
    let mut argv: Vec<OsString> = ["srun", "-N", &nodes, "-n", &nodes]
        .map(OsString::from)
        .to_vec();
    let options = [
        "--ntasks-per-node=1",
        "--export=ALL",
        "--wait=0",
        "--kill-on-bad-exit=0",
        "--mem=0",
        "--quiet",
    ];
    argv.extend(options.map(OsString::from));
    if let Some(cpus) = plan.resources.cpus {
        argv.push(format!("--cpus-per-task={cpus}").into());
    }
    argv.extend(executor.iter().cloned());
    argv
}

/// Its environment: what `srun` would take as its defaults is left out.
pub(super) fn environment(
    own: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let kept = |name: &str| {
        !name.starts_with("SLURM_")
            || name.starts_with("SLURM_CONF")
            || matches!(name, "SLURM_JOB_ID" | "SLURM_JOBID")
    };
    own.filter(|(name, _)| name.to_str().is_none_or(kept))
        .collect()
}
