//! What nodes and clients say to the driver.

use herd_core::event::EventKind;
use herd_core::exit::ProcessEnd;
use herd_link::Frame;
use herd_link::message::{FromCoordinator, ToCoordinator, VERSION};

use super::{Driver, OTHER_RELEASE, Peer};
use crate::connections::{ConnectionId, Incoming};
use crate::coordinator::other_version;
use crate::signals::Asked;

/// How a rank or a setup ends that was told by the signal by which batch systems ask for the end, and how a shell
/// tells that of a program.
const OF_SIGTERM: [ProcessEnd; 2] = [ProcessEnd::Signaled(15), ProcessEnd::Exited(128 + 15)];

impl Driver {
    pub(super) fn handle(&mut self, (id, incoming): (ConnectionId, Incoming)) {
        let now = self.clock.now_ms();
        let peer = self.peers.get(&id).copied();
        match (incoming, peer) {
            (Incoming::Frame(Frame::Log(log)), Some(Peer::Node(node))) => {
                self.coordinator.heard(node, now);
                if let Some(text) = self.merger.merge(node, &log, now) {
                    self.records.truncated(&text);
                    self.event(EventKind::Warning { text });
                }
            }
            (Incoming::Frame(Frame::Control(bytes)), peer) => {
                let message = serde_json::from_slice(&bytes).unwrap_or(ToCoordinator::Unknown);
                match peer {
                    Some(Peer::Node(node)) => self.node_says(node, message, now),
                    Some(Peer::Client) => self.client_asks(id, message, now),
                    None => self.introduce(id, message, now),
                }
            }
            (Incoming::Frame(Frame::Stdio(frame)), Some(Peer::Node(node))) => {
                self.coordinator.heard(node, now);
                self.session_output(node, frame);
            }
            (Incoming::Frame(Frame::Stdio(frame)), Some(Peer::Client)) => {
                self.clients.insert(id, now);
                self.session_input(id, frame);
            }
            (Incoming::Frame(_), _) => {}
            (Incoming::Broken(how), Some(Peer::Node(node))) => self.coordinator.broken(node, &how),
            // Nobody who has not said who he is may come back.
            (Incoming::Broken(_), _) => self.connections.close(id),
            (Incoming::Ended(how), Some(Peer::Node(node))) => {
                self.peers.remove(&id);
                self.node_connections.remove(&node);
                self.sessions_lost(node, &how);
                self.coordinator.lost(node, &how, now);
            }
            (Incoming::Ended(_), _) => {
                self.peers.remove(&id);
                self.clients.remove(&id);
                self.client_gone(id);
            }
        }
    }

    pub(super) fn introduce(&mut self, id: ConnectionId, message: ToCoordinator, now: u64) {
        match message {
            ToCoordinator::Hello(hello) => match self.coordinator.hello(hello, now) {
                Ok(node) => {
                    self.peers.insert(id, Peer::Node(node));
                    self.node_connections.insert(node, id);
                }
                Err(reason) => self
                    .connections
                    .send(id, &FromCoordinator::Refused { reason }),
            },
            ToCoordinator::Client { version } if version.abs_diff(VERSION) > 1 => {
                let reason = other_version(version);
                self.connections
                    .send(id, &FromCoordinator::Refused { reason });
            }
            ToCoordinator::Client { .. } => {
                self.peers.insert(id, Peer::Client);
                self.clients.insert(id, now);
            }
            _ => {
                let reason = "the first frame must be hello or client".to_owned();
                self.connections
                    .send(id, &FromCoordinator::Refused { reason });
            }
        }
    }

    pub(super) fn node_says(&mut self, node: usize, message: ToCoordinator, now: u64) {
        self.coordinator.heard(node, now);
        match message {
            ToCoordinator::RankStarted { rank, pid } => {
                self.coordinator.rank_started(node, rank, pid);
            }
            ToCoordinator::RankEnded(result) => {
                if OF_SIGTERM.contains(&result.end) && !result.stopped {
                    self.suspect_end();
                }
                self.coordinator.rank_ended(*result, now);
            }
            ToCoordinator::TasksEnded { results } => {
                self.coordinator.tasks_ended(node, results, now);
            }
            ToCoordinator::TasksReturned { indices } => {
                self.coordinator.tasks_returned(node, &indices, now);
            }
            ToCoordinator::PhaseDone { phase, setup } => {
                if setup
                    .as_ref()
                    .is_some_and(|setup| OF_SIGTERM.contains(&setup.end))
                {
                    self.suspect_end();
                }
                self.coordinator.phase_done(node, phase, setup, now);
            }
            ToCoordinator::ServiceReady { address, port } => {
                self.coordinator.service_ready(node, &address, port);
            }
            ToCoordinator::ServiceFailed(failure) => {
                self.coordinator.service_failed(node, *failure, now);
            }
            ToCoordinator::Session(message) => self.session_of_node(node, message),
            // Of the nodes and of this process, one or all may be asked, at about the same time.
            ToCoordinator::AskedToEnd { signal } => {
                if !self.coordinator.is_ending() {
                    self.asked(Asked::End(signal));
                }
            }
            ToCoordinator::NotUnderstood => self.coordinator.lost(node, OTHER_RELEASE, now),
            ToCoordinator::Heartbeat
            | ToCoordinator::Hello(_)
            | ToCoordinator::Client { .. }
            | ToCoordinator::Cancel { .. }
            | ToCoordinator::Preempt { .. }
            | ToCoordinator::Follow { .. }
            | ToCoordinator::Unknown => {}
        }
    }
}
