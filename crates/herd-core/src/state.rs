//! The two state tables, job and attempt, as data; an illegal step is an error that names both.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where one attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AttemptState {
    /// Executors are coming up.
    Starting,
    /// Setup runs.
    SettingUp,
    /// Ranks run.
    Running,
    /// A checkpoint was asked for and is awaited.
    Checkpointing,
    /// Every rank ended with 0.
    Succeeded,
    /// It failed; the reason stands beside the state.
    Failed,
    /// The backend took its resources back.
    Preempted,
    /// Somebody asked for its end.
    Cancelled,
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobState {
    /// Written down, not yet handed to a backend.
    Accepted,
    /// Being handed to a backend.
    Submitting,
    /// Waiting for resources, another job or the next attempt.
    Queued,
    /// An attempt is under way.
    Active,
    /// Its end was asked for and is awaited.
    Cancelling,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Ended on request.
    Cancelled,
    /// Never started.
    Rejected,
}

/// Every legal step of an attempt.
pub const ATTEMPT_TRANSITIONS: &[(AttemptState, AttemptState)] = {
    use AttemptState::{
        Cancelled, Checkpointing, Failed, Preempted, Running, SettingUp, Starting, Succeeded,
    };
    &[
        (Starting, SettingUp),
        (Starting, Running),
        (Starting, Failed),
        (Starting, Preempted),
        (Starting, Cancelled),
        (SettingUp, Running),
        (SettingUp, Succeeded),
        (SettingUp, Failed),
        (SettingUp, Preempted),
        (SettingUp, Cancelled),
        (Running, Checkpointing),
        (Running, Succeeded),
        (Running, Failed),
        (Running, Preempted),
        (Running, Cancelled),
        (Checkpointing, Running),
        (Checkpointing, Succeeded),
        (Checkpointing, Failed),
        (Checkpointing, Preempted),
        (Checkpointing, Cancelled),
    ]
};

/// Every legal step of a job.
pub const JOB_TRANSITIONS: &[(JobState, JobState)] = {
    use JobState::{
        Accepted, Active, Cancelled, Cancelling, Failed, Queued, Rejected, Submitting, Succeeded,
    };
    &[
        (Accepted, Submitting),
        (Accepted, Cancelled),
        (Accepted, Rejected),
        (Submitting, Queued),
        (Submitting, Active),
        (Submitting, Cancelling),
        (Submitting, Failed),
        (Submitting, Cancelled),
        (Submitting, Rejected),
        (Queued, Active),
        (Queued, Cancelling),
        (Queued, Failed),
        (Queued, Cancelled),
        (Queued, Rejected),
        (Active, Queued),
        (Active, Cancelling),
        (Active, Succeeded),
        (Active, Failed),
        (Active, Cancelled),
        (Cancelling, Cancelled),
        (Cancelling, Succeeded),
        (Cancelling, Failed),
    ]
};

/// A step that its table does not have.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("a {what} cannot go from {from} to {to}")]
pub struct IllegalTransition {
    what: &'static str,
    from: String,
    to: String,
}

impl AttemptState {
    /// All states, in the order people expect.
    pub const ALL: &[Self] = &[
        Self::Starting,
        Self::SettingUp,
        Self::Running,
        Self::Checkpointing,
        Self::Succeeded,
        Self::Failed,
        Self::Preempted,
        Self::Cancelled,
    ];

    /// Whether nothing can follow (I1).
    pub fn is_terminal(self) -> bool {
        !ATTEMPT_TRANSITIONS.iter().any(|(from, _)| *from == self)
    }

    /// `to`, where the table allows it.
    pub fn step(self, to: Self) -> Result<Self, IllegalTransition> {
        if ATTEMPT_TRANSITIONS.contains(&(self, to)) {
            return Ok(to);
        }
        Err(IllegalTransition {
            what: "attempt",
            from: self.to_string(),
            to: to.to_string(),
        })
    }
}

impl JobState {
    /// All states, in the order people expect.
    pub const ALL: &[Self] = &[
        Self::Accepted,
        Self::Submitting,
        Self::Queued,
        Self::Active,
        Self::Cancelling,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Rejected,
    ];

    /// Whether nothing can follow (I1).
    pub fn is_terminal(self) -> bool {
        !JOB_TRANSITIONS.iter().any(|(from, _)| *from == self)
    }

    /// `to`, where the table allows it.
    pub fn step(self, to: Self) -> Result<Self, IllegalTransition> {
        if JOB_TRANSITIONS.contains(&(self, to)) {
            return Ok(to);
        }
        Err(IllegalTransition {
            what: "job",
            from: self.to_string(),
            to: to.to_string(),
        })
    }
}

impl fmt::Display for AttemptState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Starting => "STARTING",
            Self::SettingUp => "SETTING_UP",
            Self::Running => "RUNNING",
            Self::Checkpointing => "CHECKPOINTING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Preempted => "PREEMPTED",
            Self::Cancelled => "CANCELLED",
        })
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Accepted => "ACCEPTED",
            Self::Submitting => "SUBMITTING",
            Self::Queued => "QUEUED",
            Self::Active => "ACTIVE",
            Self::Cancelling => "CANCELLING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Rejected => "REJECTED",
        })
    }
}

/// Why an attempt failed, without the particulars; the names of `retry.on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// Setup ended with a code other than 0.
    SetupFailed,
    /// A rank ended with a code other than 0.
    RankFailed,
    /// A node went silent.
    NodeLost,
    /// The driver went away.
    DriverLost,
    /// The kernel ended a rank for want of memory.
    OutOfMemory,
    /// The walltime passed.
    TimeLimit,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: &[Self] = &[
        Self::SetupFailed,
        Self::RankFailed,
        Self::NodeLost,
        Self::DriverLost,
        Self::OutOfMemory,
        Self::TimeLimit,
    ];

    /// The name used in job files, events and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::SetupFailed => "setup-failed",
            Self::RankFailed => "rank-failed",
            Self::NodeLost => "node-lost",
            Self::DriverLost => "driver-lost",
            Self::OutOfMemory => "out-of-memory",
            Self::TimeLimit => "time-limit",
        }
    }
}

/// Why a job never started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RejectionKind {
    /// The job itself is wrong.
    Invalid,
    /// Larger than its limit.
    Quota,
    /// The backend said no.
    BackendRejected,
    /// The backend cannot honour a key.
    Unsupported,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i1_terminal_states_have_no_way_out() {
        for &from in AttemptState::ALL {
            for &to in AttemptState::ALL {
                if from.is_terminal() {
                    assert!(from.step(to).is_err());
                }
            }
        }
        let terminal: Vec<_> = JobState::ALL.iter().filter(|s| s.is_terminal()).collect();
        assert_eq!(
            terminal,
            [
                &JobState::Succeeded,
                &JobState::Failed,
                &JobState::Cancelled,
                &JobState::Rejected
            ]
        );
    }

    #[test]
    fn an_illegal_step_names_both_states() {
        let error = JobState::Succeeded.step(JobState::Active).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a job cannot go from SUCCEEDED to ACTIVE"
        );
    }
}
