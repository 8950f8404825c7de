//! What a supervisor does when it has to be gone within two seconds (I5) and asking did not help: from
//! a moment on it kills whatever runs below it, again and again, while those who wait for the ends of
//! their processes go on doing so. Each of them gives its own processes some time, one after the other,
//! and together they would take longer than there is.

use std::time::Duration;

use herd_launch::{Pid, Signal, tree};
use tokio::time::Instant;

use crate::clock::until;

/// What processes get between TERM and KILL when nobody is left to decide (I5).
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// Pause between two looks; what forks meanwhile is found by the next.
const PAUSE: Duration = Duration::from_millis(20);

/// Kills nothing until it is told when.
#[derive(Debug, Default)]
pub(crate) struct LastResort {
    since: Option<Instant>,
    next: Option<Instant>,
}

impl LastResort {
    /// Kills from [`GRACE`] on.
    pub(crate) fn after_grace() -> Self {
        let at = Instant::now() + GRACE;
        Self {
            since: Some(at),
            next: Some(at),
        }
    }

    /// Kills from now on.
    pub(crate) fn now() -> Self {
        let at = Instant::now();
        Self {
            since: Some(at),
            next: Some(at),
        }
    }

    /// Waits until [`Self::kill`] is to be called; for ever where nobody has said when. Cancel-safe.
    pub(crate) async fn due(&self) {
        until(self.next).await;
    }

    /// Whether somebody has said when.
    pub(crate) fn is_set(&self) -> bool {
        self.since.is_some()
    }

    /// For how long it has been killing.
    pub(crate) fn lasts(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Kills all processes below this one but `spared`, which goes on with what is below them, too.
    pub(crate) fn kill(&mut self, spared: &[Pid]) {
        for pid in tree::descendants(rustix::process::getpid()) {
            if !spared.contains(&pid) {
                // One that has just ended is what is wanted.
                let _gone = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        self.next = Some(Instant::now() + PAUSE);
    }
}
