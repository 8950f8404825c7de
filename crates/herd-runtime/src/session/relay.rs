//! The coordinator's part of sessions: which client's session is which of a node's. Pure.

use std::collections::BTreeMap;

use super::bounds::SESSIONS_PER_NODE;
use crate::connections::ConnectionId;

/// A session as its client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientSession {
    pub(crate) client: ConnectionId,
    pub(crate) number: u32,
}

/// A session as its node names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeSession {
    pub(crate) node: usize,
    pub(crate) number: u32,
}

/// All sessions of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    /// By the number that the node knows, which is never used twice.
    sessions: BTreeMap<u32, (usize, ClientSession)>,
    last: u32,
}

impl Relay {
    /// Takes up a client's session on a node, or says why not.
    pub(crate) fn start(&mut self, theirs: ClientSession, node: usize) -> Result<u32, String> {
        if self.of_client(theirs).is_some() {
            return Err(format!("session {} runs already", theirs.number));
        }
        let there = self.sessions.values().filter(|(on, _)| *on == node).count();
        if there >= SESSIONS_PER_NODE {
            return Err(format!(
                "{SESSIONS_PER_NODE} commands run on that node already, which is the most"
            ));
        }
        self.last = self
            .last
            .checked_add(1)
            .ok_or("too many sessions in one attempt")?;
        self.sessions.insert(self.last, (node, theirs));
        Ok(self.last)
    }

    /// Where a client's session runs.
    pub(crate) fn of_client(&self, theirs: ClientSession) -> Option<NodeSession> {
        self.sessions
            .iter()
            .find(|(_, (_, client))| *client == theirs)
            .map(|(&number, &(node, _))| NodeSession { node, number })
    }

    /// Whose session it is that a node speaks of; none where it is not that node's.
    pub(crate) fn of_node(&self, ours: NodeSession) -> Option<ClientSession> {
        self.sessions
            .get(&ours.number)
            .filter(|(node, _)| *node == ours.node)
            .map(|&(_, client)| client)
    }

    /// A node's session ended; returns whose it was.
    pub(crate) fn ended(&mut self, ours: NodeSession) -> Option<ClientSession> {
        let client = self.of_node(ours)?;
        self.sessions.remove(&ours.number);
        Some(client)
    }

    /// A client is gone; returns its sessions, which are to be closed.
    pub(crate) fn client_gone(&mut self, client: ConnectionId) -> Vec<NodeSession> {
        let theirs = |(_, of): &(usize, ClientSession)| of.client == client;
        let gone = self
            .sessions
            .iter()
            .filter(|(_, session)| theirs(session))
            .map(|(&number, &(node, _))| NodeSession { node, number })
            .collect();
        self.sessions.retain(|_, session| !theirs(session));
        gone
    }

    /// A node is lost; returns whose sessions ran there.
    pub(crate) fn node_lost(&mut self, lost: usize) -> Vec<ClientSession> {
        let gone = self
            .sessions
            .values()
            .filter(|(node, _)| *node == lost)
            .map(|&(_, client)| client)
            .collect();
        self.sessions.retain(|_, (node, _)| *node != lost);
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(client: ConnectionId, number: u32) -> ClientSession {
        ClientSession { client, number }
    }

    #[test]
    fn each_side_finds_the_other_until_the_session_ends() {
        let mut relay = Relay::default();
        let first = relay.start(client(7, 0), 1).unwrap();
        let second = relay.start(client(8, 0), 1).unwrap();
        assert_ne!(first, second);
        assert!(relay.start(client(7, 0), 0).is_err(), "one number twice");
        let ours = NodeSession {
            node: 1,
            number: second,
        };
        assert_eq!(relay.of_node(ours), Some(client(8, 0)));
        assert_eq!(relay.of_client(client(8, 0)), Some(ours));
        let other_node = NodeSession { node: 0, ..ours };
        assert_eq!(relay.ended(other_node), None, "a node ends only its own");
        assert_eq!(relay.ended(ours), Some(client(8, 0)));
        assert_eq!(relay.of_client(client(8, 0)), None);
    }

    #[test]
    fn what_is_left_of_a_client_or_a_node_that_is_gone_is_told() {
        let mut relay = Relay::default();
        let number = relay.start(client(7, 0), 1).unwrap();
        relay.start(client(8, 3), 0).unwrap();
        assert_eq!(relay.client_gone(7), [NodeSession { node: 1, number }]);
        assert_eq!(relay.node_lost(0), [client(8, 3)]);
        assert!(relay.sessions.is_empty());
    }

    #[test]
    fn a_node_takes_a_bounded_number_of_sessions() {
        let mut relay = Relay::default();
        for number in 0..16 {
            relay.start(client(1, number), 0).unwrap();
        }
        assert!(relay.start(client(1, 99), 0).is_err());
        assert!(relay.start(client(1, 99), 1).is_ok());
    }
}
