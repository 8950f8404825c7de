//! The course of one launch: attempts, and what becomes of them together with the other nodes.

use std::pin::pin;
use std::time::{Duration, Instant};

use herd_core::exit;
use herd_core::text::{error_line, error_report};
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::attempt::{Ended, Failed};
use super::ends;
use super::said::{self, Next};
use super::say::{print, say};
use super::shared_store::SharedStore;
use super::{LaunchError, Status, record, verbose};
use crate::agent::events::Event;
use crate::agent::{Agent, Told, WorkerEnd};
use crate::rendezvous::{Change, Joined, Rendezvous, RendezvousError};
use crate::torchrun::flags::{ExitRule, Flags};
use crate::world::World;

/// Until it is said that other nodes are waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// One launch.
pub(super) struct Course<'a> {
    pub(super) flags: Flags,
    pub(super) agent: Agent,
    pub(super) meeting: Rendezvous,
    pub(super) store: SharedStore,
    /// The first failure of each attempt.
    pub(super) failures: mpsc::Receiver<(u32, String)>,
    /// Signals.
    pub(super) told: &'a mut mpsc::Receiver<Told>,
    /// Least number of nodes.
    pub(super) min_nodes: u32,
    /// Counted so far, at any node.
    pub(super) restarts: u32,
    /// The report of the attempt before.
    pub(super) earlier: Option<Status>,
    pub(super) began: Instant,
}

