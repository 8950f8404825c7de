//! Ctrl-Z on a job's terminal: the ranks stop and the time limit stands still. Driver, executors
//! and their heartbeats go on, so that no lease runs out and a cancel is still obeyed.

use herd_core::event::EventKind;
use herd_link::message::FromCoordinator;

use super::{Coordinator, Stage};

/// For how long an attempt has been paused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Paused {
    /// When the present pause began.
    since_ms: Option<u64>,
    /// All earlier ones together.
    earlier_ms: u64,
}

impl Paused {
    /// When the attempt will have run for so long; unknown during a pause.
    pub(super) fn when_ms(&self, began_ms: u64, running_ms: u64) -> Option<u64> {
        let began_ms = began_ms.saturating_add(self.earlier_ms);
        match self.since_ms {
            Some(_) => None,
            None => Some(began_ms.saturating_add(running_ms)),
        }
    }

    /// Ends the present pause; whether there was one.
    pub(super) fn end(&mut self, now_ms: u64) -> bool {
        let Some(since) = self.since_ms.take() else {
            return false;
        };
        self.earlier_ms += now_ms.saturating_sub(since);
        true
    }
}

impl Coordinator {
    /// The job's terminal stopped it.
    pub fn pause(&mut self, now_ms: u64) {
        if self.paused.since_ms.is_some() || self.stop.is_some() || self.stage == Stage::Finished {
            return;
        }
        self.paused.since_ms = Some(now_ms);
        self.event(EventKind::Paused);
        self.send_all(&FromCoordinator::Pause);
    }

    /// It goes on.
    pub fn resume(&mut self, now_ms: u64) {
        if self.paused.end(now_ms) && self.stage != Stage::Finished {
            self.event(EventKind::Resumed);
            self.send_all(&FromCoordinator::Resume);
        }
    }

    /// A node that comes during a pause is paused as well; what it is told to start is stopped at
    /// once.
    pub(super) fn pause_late(&mut self, node: usize) {
        if self.paused.since_ms.is_some() {
            let message = FromCoordinator::Pause;
            self.actions.push(super::Action::Send { node, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_pauses_does_not_count() {
        let mut paused = Paused::default();
        assert_eq!(paused.when_ms(100, 60), Some(160));
        paused.since_ms = Some(150);
        assert_eq!(paused.when_ms(100, 60), None);
        assert!(paused.end(1_000_000));
        assert!(!paused.end(1_000_001));
        assert_eq!(paused.when_ms(100, 60), Some(1_000_010));
    }
}
