//! What launchers say to the one that serves the endpoint, and its answers: JSON in control frames.
//! Unknown fields are ignored and unknown types become `Unknown`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Version of this protocol, said first.
pub(super) const VERSION: u32 = 1;
/// Most addresses of one node that are told.
pub(super) const MAX_ADDRESSES: usize = 64;
/// Longest reason in bytes.
pub(super) const MAX_REASON: usize = 4096;

/// Who a node is, and what it takes the job to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    /// Host name, for people.
    pub(super) name: String,
    pub(super) pid: u32,
    /// Where workers of other nodes reach this one.
    pub(super) address: String,
    /// The addresses of its interfaces.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) local_size: u32,
    pub(super) role: String,
    pub(super) min_nodes: u32,
    pub(super) max_nodes: u32,
    /// Its rank, where ranks are given.
    pub(super) node_rank: Option<u32>,
}

/// From a node to the one that serves the endpoint. `round` is the round that the node is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum ToHost {
    Hello(Hello),
    /// No worker of mine runs: I want a part in the round after `round`.
    Join {
        round: u64,
        /// Restarts that were counted here so far.
        restarts: u32,
        /// The port at which workers are to meet, should this become node 0.
        port: u16,
        /// Whether the workers here can use a launcher's store.
        has_store: bool,
        /// What failed here in that round, where [`Self::Restart`] may not have been sent.
        #[serde(default)]
        reason: Option<String>,
    },
    /// A worker of mine failed and I will join again; so should all.
    Restart {
        round: u64,
        reason: String,
    },
    /// A worker of mine failed for good.
    Failed {
        reason: String,
    },
    /// All workers of mine are done.
    Finished {
        round: u64,
    },
    /// I go, the others may go on. Answered with the last message, once the others are told.
    Leave,
    Beat,
    #[serde(other)]
    Unknown,
}

/// How far the coming together is, for one node's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gathering {
    /// Nodes that are ready for the next round.
    pub(super) ready: u32,
    pub(super) min_nodes: u32,
    pub(super) max_nodes: u32,
    /// Names of some that are expected: they still run or stop their workers, or their rank is absent.
    pub(super) missing: Vec<String>,
    /// All places are taken; this node stands by.
    pub(super) spare: bool,
}

/// One node of a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its rank among nodes.
    pub node_rank: u32,
    /// Host name, for people.
    pub name: String,
    /// Workers on it.
    pub local_size: u32,
    /// Where it may connect from: the addresses of its interfaces and the one it was seen with.
    pub addresses: Vec<IpAddr>,
}

/// A node's part in a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Assignment {
    pub(super) round: u64,
    pub(super) restarts: u32,
    pub(super) node_rank: u32,
    pub(super) nodes: u32,
    pub(super) first_rank: u32,
    pub(super) world_size: u32,
    pub(super) first_role_rank: u32,
    pub(super) role_world_size: u32,
    pub(super) master_addr: String,
    pub(super) master_port: u16,
    pub(super) has_store: bool,
    /// All nodes; told to node 0 alone, which may serve them a store.
    #[serde(default)]
    pub(super) peers: Vec<Peer>,
}

/// Something that happened to a round while its workers run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum Disturbance {
    NodesWaiting { nodes: u32 },
    PeerRestarts { node: String, reason: String },
    PeerGone { node: String, reason: String },
}

/// From the one that serves the endpoint to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum FromHost {
    /// Each second.
    Beat {
        gathering: Option<Gathering>,
    },
    World(Box<Assignment>),
    Disturbed {
        round: u64,
        what: Disturbance,
    },
    /// A node failed for good. The last message.
    PeerFailed {
        node: String,
        reason: String,
    },
    /// All nodes of the last round are done. The last message.
    Released,
    /// This node does not fit the others. The last message.
    Unfit {
        reason: String,
    },
    /// No further round will be. The last message to a node without a part.
    Closed {
        reason: String,
    },
    /// The rendezvous ends; workers may go on. The last message.
    HostLeaves,
    #[serde(other)]
    Unknown,
}

impl FromHost {
    /// Whether nothing follows: the node says goodbye then.
    pub(super) fn is_last(&self) -> bool {
        matches!(
            self,
            Self::PeerFailed { .. }
                | Self::Released
                | Self::Unfit { .. }
                | Self::Closed { .. }
                | Self::HostLeaves
        )
    }
}

/// Text that a node gave, cut to a bound and without control characters: other nodes show it.
pub(super) fn bounded(text: &str, most: usize) -> String {
    let mut shown: String = text
        .chars()
        .filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t'))
        .take(most)
        .collect();
    while shown.len() > most {
        shown.pop();
    }
    shown
}
