//! Where a job stands whose tasks are driven apart: what their directories say together.

use herd_core::plan::Plan;
use herd_core::result::Failure;
use herd_core::state::{AttemptState, JobState};

use super::facts::Facts;
use super::seen::read_seen;
use super::shown::{Brief, JobStatus, NodeStatus, TaskOverview};
use crate::apart::{self, overview};
use crate::error::JobDirError;
use crate::job::JobDir;

/// `facts`: the job's result, where it has one, and the number of its attempt.
pub(super) fn status(
    job: &JobDir,
    plan: &Plan,
    mut facts: Facts,
) -> Result<JobStatus, JobDirError> {
    let settled = facts.result.as_ref();
    let (brief, tasks) = match settled {
        Some(result) => {
            let tasks = result.tasks;
            let lines = job.read_tasks()?;
            facts.seen.started_ms = lines.iter().map(|line| line.started_ms).min();
            (facts.brief(), tasks)
        }
        None => unsettled(job, plan, facts.attempt)?,
    };
    let failure = facts.result.and_then(|result| result.failure);
    // Each task has nodes of its own; those of the one that the failure is about are told.
    let nodes = match &failure {
        Some(Failure::TaskFailed(task)) => nodes_of(&job.task(task.result.index))?,
        _ => Vec::new(),
    };
    Ok(JobStatus {
        id: job.id(),
        brief,
        failure,
        nodes,
        ranks: Vec::new(),
        tasks,
        warnings: Vec::new(),
        driver: None,
    })
}

/// The nodes of a task's latest attempt.
fn nodes_of(task: &JobDir) -> Result<Vec<NodeStatus>, JobDirError> {
    let Some(latest) = task.latest_attempt()? else {
        return Ok(Vec::new());
    };
    Ok(read_seen(&latest)?.nodes.into_values().collect())
}

fn unsettled(
    job: &JobDir,
    plan: &Plan,
    attempt: u32,
) -> Result<(Brief, Option<herd_core::result::TaskCounts>), JobDirError> {
    let tasks = match &plan.array {
        Some(array) => overview(job, array)?,
        None => TaskOverview::default(),
    };
    let started_ms = apart::started_ms(job)?;
    let cancelled = job.cancel_request()?;
    let state = if cancelled.is_some() {
        JobState::Cancelling.to_string()
    } else if tasks.running > 0 {
        AttemptState::Running.to_string()
    } else if started_ms.is_some() {
        JobState::Queued.to_string()
    } else {
        JobState::Accepted.to_string()
    };
    let brief = Brief {
        state,
        why: cancelled.map(|by| format!("asked for by {by}")),
        attempt,
        started_ms,
        ended_ms: None,
        exit_code: None,
        settled: false,
    };
    Ok((brief, Some(tasks.counts)))
}
