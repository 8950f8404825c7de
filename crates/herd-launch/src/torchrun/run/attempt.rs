//! One attempt: the workers of this node, beside the news of other nodes and of the store.

use std::pin::pin;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::timeout_at;

use super::LaunchError;
use super::course::Course;
use super::ends;
use super::say::say;
use crate::agent::{Outcome, Told, WorkerEnd};
use crate::clock::until;
use crate::rendezvous::{Change, Joined, Rendezvous};
use crate::world::World;

/// Signals on their way to the agent.
const QUEUE: usize = 16;
/// How long a failure here waits for the news that another node failed or ended before: workers
/// often fail because those of another node are gone, and see it before the launcher does.
const HOLD: Duration = Duration::from_millis(200);
/// The same where that news makes the difference between the end of the job and another attempt.
const LONG_HOLD: Duration = Duration::from_secs(1);

/// How an attempt ended.
pub(super) enum Ended {
    Succeeded(Vec<WorkerEnd>),
    Failed(Failed),
    /// The workers were ended because of this.
    Changed(Change),
    Signalled(i32),
}

/// An attempt in which a worker of this node failed.
pub(super) struct Failed {
    pub(super) ends: Vec<WorkerEnd>,
    pub(super) reason: String,
    /// What happened at another node before, as far as is known.
    pub(super) cause: Option<Change>,
}

/// A failure of which the other nodes have not been told yet.
struct Held {
    reason: String,
    until: Instant,
    is_told: bool,
}

impl Course<'_> {
    /// Runs the workers of this node beside the news of other nodes and the store.
    pub(super) async fn attempt(&mut self, joined: &mut Joined) -> Result<Ended, LaunchError> {
        // The port that rank 0 opens itself is let go only now.
        drop(self.store.prepare(joined).map_err(LaunchError::Store)?);
        let world = &joined.world;
        let (hold, counts) = (self.hold(world), self.counts());
        let (tell, mut heard) = mpsc::channel(QUEUE);
        let mut change = None;
        let mut failed: Option<Held> = None;
        let mut is_signalled = false;
        let outcome = {
            let mut running = pin!(self.agent.attempt(world, self.restarts, &mut heard));
            loop {
                // A failure with a cause elsewhere is no news.
                let held = failed
                    .as_ref()
                    .filter(|held| !held.is_told && change.is_none());
                let due = held.map(|held| held.until);
                tokio::select! {
                    biased;
                    outcome = &mut running => break outcome?,
                    Some(first) = self.failures.recv() => {
                        failed = Some(Held::new(world, first, hold));
                    }
                    Some(told) = self.told.recv() => {
                        is_signalled |= !matches!(told, Told::Forward(_));
                        // A full queue has enough of them.
                        let _full = tell.try_send(told);
                    }
                    what = self.meeting.changed(), if change.is_none() && (failed.is_none() || due.is_some()) => {
                        if failed.is_none() {
                            let _full = tell.try_send(Told::End(Signal::TERM.as_raw()));
                        }
                        change = Some(what);
                    }
                    () = until(due.map(Into::into)) => {
                        announce(&mut self.meeting, counts, &mut failed);
                    }
                    notice = self.store.notice() => say(&format!("warning: {notice}")),
                }
            }
        };
        if let Ok(first) = self.failures.try_recv() {
            failed.get_or_insert_with(|| Held::new(world, first, hold));
        }
        Ok(match (outcome, change) {
            (Outcome::Succeeded(ends), _) => Ended::Succeeded(ends),
            (Outcome::Failed(ends), cause) => {
                let cause = self.cause(cause, &mut failed).await;
                let reason = failed.map(|held| held.reason);
                Ended::Failed(Failed {
                    ends,
                    reason: reason.unwrap_or_else(|| "the workers failed".into()),
                    cause,
                })
            }
            (Outcome::Signalled { workers, .. }, Some(_)) if ends::all_done(&workers) => {
                Ended::Succeeded(workers)
            }
            (Outcome::Signalled { .. }, Some(change)) if !is_signalled => Ended::Changed(change),
            (Outcome::Signalled { signal, .. }, _) => Ended::Signalled(signal),
        })
    }

    /// How long a failure is kept from the other nodes.
    fn hold(&self, world: &World) -> Duration {
        if world.nodes == 1 {
            Duration::ZERO
        } else if self.counts() || !self.is_enough(world) {
            HOLD
        } else {
            LONG_HOLD
        }
    }

    /// What happened elsewhere before the failure here, waited for as long as the failure is held.
    async fn cause(&mut self, known: Option<Change>, failed: &mut Option<Held>) -> Option<Change> {
        let held = failed.as_ref().filter(|held| !held.is_told);
        let cause = match (known, held) {
            (None, Some(held)) => {
                let until = held.until.into();
                timeout_at(until, self.meeting.changed()).await.ok()
            }
            (known, _) => known,
        };
        if cause.is_none() {
            let counts = self.counts();
            announce(&mut self.meeting, counts, failed);
        }
        cause
    }
}

impl Held {
    fn new(world: &World, (rank, what): (u32, String), hold: Duration) -> Self {
        Self {
            reason: ends::reason(world, rank, &what),
            until: Instant::now() + hold,
            is_told: false,
        }
    }
}

/// Tells the other nodes, so that they end their workers while this one does.
fn announce(meeting: &mut Rendezvous, counts: bool, failed: &mut Option<Held>) {
    if let Some(held) = failed.as_mut().filter(|held| !held.is_told) {
        held.is_told = true;
        if counts {
            meeting.restart(&held.reason);
        } else {
            meeting.failing(&held.reason);
        }
    }
}
