//! What the events of one attempt add up to.

use std::collections::BTreeMap;

use herd_core::event::{Event, EventKind};
use herd_core::exit::ProcessEnd;
use herd_core::result::RankResult;
use herd_core::state::{AttemptState, JobState};

use super::shown::{NodeStatus, RankStatus};
use crate::attempt::AttemptDir;
use crate::error::JobDirError;
use crate::job::JobDir;

/// What the events of an attempt add up to.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) job: Option<(JobState, Option<String>)>,
    pub(super) attempt: Option<AttemptState>,
    pub(super) cancelled_by: Option<String>,
    pub(super) started_ms: Option<u64>,
    pub(super) nodes: BTreeMap<u32, NodeStatus>,
    pub(super) ranks: BTreeMap<u32, RankStatus>,
    pub(super) ends: BTreeMap<u32, RankResult>,
    pub(super) warnings: Vec<String>,
}

/// All that an attempt has written so far.
pub(super) fn read_seen(attempt: &AttemptDir) -> Result<Seen, JobDirError> {
    let mut seen = Seen::default();
    for event in attempt.read_events()? {
        seen.add(event);
    }
    Ok(seen)
}

/// When the first attempt at a job, or at a task with a directory of its own, began.
pub(crate) fn started_ms(job: &JobDir) -> Result<Option<u64>, JobDirError> {
    Ok(read_seen(&job.attempt(1))?.started_ms)
}

impl Seen {
    fn add(&mut self, event: Event) {
        let time_ms = event.time_ms;
        match event.kind {
            EventKind::Job { state, why } => self.job = Some((state, why)),
            EventKind::Attempt { state, .. } => {
                self.attempt = Some(state);
                self.started_ms.get_or_insert(time_ms);
                // An attempt that moves on is not waiting any more, whether or not the job said so.
                if matches!(self.job, Some((JobState::Queued, _))) && !state.is_terminal() {
                    self.job = Some((JobState::Active, None));
                }
            }
            EventKind::NodeJoined { node, name, pid } => {
                self.nodes.insert(
                    node,
                    NodeStatus {
                        index: node,
                        name,
                        pid,
                        lost: None,
                    },
                );
            }
            EventKind::NodeLost { name, detail } => {
                for node in self.nodes.values_mut().filter(|node| node.name == name) {
                    node.lost = Some(detail.clone());
                }
            }
            EventKind::RankStarted { rank, node, pid } => {
                let status = RankStatus {
                    rank,
                    node,
                    pid: Some(pid),
                    end: None,
                    stopped: false,
                };
                self.ranks.insert(rank, status);
            }
            EventKind::RankEnded {
                rank,
                node,
                end,
                stopped,
            } => {
                let status = self.ranks.entry(rank).or_insert(RankStatus {
                    rank,
                    node,
                    pid: None,
                    end: None,
                    stopped,
                });
                status.end = Some(end);
                status.stopped = stopped;
                self.ends
                    .insert(rank, rank_result(rank, node, end, stopped, time_ms));
            }
            EventKind::CancelRequested { by } => self.cancelled_by = Some(by),
            EventKind::Warning { text } => self.warnings.push(text),
            EventKind::BoundExpired { wait, detail } => {
                self.warnings
                    .push(format!("gave up waiting for {wait}: {detail}"));
            }
            EventKind::PreemptionNotice { .. }
            | EventKind::Paused
            | EventKind::Resumed
            | EventKind::ServiceReady { .. }
            | EventKind::TaskRetried { .. }
            | EventKind::Unknown => {}
        }
    }
}

fn rank_result(rank: u32, node: u32, end: ProcessEnd, stopped: bool, ended_ms: u64) -> RankResult {
    RankResult {
        stopped,
        ..RankResult::ended(rank, node, end, ended_ms)
    }
}
