//! Whether a failed attempt is followed by another.

use crate::result::Failure;
use crate::spec::{Retry, RetryOn};
use crate::state::FailureKind;
use crate::units::Span;

/// The pause never grows beyond this.
const MAX_BACKOFF: Span = Span::from_secs(3600);
/// The pause where the job names none.
const DEFAULT_BACKOFF: Span = Span::from_secs(5);

/// The pause before the next attempt, or `None` where there is none. `attempts` were made so far.
/// Without `on`, only the loss of a node or driver counts: the program's own failures would fail
/// again.
pub fn decide(retry: &Retry, failure: &Failure, attempts: u32) -> Option<Span> {
    if attempts > retry.max {
        return None;
    }
    let kind = failure.kind();
    let counts = if retry.on.is_empty() {
        matches!(kind, FailureKind::NodeLost | FailureKind::DriverLost)
    } else {
        retry.on.iter().any(|on| match on {
            RetryOn::Reason(reason) => *reason == kind,
            RetryOn::Exit(code) => *code == failure.exit_code(),
        })
    };
    let first = retry.backoff.unwrap_or(DEFAULT_BACKOFF).ms;
    let factor = 1u64.checked_shl(attempts.saturating_sub(1)).unwrap_or(u64::MAX);
    let pause = Span { ms: first.saturating_mul(factor).min(MAX_BACKOFF.ms) };
    counts.then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_failure_is_tried_again_with_a_doubled_pause_until_max() {
        let retry = Retry {
            max: 2,
            on: vec![RetryOn::Reason(FailureKind::TimeLimit)],
            backoff: Some(Span::from_secs(10)),
        };
        let failure = Failure::TimeLimit { seconds: 5 };
        assert_eq!(decide(&retry, &failure, 1), Some(Span::from_secs(10)));
        assert_eq!(decide(&retry, &failure, 2), Some(Span::from_secs(20)));
        assert_eq!(decide(&retry, &failure, 3), None);
        let lost = Failure::DriverLost { detail: String::new() };
        assert_eq!(decide(&retry, &lost, 1), None);
    }
}
