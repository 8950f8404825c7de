//! What is shown of a job: the answers of this folder, without how they are found.

use herd_core::JobId;
use herd_core::exit::ProcessEnd;
use herd_core::result::{Failure, TaskCounts};
use herd_core::spec::Array;
use serde::{Deserialize, Serialize};

use crate::driver::DriverInfo;

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

/// The tasks of an array by where they stand, with the indices of those that did not succeed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TaskOverview {
    /// Those that ended, by outcome.
    #[serde(flatten)]
    pub counts: TaskCounts,
    /// Tasks that run now, without those of `retrying`.
    pub running: u32,
    /// Tasks that have not begun.
    pub not_started: u32,
    /// Indices as `array` of a job file takes them: `3,13-15`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_tasks: Option<Array>,
    /// Indices of those that herd ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_tasks: Option<Array>,
    /// Indices of those that have not begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_started_tasks: Option<Array>,
}
