//! The step that starts the executors: `srun` on all nodes of the allocation, one task each.

use std::ffi::OsString;

use herd_core::plan::Plan;
use herd_slurm::call::step_keeps;
use herd_slurm::step::{Step, executor};

use super::allocation::Allocation;
use super::record::Site;

/// The arguments, up to those of the executor itself.
pub(super) fn argv(
    plan: &Plan,
    site: &Site,
    allocation: &Allocation,
    program: &[String],
) -> Vec<OsString> {
    let step = Step {
        // Slurm's numbers have 32 bits.
        job: allocation.run.job.parse().unwrap_or(0),
        nodes: u32::try_from(allocation.nodes.len()).unwrap_or(u32::MAX),
        cpus: plan.resources.cpus,
        gres: site.gres.clone(),
        container: None,
        binds_cpus: site.binds_cpus,
    };
    let call = executor(&step, program);
    let argv = std::iter::once(call.program.to_owned()).chain(call.args);
    argv.map(OsString::from).collect()
}

/// Its environment: without what `srun` would take as its options.
pub(super) fn environment(
    own: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    own.filter(|(name, _)| name.to_str().is_none_or(step_keeps))
        .collect()
}