impl Course<'_> {
    pub(super) async fn run(mut self) -> Result<Status, LaunchError> {
        loop {
            let mut joined = match self.join().await {
                Ok(joined) => joined,
                Err(status) => return Ok(status),
            };
            self.restarts = joined.restarts;
            let world = joined.world.clone();
            self.tell(&world);
            match self.attempt(&mut joined).await {
                Ok(Ended::Succeeded(ends)) => return Ok(self.finish(&world, &ends).await),
                Ok(Ended::Failed(failed)) => {
                    if let Some(status) = self.after_failure(&world, failed).await {
                        return Ok(status);
                    }
                }
                Ok(Ended::Changed(change)) => match self.next(&change, &world) {
                    Next::Again(text) => {
                        self.record_restart(&text, false);
                        say(&text);
                    }
                    Next::Over(status) => {
                        self.leave().await;
                        return Ok(status);
                    }
                },
                Ok(Ended::Signalled(signal)) => {
                    self.leave().await;
                    return Ok(self.signalled(signal));
                }
                Err(error) => {
                    let reason = error_line(&error);
                    let _stopped = unless_told(self.told, self.meeting.fail(&reason)).await;
                    return Err(error);
                }
            }
        }
    }

    /// The next attempt's place among all nodes, or how the launch ends without one.
    async fn join(&mut self) -> Result<Joined, Status> {
        let joined = unless_told(self.told, self.meeting.join(self.restarts)).await;
        let error = match joined {
            Ok(Ok(joined)) => return Ok(joined),
            Ok(Err(error @ RendezvousError::Finished { .. })) => {
                say(&error.to_string());
                return Err(Status {
                    code: exit::SUCCESS,
                    report: String::new(),
                });
            }
            Ok(Err(error)) => LaunchError::from(error),
            Err(told) => {
                self.leave_unless_orphaned(told).await;
                return Err(self.signalled(number(told)));
            }
        };
        let report = format!("herd launch: {}", error_report(&error));
        // Why workers failed says more than that nobody came to begin again with.
        let Some(earlier) = self.earlier.take() else {
            record(&error_line(&error));
            let code = error.code();
            return Err(Status { code, report });
        };
        Err(Status {
            code: earlier.code,
            report: earlier.report + &report,
        })
    }

    fn tell(&self, world: &World) {
        let last = world
            .first_rank
            .saturating_add(self.agent.settings().workers);
        let sentence = format!(
            "attempt {}: node {} of {}, ranks {} to {} of {}; workers meet at {} port {}",
            self.restarts,
            world.node_rank,
            world.nodes,
            world.first_rank,
            last.saturating_sub(1),
            world.world_size,
            world.master_addr,
            world.master_port
        );
        verbose(&self.flags, &sentence);
    }

    /// Whether a further failure leads to another attempt.
    pub(super) fn counts(&self) -> bool {
        self.restarts < self.flags.max_restarts
    }

    /// Whether one node less would still be enough.
    pub(super) fn is_enough(&self, world: &World) -> bool {
        world.nodes > self.min_nodes
    }

    /// What follows from a change at other nodes.
    fn next(&self, change: &Change, world: &World) -> Next {
        let can_go_on = self.is_enough(world) || self.counts();
        said::next(change, can_go_on, self.flags.exit_rule)
    }

    /// After workers failed here: how the launch ends, or nothing where they start again.
    async fn after_failure(&mut self, world: &World, failed: Failed) -> Option<Status> {
        let Failed {
            ends,
            reason,
            cause,
        } = failed;
        let next = cause.map(|change| (self.next(&change, world), change));
        match next {
            // Whoever is gone made them fail.
            Some((Next::Again(text), Change::PeerGone { .. })) if !self.counts() => {
                self.record_restart(&text, false);
                say(&text);
                return None;
            }
            Some((Next::Over(over), _)) => {
                let mut status = self.failed(world, &ends);
                status.report.push_str(&over.report);
                self.leave().await;
                return Some(status);
            }
            Some((Next::Again(_), _)) | None => {}
        }
        if !self.counts() {
            return Some(self.fail(world, &ends, &reason).await);
        }
        self.meeting.restart(&reason);
        self.earlier = Some(ends::failed(&self.flags, world, &ends));
        self.restarts += 1;
        let left = self.flags.max_restarts - self.restarts;
        let number = self.restarts;
        self.record_restart(&reason, true);
        say(&format!(
            "{reason}; attempt {number} begins, {left} restarts are left after it"
        ));
        None
    }

    fn record_restart(&self, reason: &str, counted: bool) {
        self.agent.settings().events.record(&Event::Restarting {
            attempt: self.restarts,
            counted,
            left: self.flags.max_restarts.saturating_sub(self.restarts),
            reason: reason.to_owned(),
        });
    }

    fn failed(&self, world: &World, ends: &[WorkerEnd]) -> Status {
        let mut status = ends::failed(&self.flags, world, ends);
        if self.flags.summary {
            let summary = ends::summary(world, ends, self.began);
            status.report.push_str(&summary);
        }
        status
    }

    /// The workers failed for good.
    async fn fail(&mut self, world: &World, ends: &[WorkerEnd], reason: &str) -> Status {
        let mut status = self.failed(world, ends);
        // Said before other nodes are waited for.
        print(&std::mem::take(&mut status.report));
        let _stopped = unless_told(self.told, self.meeting.fail(reason)).await;
        status
    }

    /// The workers here have ended well: waits for the others.
    async fn finish(&mut self, world: &World, ends: &[WorkerEnd]) -> Status {
        let finishing = async {
            let mut finishing = pin!(self.meeting.finish());
            if let Ok(finish) = timeout(PATIENCE, &mut finishing).await {
                return finish;
            }
            say("the workers here are done; waiting for those of other nodes");
            finishing.await
        };
        let finish = match unless_told(self.told, finishing).await {
            Ok(finish) => finish,
            Err(told) => {
                self.leave_unless_orphaned(told).await;
                return self.signalled(number(told));
            }
        };
        if let Some(sentence) = said::after_finish(&finish) {
            say(&sentence);
        }
        self.agent.settings().layout.remove_implicit();
        let report = if self.flags.summary {
            ends::summary(world, ends, self.began)
        } else {
            String::new()
        };
        Status {
            code: exit::SUCCESS,
            report,
        }
    }

    async fn leave(&mut self) {
        let _stopped = unless_told(self.told, self.meeting.leave()).await;
    }

    /// Nobody is left to end this launcher if it waits.
    async fn leave_unless_orphaned(&mut self, told: Told) {
        if told != Told::Orphaned {
            self.leave().await;
        }
    }

    fn signalled(&self, signal: i32) -> Status {
        record(&format!(
            "SignalException: Process {} got signal: {signal}",
            std::process::id()
        ));
        let signal = u8::try_from(signal).unwrap_or(0);
        Status {
            code: match self.flags.exit_rule {
                ExitRule::One => 1,
                ExitRule::Worker => 128u8.saturating_add(signal),
            },
            report: format!("herd launch: ended by signal {signal}\n"),
        }
    }
}

fn number(told: Told) -> i32 {
    match told {
        Told::End(signal) | Told::Forward(signal) => signal,
        Told::Orphaned => Signal::TERM.as_raw(),
    }
}

/// Does this while no workers run, unless the end is asked for first.
async fn unless_told<T>(
    told: &mut mpsc::Receiver<Told>,
    doing: impl Future<Output = T>,
) -> Result<T, Told> {
    let mut doing = pin!(doing);
    loop {
        tokio::select! {
            biased;
            done = &mut doing => return Ok(done),
            Some(told) = told.recv() => {
                if !matches!(told, Told::Forward(_)) {
                    return Err(told);
                }
            }
        }
    }
}
