//! The driver's part in commands inside the job: passes messages and bytes between a client and a
//! node. What belongs together is [`crate::session::relay`]'s to know.

use herd_link::message::{FromCoordinator, ToCoordinator};
use herd_link::session::{SessionEvent, SessionMessage, SessionRequest};
use herd_link::{Frame, StdioFrame};

use super::Driver;
use crate::connections::ConnectionId;
use crate::coordinator::SILENCE_MS;
use crate::session::follow::Lengths;
use crate::session::relay::{ClientSession, NodeSession};

/// Said to a client whose session would fill what waits for its node.
const NO_ROOM: &str = "the node has not taken what was sent to the commands there, and no more of it \
                       can wait; the job goes on";

impl Driver {
    /// A client speaks of one of its sessions.
    pub(super) fn session_of_client(&mut self, client: ConnectionId, message: SessionMessage) {
        let theirs = ClientSession {
            client,
            number: message.session,
        };
        match message.event {
            SessionEvent::Start(request) => {
                if let Err(reason) = self.start_session(theirs, request) {
                    let refused = FromCoordinator::Refused { reason };
                    self.connections.send(client, &refused);
                }
            }
            // Only a node ends a session.
            SessionEvent::Ended { .. } => {}
            event => {
                if let Some(ours) = self.relay.of_client(theirs) {
                    let frame = about(ours, event);
                    self.hand_to_session(ours, frame);
                }
            }
        }
    }

    /// A node speaks of one of its sessions.
    pub(super) fn session_of_node(&mut self, node: usize, message: SessionMessage) {
        let ours = NodeSession {
            node,
            number: message.session,
        };
        let theirs = if matches!(message.event, SessionEvent::Ended { .. }) {
            self.relay.ended(ours)
        } else {
            self.relay.of_node(ours)
        };
        if let Some(theirs) = theirs {
            let message = FromCoordinator::Session(SessionMessage {
                session: theirs.number,
                event: message.event,
            });
            self.connections.send(theirs.client, &message);
        }
    }

    /// Bytes that a client sends to a command.
    pub(super) fn session_input(&mut self, client: ConnectionId, frame: StdioFrame) {
        let theirs = ClientSession {
            client,
            number: frame.session,
        };
        let Some(ours) = self.relay.of_client(theirs) else {
            return;
        };
        let session = ours.number;
        self.hand_to_session(ours, Frame::Stdio(StdioFrame { session, ..frame }));
    }

    /// Bytes that a command wrote.
    pub(super) fn session_output(&mut self, node: usize, frame: StdioFrame) {
        let ours = NodeSession {
            node,
            number: frame.session,
        };
        if let Some(theirs) = self.relay.of_node(ours) {
            let session = theirs.number;
            self.connections
                .send_frame(theirs.client, Frame::Stdio(StdioFrame { session, ..frame }));
        }
    }

    /// A client is gone, and with it its sessions.
    pub(super) fn client_gone(&mut self, client: ConnectionId) {
        self.followers.gone(client);
        for ours in self.relay.client_gone(client) {
            self.close_session(ours);
        }
    }

    /// A node is lost, and with it the sessions there: their clients hear why.
    pub(super) fn sessions_lost(&mut self, node: usize, how: &str) {
        for theirs in self.relay.node_lost(node) {
            let reason = format!("the node was lost: {how}");
            self.connections
                .send(theirs.client, &FromCoordinator::Refused { reason });
        }
    }

    /// Clients hear once a second that the coordinator lives, and are given up in silence.
    pub(super) fn look_after_clients(&mut self, now_ms: u64) {
        let mut silent = Vec::new();
        for (&client, &heard_ms) in &self.clients {
            if now_ms.saturating_sub(heard_ms) > SILENCE_MS {
                silent.push(client);
            } else {
                self.connections.send(client, &FromCoordinator::Heartbeat);
            }
        }
        for client in silent {
            self.connections.close(client);
        }
    }

    fn start_session(
        &mut self,
        theirs: ClientSession,
        request: SessionRequest,
    ) -> Result<(), String> {
        if request.argv.is_empty() {
            return Err("no command is given".to_owned());
        }
        request.check_size().map_err(|error| error.to_string())?;
        let node = self.coordinator.place(&request.place)?;
        let number = self.relay.start(theirs, node)?;
        let ours = NodeSession { node, number };
        let start = about(ours, SessionEvent::Start(request));
        if self.send_to_session(ours, start) {
            return Ok(());
        }
        self.relay.ended(ours);
        Err(NO_ROOM.to_owned())
    }

    /// Passes on what a client sends; where the node has no room for it, the session ends and not
    /// the node.
    fn hand_to_session(&mut self, ours: NodeSession, frame: Frame) {
        if self.send_to_session(ours, frame) {
            return;
        }
        self.close_session(ours);
        if let Some(theirs) = self.relay.ended(ours) {
            let reason = NO_ROOM.to_owned();
            self.connections
                .send(theirs.client, &FromCoordinator::Refused { reason });
        }
    }

    /// `false` where the node has no room. One that is lost has its own end.
    fn send_to_session(&mut self, ours: NodeSession, frame: Frame) -> bool {
        let id = self.node_connections.get(&ours.node);
        id.is_none_or(|&id| self.connections.send_of_session(id, frame))
    }

    fn close_session(&mut self, ours: NodeSession) {
        if let Some(&id) = self.node_connections.get(&ours.node) {
            self.connections
                .send_frame(id, about(ours, SessionEvent::Close));
        }
    }

    /// What a client asks besides its sessions.
    pub(super) fn client_asks(&mut self, id: ConnectionId, message: ToCoordinator, now: u64) {
        self.clients.insert(id, now);
        let answer = match message {
            ToCoordinator::Session(message) => {
                if !self.followers.hear(id, &message) {
                    self.session_of_client(id, message);
                }
                return;
            }
            ToCoordinator::Follow { log, index } => self.follow(id, Lengths { log, index }),
            ToCoordinator::Heartbeat => return,
            ToCoordinator::Cancel {
                signal,
                grace_ms,
                by,
            } => {
                let code = herd_core::exit::CANCELLED;
                self.coordinator.cancel(signal, grace_ms, code, &by, now);
                FromCoordinator::Done
            }
            ToCoordinator::Preempt { grace_ms, by } => {
                self.coordinator.preempt(grace_ms, &by, now);
                FromCoordinator::Done
            }
            _ => FromCoordinator::Refused {
                reason: "this release does not know that request".to_owned(),
            },
        };
        self.connections.send(id, &answer);
    }
}

/// A message to a node about one of its sessions.
fn about(ours: NodeSession, event: SessionEvent) -> Frame {
    let message = FromCoordinator::Session(SessionMessage {
        session: ours.number,
        event,
    });
    // All parts of a message can be written as JSON.
    Frame::Control(serde_json::to_vec(&message).unwrap_or_default())
}
