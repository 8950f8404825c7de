//! Whether the ranks of a node have had a signal from the batch system itself: then they do not get it a
//! second time from herd.
//!
//! Batch systems that find a job's processes by their parents signal all of them, this process too. Which
//! is first, that signal or the coordinator's word of it, cannot be foreseen.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How long the batch system's signal is waited for where the coordinator knows of it. It comes with that
/// of the coordinator's node, unless somebody has signalled that process alone.
const COMES_WITHIN: Duration = Duration::from_millis(500);
/// A signal that came longer ago was for something else.
const COUNTS_FOR: Duration = Duration::from_secs(10);
/// Processes that are as young when the signal comes may have been missed by it.
const YOUNG: Duration = Duration::from_millis(500);
/// What is sent in place of the signal: ranks that were stopped have to go on for it.
const SIGCONT: i32 = 18;

/// How ranks are to be stopped: the signal, and how long they have.
pub(crate) type Stop = (i32, Duration);

/// What this node knows of the batch system's signal.
#[derive(Debug, Default)]
pub(crate) struct Told {
    at: Option<Instant>,
    began: Option<Instant>,
    waiting: Option<(Stop, Instant)>,
}

impl Told {
    /// The processes of a phase start.
    pub(crate) fn phase_begins(&mut self) {
        self.began = Some(Instant::now());
    }

    /// The signal has come to this process; the stop that has waited for it.
    pub(crate) fn signalled(&mut self) -> Option<Stop> {
        self.at = Some(Instant::now());
        let ((signal, grace), _) = self.waiting.take()?;
        Some((self.in_place_of(signal), grace))
    }

    /// The ranks are to be stopped, by the batch system's wish where `told`; what is to be done now.
    pub(crate) fn stop(&mut self, stop: Stop, told: bool) -> Option<Stop> {
        self.waiting = None;
        if !told {
            return Some(stop);
        }
        if self.at.is_some_and(|at| at.elapsed() < COUNTS_FOR) {
            return Some((self.in_place_of(stop.0), stop.1));
        }
        self.waiting = Some((stop, Instant::now() + COMES_WITHIN));
        None
    }

    /// The stop for which the signal has not come. Cancel-safe.
    pub(crate) async fn due(&mut self) -> Stop {
        match self.waiting {
            Some((stop, at)) => {
                sleep_until(at).await;
                self.waiting = None;
                stop
            }
            None => std::future::pending().await,
        }
    }

    fn in_place_of(&self, signal: i32) -> i32 {
        let missed = match (self.at, self.began) {
            (Some(at), Some(began)) => at.saturating_duration_since(began) < YOUNG,
            _ => true,
        };
        if missed { signal } else { SIGCONT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: Stop = (15, Duration::from_secs(3));

    fn before(age: Duration) -> Option<Instant> {
        Instant::now().checked_sub(age)
    }

    #[tokio::test]
    async fn what_the_batch_system_has_sent_is_not_sent_again() {
        let of = |at| Told {
            at,
            began: before(2 * COUNTS_FOR),
            waiting: None,
        };
        // herd's own wish needs no signal of the batch system.
        assert_eq!(of(None).stop(STOP, false), Some(STOP));
        // Its signal first, or the coordinator's word.
        let mut told = of(None);
        assert_eq!(told.signalled(), None);
        assert_eq!(told.stop(STOP, true), Some((SIGCONT, STOP.1)));
        let mut told = of(None);
        assert_eq!(told.stop(STOP, true), None);
        assert_eq!(told.signalled(), Some((SIGCONT, STOP.1)));
        // One long ago was for something else, and this time none comes.
        let mut told = of(before(COUNTS_FOR));
        assert_eq!(told.stop(STOP, true), None);
        assert_eq!(told.due().await, STOP);
    }

    #[test]
    fn ranks_that_have_just_started_may_have_been_missed() {
        let mut told = Told {
            at: before(COUNTS_FOR / 2),
            began: before(COUNTS_FOR / 2 + YOUNG / 2),
            waiting: None,
        };
        assert_eq!(told.stop(STOP, true), Some(STOP));
    }
}
