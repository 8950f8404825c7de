//! From what was read of a job to its one line: pure.

use herd_core::result::{AttemptEnd, Failure, JobResult};
use herd_core::sentence;
use herd_core::state::{AttemptState, JobState};

use super::seen::Seen;
use super::shown::{Brief, DRIVER_LOST};
use crate::driver::{DriverInfo, Liveness};

/// What was read of a job, in the order that [`super::status`] explains.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) result: Option<JobResult>,
    pub(super) attempt: u32,
    pub(super) process: Option<DriverInfo>,
    pub(super) liveness: Option<Liveness>,
    pub(super) end: Option<AttemptEnd>,
    pub(super) seen: Seen,
}

impl Facts {
    /// On one line.
    pub(super) fn brief(&self) -> Brief {
        let started_ms = self.seen.started_ms;
        if let Some(result) = &self.result {
            return Brief {
                state: result.state.to_string(),
                why: result
                    .rejection
                    .as_ref()
                    .map(|rejection| rejection.detail.clone())
                    .or_else(|| self.reason(result.failure.as_ref()))
                    .or_else(|| result.reason.clone())
                    .or_else(|| self.asked_for(result.state)),
                attempt: self.attempt.max(result.attempts),
                started_ms,
                ended_ms: Some(result.ended_ms),
                exit_code: Some(result.exit_code),
                settled: true,
            };
        }
        let (state, why) = self.unsettled();
        Brief {
            state,
            why,
            attempt: self.attempt,
            started_ms,
            ended_ms: self.end.as_ref().map(|end| end.ended_ms),
            exit_code: None,
            settled: false,
        }
    }

    /// Why it failed, in a sentence with the names of nodes where they are known.
    fn reason(&self, failure: Option<&Failure>) -> Option<String> {
        let name = |index: u32| match self.seen.nodes.get(&index) {
            Some(node) => node.name.clone(),
            None => format!("node{index}"),
        };
        failure.map(|failure| sentence::failure(failure, &name))
    }

    /// By whom the end of a cancelled job was asked for.
    fn asked_for(&self, state: JobState) -> Option<String> {
        let by = self.seen.cancelled_by.as_ref();
        let by = by.filter(|_| state == JobState::Cancelled)?;
        Some(format!("asked for by {by}"))
    }

    fn unsettled(&self) -> (String, Option<String>) {
        let dead = self.liveness == Some(Liveness::Dead);
        if let Some(end) = &self.end {
            // Between attempts: what the job waits for says more than how the last one ended.
            if let (Some((JobState::Queued, why)), false) = (&self.seen.job, dead) {
                return (JobState::Queued.to_string(), why.clone());
            }
            return (end.state.to_string(), self.reason(end.failure.as_ref()));
        }
        if dead {
            let process = self.process.as_ref();
            return (DRIVER_LOST.to_owned(), process.map(DriverInfo::lost_detail));
        }
        if let Some(by) = &self.seen.cancelled_by {
            return (
                JobState::Cancelling.to_string(),
                Some(format!("asked for by {by}")),
            );
        }
        match (&self.seen.job, self.seen.attempt) {
            (Some((JobState::Active, why)), Some(attempt)) => (attempt.to_string(), why.clone()),
            (Some((JobState::Active, why)), None) => {
                (AttemptState::Starting.to_string(), why.clone())
            }
            (Some((job, why)), _) => (job.to_string(), why.clone()),
            (None, Some(attempt)) => (attempt.to_string(), None),
            (None, None) => (JobState::Accepted.to_string(), None),
        }
    }
}
