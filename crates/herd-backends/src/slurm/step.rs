//! The step that starts the executors: `srun` on all nodes of the allocation, one task each.

use std::ffi::OsString;

use herd_core::plan::Plan;
use herd_link::message::RankStarters;
use herd_slurm::Call;
use herd_slurm::call::step_keeps;
use herd_slurm::mpi::{self, Library};
use herd_slurm::step::{Container, Step, executor, ranks};

use super::allocation::Allocation;
use super::record::Site;

/// The arguments, up to those of the executor itself.
pub(super) fn argv(
    plan: &Plan,
    site: &Site,
    allocation: &Allocation,
    container: Option<Container>,
    program: &[String],
) -> Vec<OsString> {
    let step = Step {
        container,
        ..step(plan, site, allocation)
    };
    let call = executor(&step, program);
    words(call).map(OsString::from).collect()
}

/// How MPI's ranks are started, up to what is the parent of each.
pub(super) fn rank_starters(plan: &Plan, site: &Site, allocation: &Allocation) -> RankStarters {
    // Another step would be another container, from which the executor is not seen.
    if site.image.is_some() {
        return RankStarters::default();
    }
    let of = |library| {
        let plugin = mpi::choose(library, &site.mpi)?;
        let step = step(plan, site, allocation);
        Some(words(ranks(&step, plan.ranks_per_node, plugin, &[])).collect())
    };
    RankStarters {
        open_mpi: of(Library::OpenMpi),
        mpich: of(Library::Mpich),
    }
}

fn step(plan: &Plan, site: &Site, allocation: &Allocation) -> Step {
    Step {
        job: allocation.run.job,
        nodes: u32::try_from(allocation.nodes.len()).unwrap_or(u32::MAX),
        cpus: plan.resources.cpus,
        gres: site.gres.clone(),
        container: None,
        binds_cpus: site.binds_cpus,
    }
}

fn words(call: Call) -> impl Iterator<Item = String> {
    std::iter::once(call.program.to_owned()).chain(call.args)
}

/// Its environment: without what `srun` would take as its options.
pub(super) fn environment(
    own: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    own.filter(|(name, _)| name.to_str().is_none_or(step_keeps))
        .collect()
}
