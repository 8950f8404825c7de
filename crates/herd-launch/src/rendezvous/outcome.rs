//! What a rendezvous comes to: an attempt's world, a change at other nodes, an end.

use std::time::Duration;

use super::member::End;
use super::message::{Assignment, Disturbance, Peer};
use super::{MasterPort, RendezvousError, Settings};
use crate::world::World;

/// What nodes agreed on for one attempt.
#[derive(Debug)]
#[non_exhaustive]
pub struct Joined {
    /// Where this node's workers stand among all.
    pub world: World,
    /// Counted restarts so far, the most of any node: workers put it into the names by which they
    /// find each other, so all must be told the same.
    pub restarts: u32,
    /// All nodes, on node 0 of several; the only ones that a store has to let in.
    pub peers: Vec<Peer>,
    /// The port of `world`, taken, on node 0: listen on it for a store if the world has one, else
    /// drop it just before workers start. None where an earlier attempt has given it already: a
    /// store stays where it is.
    pub master: Option<MasterPort>,
}

/// What happened at other nodes while workers run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nodes have come for which there is room: all stop their workers and join again. Not counted
    /// as a restart.
    NodesWaiting {
        /// How many.
        nodes: u32,
    },
    /// A worker of another node failed there, and it starts its workers again; so must all.
    PeerRestarts {
        /// Which node.
        node: String,
        /// What failed there.
        reason: String,
    },
    /// Another node is gone without a word of failure or end. Those left can join again, if they are
    /// enough or somebody takes its place.
    PeerGone {
        /// Which node.
        node: String,
        /// How it showed.
        reason: String,
    },
    /// A worker of another node failed for good: the job is over.
    PeerFailed {
        /// Which node.
        node: String,
        /// What failed there.
        reason: String,
    },
    /// No further attempt will be, and this node has no part in the present one.
    Closed {
        /// Why.
        reason: String,
    },
    /// Who served the endpoint is gone, and with it the rendezvous: the job is over.
    HostLost {
        /// How it showed.
        reason: String,
    },
}

/// How waiting for the other nodes' end went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// All nodes are done.
    Together,
    /// Others still run, after so long.
    TimedOut {
        /// The time waited.
        after: Duration,
    },
    /// Something happened at another node.
    Disturbed(Change),
}

pub(super) fn joined(assignment: Assignment, master: Option<MasterPort>) -> Joined {
    Joined {
        world: World {
            node_rank: assignment.node_rank,
            nodes: assignment.nodes,
            first_rank: assignment.first_rank,
            world_size: assignment.world_size,
            first_role_rank: assignment.first_role_rank,
            role_world_size: assignment.role_world_size,
            master_addr: assignment.master_addr,
            master_port: assignment.master_port,
            has_store: assignment.has_store,
        },
        restarts: assignment.restarts,
        peers: assignment.peers,
        master,
    }
}

/// What a node whose workers run must act on. A rendezvous that was left by who served it after that
/// node was done is none: workers may go on to their end.
pub(super) fn change(
    round: u64,
    end: Option<End>,
    disturbed: Option<(u64, Disturbance)>,
) -> Option<Change> {
    match end {
        Some(End::PeerFailed { node, reason }) => {
            return Some(Change::PeerFailed { node, reason });
        }
        Some(End::Lost { reason }) => return Some(Change::HostLost { reason }),
        Some(End::Closed { reason } | End::Unfit { reason }) => {
            return Some(Change::Closed { reason });
        }
        Some(End::Released | End::HostLeft) | None => {}
    }
    let (_, what) = disturbed.filter(|(of, _)| *of == round)?;
    Some(match what {
        Disturbance::NodesWaiting { nodes } => Change::NodesWaiting { nodes },
        Disturbance::PeerRestarts { node, reason } => Change::PeerRestarts { node, reason },
        Disturbance::PeerGone { node, reason } => Change::PeerGone { node, reason },
    })
}

/// Why no round will come.
pub(super) fn ended(settings: &Settings, end: End) -> RendezvousError {
    let (id, endpoint) = (settings.id.clone(), settings.place().to_string());
    let closed = |reason: String| RendezvousError::Closed {
        id: id.clone(),
        endpoint: endpoint.clone(),
        reason,
    };
    match end {
        End::PeerFailed { node, reason } => closed(format!("{node} failed: {reason}")),
        End::Released => RendezvousError::Finished { id, endpoint },
        End::Closed { reason } => closed(reason),
        End::HostLeft => closed("the launcher that served it has ended".into()),
        End::Unfit { reason } => RendezvousError::Unfit {
            id,
            endpoint,
            reason,
        },
        End::Lost { reason } => RendezvousError::HostLost {
            id,
            endpoint,
            reason,
        },
    }
}
