//! Whether a failed attempt is followed by another, and after how long.
//!
//! Preemptions are no failures and never come here; they are bounded by progress alone.

use std::time::Duration;

use crate::result::Failure;
use crate::spec::{Retry, RetryOn};
use crate::state::FailureKind;
use crate::units::Span;

/// Pause before the first retry where the job does not say.
pub const DEFAULT_BACKOFF: Span = Span::from_secs(1);

/// Longest pause, however often it was doubled.
pub const MAX_BACKOFF: Span = Span::from_secs(3600);

/// What is retried where the job does not say: what is no fault of its program.
pub const DEFAULT_ON: &[FailureKind] = &[FailureKind::NodeLost, FailureKind::DriverLost];

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

/// What a job waits for between two attempts, in the record of its state.
pub fn waits(pause: Span) -> String {
    format!("retries after {} s", pause.as_duration().as_secs_f32())
}

/// What is left of that wait after `waited`; nothing where `why` is another wait.
pub fn left_of(why: &str, waited: Duration) -> Option<Duration> {
    let seconds = why.strip_prefix("retries after ")?.strip_suffix(" s")?;
    let pause = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
    Some(pause.saturating_sub(waited))
}

/// Why a failure is not among those that the job retries, with what would have to be listed; nothing
/// where the job asks for no retries or the failure is listed.
pub fn not_listed(retry: Option<&Retry>, failure: &Failure) -> Option<String> {
    let retry = retry.filter(|retry| retry.max > 0 && !listed(retry, failure))?;
    let names: Vec<String> = retry.on.iter().map(|on| on_name(*on)).collect();
    let which = if names.is_empty() {
        let default: Vec<&str> = DEFAULT_ON.iter().map(|kind| kind.name()).collect();
        format!("without `retry.on` only {} are", default.join(" and "))
    } else {
        format!("`retry.on` names only {}", names.join(", "))
    };
    let (kind, code) = (failure.kind().name(), failure.exit_code());
    Some(format!(
        "not retried: {which}; this was {kind}, or \"exit:{code}\""
    ))
}

fn on_name(on: RetryOn) -> String {
    match on {
        RetryOn::Reason(kind) => kind.name().to_owned(),
        RetryOn::Exit(code) => format!("\"exit:{code}\""),
    }
}

fn listed(retry: &Retry, failure: &Failure) -> bool {
    let kind = failure.kind();
    if retry.on.is_empty() {
        return DEFAULT_ON.contains(&kind);
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

    #[test]
    fn what_is_left_of_a_pause_is_read_from_its_record() {
        let why = waits(Span { ms: 2500 });
        assert_eq!(why, "retries after 2.5 s");
        let left = |why: &str, waited| {
            let left = left_of(why, Duration::from_millis(waited))?;
            Some(left.as_millis())
        };
        assert_eq!(left(&why, 1_310), Some(1_190));
        assert_eq!(left(&why, 9_999), Some(0));
        assert_eq!(left("waits for 1 CPU", 0), None);
        assert_eq!(left("retries after -1 s", 0), None);
        assert_eq!(left("retries after NaN s", 0), None);
    }

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
        let failure = Failure::TimeLimit {
            seconds: 5,
            early_ms: 0,
        };
        assert_eq!(
            decide(Some(&rule), &failure, 0),
            Decision::Stop(StopReason::NotListed)
        );
    }

    #[test]
    fn what_is_not_listed_says_what_would_be() {
        let note = |on| not_listed(Some(&retry(2, on, None)), &setup(3));
        assert_eq!(
            note(Vec::new()).as_deref(),
            Some(
                "not retried: without `retry.on` only node-lost and driver-lost are; this was \
                 setup-failed, or \"exit:3\""
            )
        );
        let other = vec![RetryOn::Reason(FailureKind::TimeLimit), RetryOn::Exit(75)];
        assert_eq!(
            note(other).as_deref(),
            Some(
                "not retried: `retry.on` names only time-limit, \"exit:75\"; this was setup-failed, \
                 or \"exit:3\""
            )
        );
        assert_eq!(note(vec![RetryOn::Exit(3)]), None);
        assert_eq!(not_listed(None, &setup(3)), None);
        assert_eq!(
            not_listed(Some(&retry(0, Vec::new(), None)), &setup(3)),
            None
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
