//! An array whose tasks are driven apart, each by a driver of its own on a node of its own.
//!
//! Each task has a directory like a job's, into which nobody else writes, so drivers on many nodes share
//! no file. Where the job stands is what its tasks' directories say together. Its result is written by
//! whoever sees first that all tasks have ended: the driver that ends last, else whoever looks.

use std::collections::BTreeSet;
use std::fs;

use herd_core::exit::{self, ProcessEnd};
use herd_core::plan::Plan;
use herd_core::result::{Failure, JobResult, RankResult, TaskFailure, TaskResult};
use herd_core::spec::Array;
use herd_core::state::{AttemptState, FailureKind, JobState};

use crate::error::JobDirError;
use crate::files::Durability;
use crate::job::JobDir;
use crate::runlog::record::DATA_NAME;
use crate::status::seen;
use crate::status::shown::TaskOverview;
use crate::tail::last_lines;
use crate::tasks::count;

/// The plan of a job whose tasks are driven apart; nothing for any other.
pub fn plan_of(job: &JobDir) -> Result<Option<Plan>, JobDirError> {
    let plan = job.attempt(1).read_plan()?;
    Ok(plan.filter(|plan| plan.tasks_apart && plan.array.is_some()))
}

/// Where one task stands by its own records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stand {
    /// No driver has taken it.
    Waiting,
    /// An attempt at it runs.
    Running,
    /// An attempt has ended and another follows; whether it had failed.
    Again {
        /// It failed, and was not preempted.
        failed: bool,
    },
    /// It has ended.
    Ended(Box<JobResult>),
}

/// Tasks that have a directory: all others wait.
pub fn begun(job: &JobDir) -> BTreeSet<u32> {
    let groups = fs::read_dir(job.tasks_dir());
    let groups = groups.into_iter().flatten().flatten();
    let tasks = groups
        .filter_map(|group| fs::read_dir(group.path()).ok())
        .flatten()
        .flatten();
    tasks
        .filter_map(|task| task.file_name().to_str()?.parse().ok())
        .collect()
}

/// Tasks without a result.
pub fn open(job: &JobDir, array: &Array) -> Result<Vec<u32>, JobDirError> {
    let begun = begun(job);
    let mut open = Vec::new();
    for &index in &array.indices {
        if !begun.contains(&index) || job.task(index).read_result()?.is_none() {
            open.push(index);
        }
    }
    Ok(open)
}

/// Where a task stands.
pub fn stand(job: &JobDir, index: u32) -> Result<Stand, JobDirError> {
    let task = job.task(index);
    if let Some(result) = task.read_result()? {
        return Ok(Stand::Ended(Box::new(result)));
    }
    let Some(latest) = task.latest_attempt()? else {
        return Ok(Stand::Waiting);
    };
    if let Some(end) = latest.read_end()? {
        let failed = end.state == AttemptState::Failed;
        return Ok(Stand::Again { failed });
    }
    if latest.read_owner()?.is_some() {
        return Ok(Stand::Running);
    }
    // The next attempt is written down before the task is queued again.
    let before = match latest.number().checked_sub(1).filter(|number| *number > 0) {
        Some(number) => task.attempt(number).read_end()?,
        None => return Ok(Stand::Waiting),
    };
    let failed = before.is_some_and(|end| end.state == AttemptState::Failed);
    Ok(Stand::Again { failed })
}

