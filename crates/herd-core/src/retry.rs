//! Whether a failed attempt is followed by another, and after how long.
//!
//! Preemptions are no failures and never come here; they are bounded by progress alone.

use crate::result::Failure;
use crate::spec::{Retry, RetryOn};
use crate::state::FailureKind;
use crate::units::Span;

/// Pause before the first retry where the job does not say.
pub const DEFAULT_BACKOFF: Span = Span::from_secs(1);

/// Longest pause, however often it was doubled.
pub const MAX_BACKOFF: Span = Span::from_secs(3600);

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Another attempt after this pause.
    Again {
        /// The pause.
        after: Span,
    },
    /// No other attempt.
    Stop(StopReason),
}

/// Why there is no other attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The job asks for no retries.
    NotAsked,
    /// The failure is none of those that the job retries.
    NotListed,
    /// The retries are used up.
    UsedUp {
        /// How many there were.
        max: u32,
    },
}

/// Decides about one failure after `used` retries were made.
pub fn decide(retry: Option<&Retry>, failure: &Failure, used: u32) -> Decision {
    let Some(retry) = retry.filter(|retry| retry.max > 0) else {
        return Decision::Stop(StopReason::NotAsked);
    };
    if !listed(retry, failure) {
        return Decision::Stop(StopReason::NotListed);
    }
    if used >= retry.max {
        return Decision::Stop(StopReason::UsedUp { max: retry.max });
    }
    let base = retry.backoff.unwrap_or(DEFAULT_BACKOFF).ms;
    let factor = 1u64.checked_shl(used).unwrap_or(u64::MAX);
    Decision::Again {
        after: Span {
            ms: base.saturating_mul(factor).min(MAX_BACKOFF.ms),
        },
    }
}

fn listed(retry: &Retry, failure: &Failure) -> bool {
    let kind = failure.kind();
    if retry.on.is_empty() {
        return matches!(kind, FailureKind::NodeLost | FailureKind::DriverLost);
    }
    retry.on.iter().any(|on| match on {
        RetryOn::Reason(reason) => *reason == kind,
        RetryOn::Exit(code) => *code == failure.exit_code(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::ProcessEnd;

    fn retry(max: u32, on: Vec<RetryOn>, backoff: Option<Span>) -> Retry {
        Retry { max, on, backoff }
    }

    fn lost() -> Failure {
        Failure::NodeLost {
            node: "n1".to_owned(),
            detail: "silent".to_owned(),
            last_lines: Vec::new(),
        }
    }

    fn setup(code: u8) -> Failure {
        let end = ProcessEnd::Exited(code);
        Failure::SetupFailed {
            node: 0,
            end,
            last_lines: Vec::new(),
            start_error: None,
        }
    }

    #[test]
    fn without_a_list_only_lost_nodes_and_drivers_count() {
        let rule = retry(2, Vec::new(), None);
        assert_eq!(
            decide(Some(&rule), &lost(), 0),
            Decision::Again {
                after: DEFAULT_BACKOFF
            }
        );
        let failure = Failure::DriverLost {
            detail: String::new(),
        };
        assert!(matches!(
            decide(Some(&rule), &failure, 1),
            Decision::Again { .. }
        ));
        assert_eq!(
            decide(Some(&rule), &setup(1), 0),
            Decision::Stop(StopReason::NotListed)
        );
        let failure = Failure::TimeLimit { seconds: 5 };
        assert_eq!(
            decide(Some(&rule), &failure, 0),
            Decision::Stop(StopReason::NotListed)
        );
    }

    #[test]
    fn named_failures_and_codes_count() {
        let rule = retry(1, vec![RetryOn::Reason(FailureKind::SetupFailed)], None);
        assert!(matches!(
            decide(Some(&rule), &setup(1), 0),
            Decision::Again { .. }
        ));
        assert_eq!(
            decide(Some(&rule), &lost(), 0),
            Decision::Stop(StopReason::NotListed)
        );
        let rule = retry(1, vec![RetryOn::Exit(75)], None);
        assert!(matches!(
            decide(Some(&rule), &setup(75), 0),
            Decision::Again { .. }
        ));
        assert_eq!(
            decide(Some(&rule), &setup(74), 0),
            Decision::Stop(StopReason::NotListed)
        );
    }

    #[test]
    fn retries_end_and_pauses_double_up_to_an_hour() {
        let rule = retry(1000, Vec::new(), Some(Span::from_secs(30)));
        let pause = |used| match decide(Some(&rule), &lost(), used) {
            Decision::Again { after } => after.ms / 1000,
            Decision::Stop(reason) => panic!("{reason:?}"),
        };
        assert_eq!(
            [pause(0), pause(1), pause(2), pause(10), pause(999)],
            [30, 60, 120, 3600, 3600]
        );
        let used_up = Decision::Stop(StopReason::UsedUp { max: 1000 });
        assert_eq!(decide(Some(&rule), &lost(), 1000), used_up);
        assert_eq!(
            decide(None, &lost(), 0),
            Decision::Stop(StopReason::NotAsked)
        );
    }
}
