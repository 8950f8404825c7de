//! When a person is told what a job waits for.

use std::time::{Duration, Instant};

/// Nothing is said of a shorter wait, and what changes is said again after this at the earliest.
const PAUSE: Duration = Duration::from_secs(1);

/// Decides whether what a job waits for is to be said now. Pure: time comes in.
#[derive(Clone, Debug)]
pub struct Announcer {
    next: Instant,
    said: String,
}

impl Announcer {
    /// For a wait that begins now.
    pub fn new(now: Instant) -> Self {
        Self {
            next: now + PAUSE,
            said: String::new(),
        }
    }

    /// Whether this is news. Ask again and again; what was said once is no news.
    pub fn is_news(&mut self, why: &str, now: Instant) -> bool {
        if now < self.next || why == self.said {
            return false;
        }
        why.clone_into(&mut self.said);
        self.next = now + PAUSE;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_after_a_second_and_when_it_changes() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut announcer = Announcer::new(begun);
        assert!(!announcer.is_news("a", at(999)));
        assert!(announcer.is_news("a", at(1000)));
        assert!(!announcer.is_news("a", at(60_000)));
        assert!(announcer.is_news("b", at(60_000)));
        assert!(!announcer.is_news("c", at(60_500)), "too soon");
        assert!(announcer.is_news("c", at(61_000)));
    }
}
