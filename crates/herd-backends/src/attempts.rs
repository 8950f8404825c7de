//! What drivers of all backends do around an attempt: what it needs of the job's records, room for what
//! it writes, and what its end means for the job.

use herd_core::exit;
use herd_core::plan::Plan;
use herd_core::result::{AttemptEnd, Failure, JobResult, TaskCounts, TaskResult};
use herd_core::retry::{self, Decision};
use herd_core::state::{AttemptState, JobState};
use herd_core::units::Span;
use herd_jobdir::{AttemptDir, Durability, JobDir, JobDirError, tasks};
use herd_link::Key;
use herd_runtime::driver::{self, Attempt, NodePlan};
use herd_runtime::signals::Signals;

use crate::drive_error::DriveError;

/// The plan of an attempt.
pub(crate) fn read_plan(job: &JobDir, attempt: &AttemptDir) -> Result<Plan, DriveError> {
    let plan = attempt.read_plan()?;
    plan.ok_or_else(|| DriveError::missing(job, "plan"))
}

/// The job's key, and its text.
pub(crate) fn read_key(job: &JobDir) -> Result<(Key, String), DriveError> {
    let text = job.read_key()?;
    let text = text.ok_or_else(|| DriveError::missing(job, "key"))?;
    let key = Key::from_hex(&text).map_err(DriveError::Key)?;
    Ok((key, text))
}

/// What earlier attempts did of an array.
pub(crate) fn task_history(plan: &Plan, job: &JobDir) -> Result<Vec<TaskResult>, JobDirError> {
    match &plan.array {
        Some(_) if plan.attempt > 1 => job.read_tasks(),
        _ => Ok(Vec::new()),
    }
}

/// Drives one attempt to its end.
pub(crate) async fn drive_attempt(
    attempt: Attempt,
    signals: &mut Signals,
) -> Result<AttemptEnd, DriveError> {
    let number = attempt.plan.attempt;
    Box::pin(driver::run(attempt, signals))
        .await
        .map_err(|source| DriveError::Driver {
            attempt: number,
            source,
        })
}

/// Success where another process was first, of what is written once.
pub(crate) fn once(written: Result<(), JobDirError>) -> Result<(), JobDirError> {
    match written {
        Err(JobDirError::AlreadyWritten(_)) => Ok(()),
        other => other,
    }
}

/// Makes what an attempt writes into: logs of nodes, ranks and tasks.
pub(crate) fn make_room(
    job: &JobDir,
    dir: &AttemptDir,
    plan: &Plan,
    nodes: &[NodePlan],
) -> Result<(), JobDirError> {
    for node in nodes {
        dir.setup_log(&node.name)?;
    }
    if let Some(array) = &plan.array {
        job.create_task_dirs(&array.indices)?;
    }
    for rank in 0..plan.world_size() {
        dir.create_rank(rank)?;
    }
    Ok(())
}

/// The result of a job whose last attempt, if any, ended so.
pub(crate) fn result(end: Option<AttemptEnd>, attempts: u32, now_ms: u64) -> JobResult {
    JobResult {
        state: match end.as_ref().map(|end| end.state) {
            Some(AttemptState::Succeeded) => JobState::Succeeded,
            Some(AttemptState::Cancelled) | None => JobState::Cancelled,
            Some(_) => JobState::Failed,
        },
        rejection: None,
        reason: end
            .as_ref()
            .filter(|end| end.state == AttemptState::Cancelled)
            .and_then(|end| end.why.clone()),
        exit_code: end.as_ref().map_or(exit::CANCELLED, |end| end.exit_code),
        failure: end.and_then(|end| end.failure),
        attempts,
        ended_ms: now_ms,
        tasks: None,
    }
}

/// The pause before the next attempt at a job that is to be tried again after this end, with `used`
/// retries before it.
pub(crate) fn again(plan: &Plan, end: &AttemptEnd, used: u32) -> Option<Span> {
    // A task that failed has had its own attempts; the array is not run again for it.
    let of_a_task = |failure: &&Failure| matches!(failure, Failure::TaskFailed(_));
    let failure = end.failure.as_ref().filter(|failure| !of_a_task(failure))?;
    match retry::decide(plan.retry.as_ref(), failure, used) {
        Decision::Again { after } => Some(after),
        Decision::Stop(_) => None,
    }
}

/// Writes down the plan of the attempt after this one.
pub(crate) fn write_next(
    job: &JobDir,
    plan: &mut Plan,
    durability: Durability,
) -> Result<AttemptDir, JobDirError> {
    plan.attempt += 1;
    plan.generation += 1;
    let next = job.attempt(plan.attempt);
    next.create()?;
    next.write_plan(plan, durability)?;
    Ok(next)
}

/// Tasks by outcome, for an array.
pub(crate) fn count_tasks(plan: &Plan, job: &JobDir) -> Result<Option<TaskCounts>, JobDirError> {
    let Some(array) = &plan.array else {
        return Ok(None);
    };
    let total = u32::try_from(array.indices.len()).unwrap_or(u32::MAX);
    Ok(Some(tasks::count(&job.read_tasks()?, total, true)))
}
