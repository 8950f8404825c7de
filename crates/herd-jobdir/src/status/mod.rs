//! What users see of a job: result, end, events and the driver's liveness taken together.
//!
//! Reads only. [`finish_lost`] alone writes, for callers whose duty it is to end a job whose
//! driver died.

mod apart;
mod facts;
mod lost;
mod seen;
mod tasks;
#[cfg(test)]
mod tests;

use herd_core::JobId;
use herd_core::exit::ProcessEnd;
use herd_core::result::{Failure, TaskCounts};
use serde::{Deserialize, Serialize};

use crate::driver::{DriverInfo, Liveness};
use crate::error::JobDirError;
use crate::job::JobDir;
use crate::tasks::count;
use facts::Facts;
pub use lost::{finish_lost, is_over};
pub use tasks::{TaskOverview, task_overview};

/// The state shown for an attempt whose driver died without a word.
pub const DRIVER_LOST: &str = "DRIVER LOST";

/// Where a job stands, on one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brief {
    /// `RUNNING`, `PREEMPTED`, `DRIVER LOST`, …: the state of the job or of its attempt, whichever
    /// says more.
    pub state: String,
    /// What it waits for, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Latest attempt; 0 before the first.
    pub attempt: u32,
    /// Milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// Milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// The code herd ends with, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// Whether the job has its result and will never change.
    pub settled: bool,
}

/// Where a job stands, with its nodes and ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobStatus {
    /// The job.
    pub id: JobId,
    /// On one line.
    #[serde(flatten)]
    pub brief: Brief,
    /// Particulars of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Nodes of the latest attempt.
    pub nodes: Vec<NodeStatus>,
    /// Ranks of the latest attempt.
    pub ranks: Vec<RankStatus>,
    /// Tasks of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskCounts>,
    /// Warnings of the latest attempt, oldest first.
    pub warnings: Vec<String>,
    /// The latest attempt's driver, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverInfo>,
}

/// One node of the latest attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Node index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Process id of its executor.
    pub pid: u32,
    /// What was observed when it was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// One rank of the latest attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankStatus {
    /// Global rank.
    pub rank: u32,
    /// Node index.
    pub node: u32,
    /// Its process on that node; none where it could not start.
    pub pid: Option<u32>,
    /// How it ended, once it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<ProcessEnd>,
    /// Whether herd had asked for its end.
    pub stopped: bool,
}

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

/// When the first attempt at a job, or at a task with a directory of its own, began.
pub(crate) fn started_ms(job: &JobDir) -> Result<Option<u64>, JobDirError> {
    Ok(seen::read_seen(&job.attempt(1))?.started_ms)
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
