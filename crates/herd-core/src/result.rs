//! What became of ranks, attempts and jobs.

use serde::{Deserialize, Serialize};

use crate::exit::{self, ProcessEnd};
use crate::state::{AttemptState, FailureKind, RejectionKind};

/// One rank's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankResult {
    /// Global rank.
    pub rank: u32,
    /// Node index.
    pub node: u32,
    /// How its process ended.
    pub end: ProcessEnd,
    /// Milliseconds since the Unix epoch, observed at the end.
    pub ended_ms: u64,
    /// Whether herd had asked for its end before it ended: such a rank is never the first cause.
    pub stopped: bool,
    /// Why it could not start, where it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_error: Option<String>,
    /// What its error file says, where it wrote one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RankError>,
    /// The last lines it wrote to stderr, bounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
    /// Processor time used, milliseconds.
    #[serde(default)]
    pub cpu_ms: u64,
    /// Largest resident memory, KiB.
    #[serde(default)]
    pub peak_kib: u64,
    /// Whether the kernel killed a process of its node for want of memory before it failed.
    #[serde(default)]
    pub out_of_memory: bool,
}

impl RankResult {
    /// A rank that ended by itself at this time and said nothing.
    pub fn ended(rank: u32, node: u32, end: ProcessEnd, ended_ms: u64) -> Self {
        Self {
            rank,
            node,
            end,
            ended_ms,
            stopped: false,
            start_error: None,
            error: None,
            last_lines: Vec::new(),
            cpu_ms: 0,
            peak_kib: 0,
            out_of_memory: false,
        }
    }
}

/// The content of a rank's `error.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankError {
    /// `Type: text`.
    pub message: String,
    /// The traceback, as the program wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
    /// Milliseconds since the Unix epoch by the program's own clock; whole seconds in practice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_ms: Option<u64>,
}

/// Why an attempt failed, with the particulars.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Failure {
    /// Setup failed on a node.
    SetupFailed {
        /// Node index.
        node: u32,
        /// How setup ended there.
        end: ProcessEnd,
        /// The last lines it wrote.
        #[serde(default)]
        last_lines: Vec<String>,
        /// Why it could not start, where it never ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_error: Option<String>,
    },
    /// A rank failed first.
    RankFailed(Box<RankResult>),
    /// A task of an array failed for good, the first of all.
    TaskFailed(Box<TaskFailure>),
    /// A node was lost.
    NodeLost {
        /// Node's name.
        node: String,
        /// What was observed.
        detail: String,
        /// The last lines of what ended there, where a daemon of the job was the node's loss.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        last_lines: Vec<String>,
    },
    /// The driver was lost.
    DriverLost {
        /// What was observed.
        detail: String,
    },
    /// The kernel ended a rank for want of memory.
    OutOfMemory(Box<RankResult>),
    /// The walltime passed.
    TimeLimit {
        /// The limit, seconds.
        seconds: u64,
        /// How long before it the ranks were asked to end, milliseconds.
        #[serde(default)]
        early_ms: u64,
    },
}

impl Failure {
    /// The reason's name.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::SetupFailed { .. } => FailureKind::SetupFailed,
            // To a job's `retry`, a task is its rank.
            Self::TaskFailed(task) if task.result.out_of_memory => FailureKind::OutOfMemory,
            Self::TaskFailed(task) if task.result.failure.is_some() => {
                let of_task = task.result.failure.as_deref();
                of_task.map_or(FailureKind::RankFailed, Self::kind)
            }
            Self::RankFailed(_) | Self::TaskFailed(_) => FailureKind::RankFailed,
            Self::NodeLost { .. } => FailureKind::NodeLost,
            Self::DriverLost { .. } => FailureKind::DriverLost,
            Self::OutOfMemory(_) => FailureKind::OutOfMemory,
            Self::TimeLimit { .. } => FailureKind::TimeLimit,
        }
    }

    /// The code herd ends with (design §7).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::SetupFailed { end, .. } => end.code(),
            Self::RankFailed(rank) | Self::OutOfMemory(rank) => rank.end.code(),
            Self::TaskFailed(task) => match &task.result.failure {
                Some(of_task) => of_task.exit_code(),
                None => task.result.end.code(),
            },
            Self::NodeLost { .. } | Self::DriverLost { .. } => exit::HERD_FAILED,
            Self::TimeLimit { .. } => exit::TIME_LIMIT,
        }
    }
}

/// How an attempt ended; `attempts/<n>/end`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// Terminal state.
    pub state: AttemptState,
    /// Why, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Why it ended otherwise, where that is known: one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The code herd ends with.
    pub exit_code: u8,
    /// Milliseconds since the Unix epoch.
    pub ended_ms: u64,
    /// Every rank that ran.
    #[serde(default)]
    pub ranks: Vec<RankResult>,
}

/// How a job ended; `result.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// Terminal state of the job.
    pub state: crate::state::JobState,
    /// Why it was rejected, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection: Option<Rejection>,
    /// Why it failed, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Why it ended otherwise, where that is known: one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The code `herd run` and `herd wait` end with.
    pub exit_code: u8,
    /// Attempts that were made.
    pub attempts: u32,
    /// Milliseconds since the Unix epoch.
    pub ended_ms: u64,
    /// Tasks of an array by outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskCounts>,
}

/// Why a job never started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// Which kind of refusal.
    pub kind: RejectionKind,
    /// One sentence.
    pub detail: String,
}

/// The task of an array that failed first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFailure {
    /// How its last attempt ended.
    #[serde(flatten)]
    pub result: TaskResult,
    /// The last lines that it wrote, to either stream, bounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
}

/// Tasks of an array by outcome; those that are in no other count have not started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    /// All tasks.
    pub total: u32,
    /// Tasks that ended with 0.
    pub succeeded: u32,
    /// Tasks that ended otherwise, and are not run again.
    pub failed: u32,
    /// Tasks that failed and are to run again, or do so now.
    #[serde(default)]
    pub retrying: u32,
    /// Tasks that herd ended, and that are not run again.
    #[serde(default)]
    pub stopped: u32,
}

/// The end of one attempt at a task; a line of `tasks.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    /// Array index.
    pub index: u32,
    /// Attempt of this task, from 1.
    pub attempt: u32,
    /// Node index it ran on.
    pub node: u32,
    /// How it ended.
    pub end: ProcessEnd,
    /// Milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// Milliseconds since the Unix epoch.
    pub ended_ms: u64,
    /// Why it could not start, where it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_error: Option<String>,
    /// Where in the task's log the output of this attempt begins: after that of the earlier ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub log_offset: u64,
    /// Bytes of that output, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// Whether herd had asked for its end before it ended, or lost its node.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stopped: bool,
    /// Whether it failed and another attempt follows.
    #[serde(default, skip_serializing_if = "is_false")]
    pub again: bool,
    /// Whether the kernel ended it for want of memory, as far as the node's control group tells.
    #[serde(default, skip_serializing_if = "is_false")]
    pub out_of_memory: bool,
    /// Why it failed, of a task with an allocation of its own, which fails as jobs do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Box<Failure>>,
}

impl TaskResult {
    /// Whether the task's program ran and ended well.
    pub fn is_success(&self) -> bool {
        self.end.is_success() && self.start_error.is_none() && self.failure.is_none()
    }

    /// Whether no other attempt at the task follows, whatever becomes of the job.
    pub fn is_final(&self) -> bool {
        !self.again && !self.stopped
    }

    /// The failure that the end is.
    pub fn failure(&self) -> Failure {
        Failure::TaskFailed(Box::new(TaskFailure {
            result: self.clone(),
            last_lines: Vec::new(),
        }))
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}
