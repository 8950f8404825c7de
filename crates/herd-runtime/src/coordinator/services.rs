//! The daemons that serve a job's ranks, such as a Ray cluster's: node 0's first, then those of the
//! other nodes, then the ranks. One that fails ends the attempt.

use std::collections::BTreeSet;

use herd_core::event::EventKind;
use herd_core::exit::ProcessEnd;
use herd_core::result::{Failure, RankResult};
use herd_link::message::{FromCoordinator, Phase, ServiceFailure};

use super::{Action, Coordinator, SIGTERM, Stage, Stop, as_u32};

/// What is known of the daemons of one attempt.
#[derive(Debug, Default)]
pub(super) struct Services {
    ready: BTreeSet<usize>,
    /// Address and port of node 0's.
    first: Option<(String, u16)>,
}

impl Coordinator {
    /// The daemon of a node is up. Node 0's lets the others start theirs; all of them let the ranks
    /// of node 0 start.
    pub fn service_ready(&mut self, node: usize, address: &str, port: u16) {
        if self.stage != Stage::In(Phase::Run) || !self.services.ready.insert(node) {
            return;
        }
        self.event(EventKind::ServiceReady {
            node: as_u32(node),
            address: address.to_owned(),
            port,
        });
        if self.stop.is_some() {
            return;
        }
        if node == 0 {
            self.services.first = Some((address.to_owned(), port));
            for other in 1..self.nodes.len() {
                self.tell_of_first(other);
            }
        }
        if self.services.ready.len() == self.nodes.len() {
            self.tell_of_first(0);
        }
    }

    /// The daemon of a node could not start, was not ready in time, or ended under the ranks.
    pub fn service_failed(&mut self, node: usize, failure: ServiceFailure, now_ms: u64) {
        if self.stop.is_some() || self.stage != Stage::In(Phase::Run) || self.finishing {
            return;
        }
        let name = self.nodes[node].name.clone();
        let failure = if let Some(code) = failure.start_code {
            Failure::RankFailed(Box::new(RankResult {
                start_error: Some(failure.detail),
                last_lines: failure.last_lines,
                ..RankResult::ended(0, as_u32(node), ProcessEnd::Exited(code), now_ms)
            }))
        } else {
            self.event(EventKind::NodeLost {
                name: name.clone(),
                detail: failure.detail.clone(),
            });
            Failure::NodeLost {
                node: name,
                detail: failure.detail,
                last_lines: failure.last_lines,
            }
        };
        self.begin_stop(
            Stop::Failed(Some(failure)),
            SIGTERM,
            self.plan.grace.ms,
            now_ms,
        );
    }

    fn tell_of_first(&mut self, node: usize) {
        if let Some((address, port)) = self.services.first.clone() {
            let message = FromCoordinator::ServiceReady { address, port };
            self.actions.push(Action::Send { node, message });
        }
    }
}
