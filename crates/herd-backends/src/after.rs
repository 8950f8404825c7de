//! Jobs that others come after: what is said of one that waits in vain.

use herd_core::JobId;
use herd_core::plan::Plan;
use herd_core::spec::AfterWhen;
use herd_core::state::JobState;
use herd_jobdir::{Home, JobDir, listing};

/// Why a job will never start that comes after one that has ended so.
pub(crate) fn in_vain(other: JobId, ended: JobState, when: AfterWhen) -> String {
    let wants = match when {
        AfterWhen::Failed => "fails",
        AfterWhen::Ok | AfterWhen::Any => "succeeds",
    };
    format!(
        "job {} ended {ended}, and this one runs only if that {wants}",
        other.short()
    )
}

/// The same of the first such job of a plan, as far as their records can be read.
pub(crate) fn first_in_vain(job: &JobDir, plan: &Plan) -> Option<String> {
    let home = Home::at(job.path().ancestors().nth(2)?).ok()?;
    plan.after.iter().find_map(|after| {
        let id = listing::select(&home, &after.job).ok()?;
        let ended = home.open(id).ok()?.read_result().ok()??.state;
        (!after.when.is_met_by(ended)).then(|| in_vain(id, ended, after.when))
    })
}
