//! What a state of Slurm means for a herd job.

use serde::{Deserialize, Serialize};

use crate::exit::ExitCode;
use crate::reason::{Class, Reason};
use crate::state::State;

/// What the backend has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// It waits; `held` until somebody releases it.
    Pending {
        /// Nothing starts it before it is released.
        held: bool,
        /// An attempt has run already, and this is the queue for the next.
        again: bool,
    },
    /// It has nodes, which are being made ready; the batch script has not begun.
    Starting,
    /// The batch script runs.
    Running,
    /// It has nodes and its processes are stopped.
    Suspended,
    /// A word about something beside the job's course: what was known before still holds (I3).
    Unchanged,
    /// It is over: a positive end record.
    Ended(End),
}

/// How a job ended in Slurm. The record of the driver says more where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The batch script exited with 0.
    Completed,
    /// The batch script failed, as said where it is known.
    Failed(Option<ExitCode>),
    /// Somebody cancelled it.
    Cancelled,
    /// Slurm's time limit passed.
    TimeLimit,
    /// Memory ran out.
    OutOfMemory,
    /// A node failed.
    NodeLost,
    /// A node could not be booted, or the batch script could not be started.
    NotStarted,
    /// Preempted and not queued again.
    Preempted,
    /// It could not have ended before its deadline.
    Deadline,
}

impl Condition {
    /// Reads state and reason; the exit code is known from accounting alone.
    pub fn of(state: &State, reason: &Reason, exit: Option<ExitCode>) -> Self {
        let held = reason.class() == Some(Class::Held);
        match state {
            State::Pending => Self::Pending { held, again: false },
            State::Requeued | State::RequeueFed | State::Expediting => {
                Self::Pending { held, again: true }
            }
            // SPECIAL_EXIT is a requeue that is held because of its exit code.
            State::RequeueHold | State::SpecialExit | State::ResvDelHold => Self::Pending {
                held: true,
                again: *state != State::ResvDelHold,
            },
            State::Configuring | State::PowerUpNode => Self::Starting,
            State::Running => Self::Running,
            State::Suspended | State::Stopped => Self::Suspended,
            // COMPLETING shows before the end is known, and before a requeue as well. REVOKED is
            // about a twin in a federation: the job lives on another cluster. LAUNCH_FAILED and
            // RECONFIG_FAIL are marks on a job that is queued again as well as on one that ended.
            State::Completing
            | State::LaunchFailed
            | State::ReconfigFail
            | State::Resizing
            | State::Signaling
            | State::StageOut
            | State::UpdateDb
            | State::Revoked
            | State::Unknown(_) => Self::Unchanged,
            State::Completed => Self::Ended(End::Completed),
            State::Failed => Self::Ended(match reason.code() {
                "JobLaunchFailure" if exit.is_some_and(|exit| exit.signal == 0) => End::NotStarted,
                _ => End::Failed(exit),
            }),
            State::Cancelled => Self::Ended(End::Cancelled),
            State::Timeout => Self::Ended(End::TimeLimit),
            State::OutOfMemory => Self::Ended(End::OutOfMemory),
            State::NodeFail => Self::Ended(End::NodeLost),
            State::BootFail => Self::Ended(End::NotStarted),
            State::Preempted => Self::Ended(End::Preempted),
            State::Deadline => Self::Ended(End::Deadline),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::TABLE;

    fn of(state: &str, reason: &str) -> Condition {
        Condition::of(&State::parse(state), &Reason::parse(reason), None)
    }

    #[test]
    fn waiting_held_and_queued_again_differ() {
        let pending = |held, again| Condition::Pending { held, again };
        assert_eq!(of("PENDING", "Resources"), pending(false, false));
        assert_eq!(of("PENDING", "JobHeldUser"), pending(true, false));
        assert_eq!(of("PENDING", "JobHoldMaxRequeue"), pending(true, false));
        assert_eq!(of("REQUEUED", "BeginTime"), pending(false, true));
        assert_eq!(of("REQUEUE_HOLD", "None"), pending(true, true));
        assert_eq!(of("SPECIAL_EXIT", "None"), pending(true, true));
    }

    #[test]
    fn i3_only_a_positive_end_record_ends_a_job() {
        let ends: Vec<_> = TABLE
            .iter()
            .filter(|(state, ..)| {
                let condition = Condition::of(state, &Reason::parse("None"), None);
                matches!(condition, Condition::Ended(_))
            })
            .map(|(_, name, _)| *name)
            .collect();
        assert_eq!(
            ends,
            [
                "BOOT_FAIL",
                "CANCELLED",
                "COMPLETED",
                "DEADLINE",
                "FAILED",
                "NODE_FAIL",
                "OUT_OF_MEMORY",
                "PREEMPTED",
                "TIMEOUT",
            ]
        );
        for state in ["COMPLETING", "HIBERNATING", "", "REVOKED"] {
            assert_eq!(of(state, "None"), Condition::Unchanged, "{state}");
        }
    }

    #[test]
    fn a_script_killed_by_a_signal_has_started() {
        // 22.05 says JobLaunchFailure of both; the exit code tells them apart.
        let failed = |exit| {
            let reason = Reason::parse("JobLaunchFailure");
            Condition::of(&State::Failed, &reason, exit)
        };
        assert_eq!(failed(None), Condition::Ended(End::Failed(None)));
        let not_run = failed(ExitCode::parse("1:0"));
        assert_eq!(not_run, Condition::Ended(End::NotStarted));
        let killed = ExitCode::parse("0:11");
        assert_eq!(failed(killed), Condition::Ended(End::Failed(killed)));
    }
}
