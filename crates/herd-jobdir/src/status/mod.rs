//! What users see of a job: result, end, events and the driver's liveness taken together.
//!
//! Reads only. [`finish_lost`] alone writes, for callers whose duty it is to end a job whose
//! driver died.

mod apart;
mod facts;
mod lost;
pub(crate) mod seen;
pub(crate) mod shown;
mod tasks;
#[cfg(test)]
mod tests;

use herd_core::result::TaskCounts;

use crate::driver::{DriverInfo, Liveness};
use crate::error::JobDirError;
use crate::job::JobDir;
use crate::tasks::count;
use facts::Facts;
pub use lost::{finish_lost, is_over};
pub use shown::{Brief, DRIVER_LOST, JobStatus, NodeStatus, RankStatus, TaskOverview};
pub use tasks::task_overview;

/// Where a job stands now.
pub fn status(job: &JobDir) -> Result<JobStatus, JobDirError> {
    // The result first: whatever is read after it is at least as new.
    let result = job.read_result()?;
    let latest = job.latest_attempt()?;
    let mut facts = Facts {
        result,
        ..Facts::default()
    };
    if let Some(attempt) = &latest {
        facts.attempt = attempt.number();
        facts.process = attempt.process()?;
        // Where tasks are driven apart, nobody drives the job itself.
        if facts.process.is_none()
            && let Some(plan) = crate::apart::plan_of(job)?
        {
            return apart::status(job, &plan, facts);
        }
        // Liveness before `end`: a driver that ends between the two has written it by then.
        facts.liveness = facts.process.as_ref().map(DriverInfo::liveness);
        facts.end = attempt.read_end()?;
        facts.seen = seen::read_seen(attempt)?;
        if attempt.number() > 1 {
            // A job has run since its first attempt began.
            let first = seen::read_seen(&job.attempt(1))?;
            facts.seen.started_ms = first.started_ms.or(facts.seen.started_ms);
        }
    }
    if facts.result.is_none() && facts.liveness == Some(Liveness::Dead) {
        // It may have written the result between the first look and its death.
        facts.result = job.read_result()?;
    }
    let tasks = match facts.result.as_ref().and_then(|result| result.tasks) {
        Some(counts) => Some(counts),
        None => count_tasks(job, facts.result.is_some())?,
    };
    let brief = facts.brief();
    let failure = facts
        .result
        .as_ref()
        .and_then(|result| result.failure.clone())
        .or_else(|| facts.end.as_ref().and_then(|end| end.failure.clone()));
    Ok(JobStatus {
        id: job.id(),
        brief,
        failure,
        nodes: facts.seen.nodes.into_values().collect(),
        ranks: facts.seen.ranks.into_values().collect(),
        tasks,
        warnings: facts.seen.warnings,
        driver: facts.process.filter(|driver| !driver.address.is_empty()),
    })
}

/// Tasks of an array by outcome. Without a plan to be read, those that ended are all there are.
fn count_tasks(job: &JobDir, over: bool) -> Result<Option<TaskCounts>, JobDirError> {
    let results = job.read_tasks()?;
    let plan = job.attempt(1).read_plan()?;
    let total = match plan.and_then(|plan| plan.array) {
        Some(array) => array.indices.len(),
        None if results.is_empty() => return Ok(None),
        None => results.len(),
    };
    let total = u32::try_from(total).unwrap_or(u32::MAX);
    Ok(Some(count(&results, total, over)))
}
