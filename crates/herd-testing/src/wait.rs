//! Waiting for a condition, never for a time.

use std::time::{Duration, Instant};

/// Bound on anything that should take well under a second, on a machine that is loaded.
pub const DEADLINE: Duration = Duration::from_mins(1);

/// Pause between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits for a condition, at most [`DEADLINE`]; says which one did not come true.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    within(DEADLINE, what, condition);
}

/// Waits for a condition, at most `bound`; says which one did not come true.
#[track_caller]
pub fn within(bound: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(
            started.elapsed() < bound,
            "{what} did not come true within {bound:?}"
        );
        std::thread::park_timeout(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "the moon did not come true")]
    fn what_was_waited_for_is_named() {
        within(Duration::from_millis(20), "the moon", || false);
    }
}