/// Where the tasks of a job stand that has no result.
pub fn overview(job: &JobDir, array: &Array) -> Result<TaskOverview, JobDirError> {
    let begun = begun(job);
    let mut overview = TaskOverview::default();
    overview.counts.total = number(array.indices.len());
    let (mut failed, mut stopped, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    for &index in &array.indices {
        let stand = if begun.contains(&index) {
            stand(job, index)?
        } else {
            Stand::Waiting
        };
        match stand {
            Stand::Ended(result) => match result.state {
                JobState::Succeeded => overview.counts.succeeded += 1,
                JobState::Cancelled => stopped.push(index),
                _ => failed.push(index),
            },
            Stand::Running => overview.running += 1,
            Stand::Again { failed: true } => overview.counts.retrying += 1,
            Stand::Again { failed: false } | Stand::Waiting => waiting.push(index),
        }
    }
    overview.counts.failed = number(failed.len());
    overview.counts.stopped = number(stopped.len());
    overview.not_started = number(waiting.len());
    overview.failed_tasks = Array::of(failed, None).ok();
    overview.stopped_tasks = Array::of(stopped, None).ok();
    overview.not_started_tasks = Array::of(waiting, None).ok();
    Ok(overview)
}

/// Whether any task has ended or begun its first attempt, and when the first of them did.
pub(crate) fn started_ms(job: &JobDir) -> Result<Option<u64>, JobDirError> {
    // A cluster starts tasks in the order of their indices.
    match begun(job).first() {
        Some(&first) => seen::started_ms(&job.task(first)),
        None => Ok(None),
    }
}

/// Writes the job's result where all of its tasks have ended, and removes what they shared. The result,
/// where there is one afterwards.
///
/// `never`: tasks without a record that will never have one, since the cluster says so. After a request
/// to cancel the job, those that nobody has taken never begin either: who takes one looks for the request
/// afterwards.
pub fn finish(
    job: &JobDir,
    plan: &Plan,
    never: &BTreeSet<u32>,
    now_ms: u64,
    durability: Durability,
) -> Result<Option<JobResult>, JobDirError> {
    if let Some(result) = job.read_result()? {
        return Ok(Some(result));
    }
    let Some(array) = &plan.array else {
        return Ok(None);
    };
    let cancelled = job.cancel_request()?;
    let mut ended = Vec::new();
    // Backwards: while any task has not ended, the last ones mostly have not, and one look is enough.
    for &index in array.indices.iter().rev() {
        let task = job.task(index);
        if let Some(result) = task.read_result()? {
            ended.push((index, result));
        } else if !never.contains(&index)
            && (cancelled.is_none() || task.attempt(1).read_owner()?.is_some())
        {
            return Ok(None);
        }
    }
    ended.reverse();
    let mut results = Vec::new();
    for (index, result) in &ended {
        // One that never began has a line where that is a failure.
        if result.attempts == 0 && result.state != JobState::Failed {
            continue;
        }
        let started = seen::started_ms(&job.task(*index))?;
        results.push(task_result(*index, result, started, plan.world_size()));
    }
    job.write_tasks(&results, durability)?;
    let mut whole = whole(array, &ended, &results, cancelled.as_deref(), now_ms);
    if let Some(Failure::TaskFailed(task)) = &mut whole.failure
        && (plan.world_size() == 1 || task.last_lines.is_empty())
    {
        // A rank's failure has what it wrote to stderr, a task is shown with both streams.
        let log = job.task(task.result.index).path().join(DATA_NAME);
        let of_task = format!("(task {}) ", task.result.index);
        let lines = last_lines(&log).into_iter();
        let bare = |line: String| {
            line.strip_prefix(&of_task)
                .map(str::to_owned)
                .unwrap_or(line)
        };
        task.last_lines = lines.map(bare).collect();
    }
    match job.write_result(&whole, durability) {
        Ok(()) | Err(JobDirError::AlreadyWritten(_)) => {}
        Err(error) => return Err(error),
    }
    job.delete_secrets()?;
    job.read_result()
}

/// The line of a task that has ended.
fn task_result(index: u32, result: &JobResult, started_ms: Option<u64>, ranks: u32) -> TaskResult {
    let rank = rank_of(result.failure.as_ref());
    // With one rank its end is the task's.
    let told = ranks == 1 && matches!(result.failure, Some(Failure::RankFailed(_)));
    let failure = result.failure.clone().filter(|_| !told);
    TaskResult {
        index,
        attempt: result.attempts,
        node: rank.map_or(0, |rank| rank.node),
        end: rank.map_or(ProcessEnd::Exited(result.exit_code), |rank| rank.end),
        started_ms: started_ms.unwrap_or(result.ended_ms),
        ended_ms: result.ended_ms,
        start_error: rank.filter(|_| told).and_then(|r| r.start_error.clone()),
        log_offset: 0,
        log_bytes: None,
        stopped: result.state == JobState::Cancelled,
        again: false,
        out_of_memory: kind(result) == Some(FailureKind::OutOfMemory),
        failure: failure.map(|failure| Box::new(brief(failure))),
    }
}

fn kind(result: &JobResult) -> Option<FailureKind> {
    result.failure.as_ref().map(Failure::kind)
}

fn rank_of(failure: Option<&Failure>) -> Option<&RankResult> {
    match failure? {
        Failure::RankFailed(rank) | Failure::OutOfMemory(rank) => Some(rank),
        _ => None,
    }
}

/// Without what the rank wrote: the task's own record has it.
fn brief(mut failure: Failure) -> Failure {
    if let Failure::RankFailed(rank) | Failure::OutOfMemory(rank) = &mut failure {
        rank.last_lines.clear();
        if let Some(error) = &mut rank.error {
            error.traceback = None;
        }
    }
    failure
}

/// The result of the job: that of the task that failed first, unless the job was cancelled.
fn whole(
    array: &Array,
    ended: &[(u32, JobResult)],
    results: &[TaskResult],
    cancelled: Option<&str>,
    now_ms: u64,
) -> JobResult {
    let total = number(array.indices.len());
    let counts = count(results, total, true);
    let failed = ended
        .iter()
        .filter(|(_, result)| result.state == JobState::Failed)
        .min_by_key(|(_, result)| result.ended_ms);
    let missing = counts.succeeded < total;
    let (state, failure, exit_code) = match failed {
        Some((index, result)) if cancelled.is_none() => {
            let line = results.iter().find(|line| line.index == *index);
            let failure = line.map(|line| {
                let rank = rank_of(result.failure.as_ref());
                Failure::TaskFailed(Box::new(TaskFailure {
                    result: line.clone(),
                    last_lines: rank.map(|rank| rank.last_lines.clone()).unwrap_or_default(),
                }))
            });
            // One that never began has no line, and a failure of its own all the same.
            let failure = failure.or_else(|| result.failure.clone());
            (JobState::Failed, failure, result.exit_code)
        }
        _ if missing => (JobState::Cancelled, None, exit::CANCELLED),
        _ => (JobState::Succeeded, None, exit::SUCCESS),
    };
    let reason = (state == JobState::Cancelled).then(|| match cancelled {
        Some(by) => format!("asked for by {by}"),
        None => format!(
            "{} of {total} tasks were cancelled",
            total - counts.succeeded
        ),
    });
    JobResult {
        state,
        rejection: None,
        failure,
        reason,
        exit_code,
        attempts: ended
            .iter()
            .map(|(_, result)| result.attempts)
            .max()
            .unwrap_or(0),
        ended_ms: ended
            .iter()
            .map(|(_, result)| result.ended_ms)
            .max()
            .unwrap_or(now_ms),
        tasks: Some(counts),
    }
}

fn number(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
