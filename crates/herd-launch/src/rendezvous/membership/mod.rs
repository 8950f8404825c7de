//! Who takes part, and when a round is complete. Pure: it is told what nodes say, which of them are
//! gone and what time it is, and answers with messages.
//!
//! A round is one attempt of all nodes together. Nodes that are ready gather until they are as many
//! as possible, or enough and a last call has passed. What then happens to one of them disturbs the
//! round, and the others are told; a node that is ready again begins the gathering for the next.

mod complete;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::message::{
    Disturbance, FromHost, Gathering, Hello, MAX_ADDRESSES, MAX_REASON, ToHost, VERSION, bounded,
};
use super::settings::{MAX_LOCAL_SIZE, MAX_TEXT, is_fit};

/// Most nodes that stand by besides those of a full round.
const MAX_SPARE: usize = 64;
/// Most names in one message.
const MAX_NAMES: usize = 8;

/// Names a connection.
pub(super) type Id = u64;

/// What holds for one rendezvous.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) min_nodes: u32,
    pub(super) max_nodes: u32,
    pub(super) last_call: Duration,
    /// Static: ranks are given and all nodes are needed; workers meet at this address and port.
    pub(super) fixed: Option<(String, u16)>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Send(Id, FromHost),
    /// No more nodes are expected; workers are to meet at the endpoint's port, at a store of the
    /// launcher's, or at what rank 0 opens.
    CloseDoor {
        has_store: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ready {
    restarts: u32,
    port: u16,
    has_store: bool,
    /// Counts those who became ready.
    order: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Has said who it is.
    Known,
    Ready(Ready),
    Running,
    Restarting,
    Finished,
}

#[derive(Clone, Debug)]
struct Member {
    hello: Hello,
    seen: IpAddr,
    state: State,
    /// Its rank in the newest round, as long as that has no successor.
    rank: Option<u32>,
}

impl Member {
    fn label(&self) -> String {
        match self.rank.or(self.hello.node_rank) {
            Some(rank) => format!("node {rank} ({}, pid {})", self.hello.name, self.hello.pid),
            None => format!("{} (pid {})", self.hello.name, self.hello.pid),
        }
    }

    fn is_busy(&self) -> bool {
        matches!(self.state, State::Running | State::Restarting)
    }
}

/// The nodes of one rendezvous.
#[derive(Debug)]
pub(super) struct Membership {
    rules: Rules,
    members: BTreeMap<Id, Member>,
    /// Complete rounds so far.
    round: u64,
    /// The newest round has been disturbed.
    disturbed: bool,
    /// The last node that left the newest round before its end.
    lost: Option<String>,
    /// When the last call ends.
    last_call_at: Option<Duration>,
    /// Why no further round will be.
    closed: Option<String>,
    readied: u64,
}

impl Membership {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            members: BTreeMap::new(),
            round: 0,
            disturbed: false,
            lost: None,
            last_call_at: None,
            closed: None,
            readied: 0,
        }
    }

    /// A connection's first message.
    pub(super) fn hello(&mut self, id: Id, mut hello: Hello, seen: IpAddr) -> Vec<Action> {
        if let Some(reason) = self.closed.clone() {
            return vec![Action::Send(id, FromHost::Closed { reason })];
        }
        if let Err(reason) = self.fits(&hello) {
            return vec![Action::Send(id, FromHost::Unfit { reason })];
        }
        hello.name = bounded(&hello.name, MAX_TEXT);
        hello.addresses.truncate(MAX_ADDRESSES);
        let member = Member {
            hello,
            seen,
            state: State::Known,
            rank: None,
        };
        self.members.insert(id, member);
        Vec::new()
    }

    fn fits(&self, hello: &Hello) -> Result<(), String> {
        let Rules {
            min_nodes,
            max_nodes,
            ..
        } = self.rules;
        if hello.version != VERSION {
            return Err(format!(
                "this launcher speaks version {} of the rendezvous protocol, the one at the endpoint \
                 {VERSION}; use the same release on all nodes",
                hello.version
            ));
        }
        if (hello.min_nodes, hello.max_nodes) != (min_nodes, max_nodes) {
            return Err(format!(
                "this node was started with --nnodes {}:{}, the one that serves the endpoint with \
                 {min_nodes}:{max_nodes}",
                hello.min_nodes, hello.max_nodes
            ));
        }
        let sizes = 1..=MAX_LOCAL_SIZE;
        if !sizes.contains(&hello.local_size) || !is_fit(&hello.role) || !is_fit(&hello.address) {
            return Err("number of workers, role or address out of bounds".into());
        }
        match (self.rules.fixed.is_some(), hello.node_rank) {
            (false, None) => {}
            (true, Some(rank)) if rank < max_nodes => {
                let same = |member: &&Member| member.hello.node_rank == Some(rank);
                if let Some(other) = self.members.values().find(same) {
                    return Err(format!(
                        "node rank {rank} is taken by {} (pid {}); give each node another \
                         --node-rank",
                        other.hello.name, other.hello.pid
                    ));
                }
            }
            _ => return Err("this node was started with another --rdzv-backend".into()),
        }
        let room = usize::try_from(max_nodes).unwrap_or(usize::MAX);
        if self.members.len() >= room.saturating_add(MAX_SPARE) {
            return Err(format!("{MAX_SPARE} nodes stand by already"));
        }
        Ok(())
    }

    /// A further message.
    pub(super) fn receive(&mut self, id: Id, message: ToHost, now: Duration) -> Vec<Action> {
        if self.closed.is_some() {
            return Vec::new();
        }
        match message {
            ToHost::Join {
                round,
                restarts,
                port,
                has_store,
                reason,
            } => {
                let mut actions = match reason {
                    Some(reason) => self.restart(id, round, &reason),
                    None => Vec::new(),
                };
                actions.extend(self.join(id, round, (restarts, port, has_store), now));
                actions
            }
            ToHost::Restart { round, reason } => self.restart(id, round, &reason),
            ToHost::Failed { reason } => self.failed(id, &reason),
            ToHost::Finished { round } => self.finished(id, round, now),
            ToHost::Leave => {
                let mut actions = self.gone(id, "it was stopped", now);
                let reason = "this node has left".into();
                actions.push(Action::Send(id, FromHost::Closed { reason }));
                actions
            }
            ToHost::Hello(_) | ToHost::Beat | ToHost::Unknown => Vec::new(),
        }
    }

    fn join(
        &mut self,
        id: Id,
        round: u64,
        (restarts, port, has_store): (u32, u16, bool),
        now: Duration,
    ) -> Vec<Action> {
        let newest = self.round;
        let Some(member) = self.members.get_mut(&id) else {
            return Vec::new();
        };
        if member.rank.is_some() && round != newest {
            // Crossed with the message that made it part of this round.
            return Vec::new();
        }
        let restarts_others = member.state == State::Running;
        let order = if let State::Ready(ready) = member.state {
            ready.order
        } else {
            self.readied += 1;
            self.readied
        };
        member.state = State::Ready(Ready {
            restarts,
            port,
            has_store,
            order,
        });
        let newcomer = member.rank.is_none();
        let node = member.label();
        let mut actions = Vec::new();
        if restarts_others {
            let reason = "it starts its workers again".into();
            actions = self.disturb(&Disturbance::PeerRestarts { node, reason });
        } else if newcomer && self.has_room() {
            let nodes = self
                .count(|member| member.rank.is_none() && matches!(member.state, State::Ready(_)));
            actions = self.disturb(&Disturbance::NodesWaiting { nodes });
        }
        actions.extend(self.complete_if_ready(now));
        actions
    }

    fn restart(&mut self, id: Id, round: u64, reason: &str) -> Vec<Action> {
        let newest = self.round;
        match self.members.get_mut(&id) {
            Some(member) if member.state == State::Running && round == newest => {
                member.state = State::Restarting;
                let node = member.label();
                let reason = bounded(reason, MAX_REASON);
                self.disturb(&Disturbance::PeerRestarts { node, reason })
            }
            _ => Vec::new(),
        }
    }

    fn failed(&mut self, id: Id, reason: &str) -> Vec<Action> {
        let Some(member) = self.members.get(&id) else {
            return Vec::new();
        };
        let (node, reason) = (member.label(), bounded(reason, MAX_REASON));
        let over = format!("{node} failed: {reason}");
        self.closed = Some(over.clone());
        let told = |(&other, member): (&Id, &Member)| {
            let message = if other == id || member.rank.is_none() {
                FromHost::Closed {
                    reason: over.clone(),
                }
            } else {
                FromHost::PeerFailed {
                    node: node.clone(),
                    reason: reason.clone(),
                }
            };
            Action::Send(other, message)
        };
        self.members.iter().map(told).collect()
    }

    fn finished(&mut self, id: Id, round: u64, now: Duration) -> Vec<Action> {
        let newest = self.round;
        match self.members.get_mut(&id) {
            Some(member) if member.is_busy() && round == newest => {
                member.state = State::Finished;
                self.release_or_complete(now)
            }
            _ => Vec::new(),
        }
    }

    /// A node's connection has ended, or it was silent for too long.
    pub(super) fn gone(&mut self, id: Id, reason: &str, now: Duration) -> Vec<Action> {
        let Some(member) = self.members.remove(&id) else {
            return Vec::new();
        };
        if self.closed.is_some() {
            return Vec::new();
        }
        let mut actions = Vec::new();
        if member.rank.is_some() && member.state != State::Finished {
            let node = member.label();
            self.lost = Some(node.clone());
            let reason = reason.to_owned();
            actions = self.disturb(&Disturbance::PeerGone { node, reason });
        }
        actions.extend(self.release_or_complete(now));
        actions
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Duration) -> Vec<Action> {
        self.complete_if_ready(now)
    }

    /// When to call [`Self::tick`] next.
    pub(super) fn next_tick(&self) -> Option<Duration> {
        self.last_call_at
    }

    /// The endpoint is served no longer.
    pub(super) fn leave(&mut self) -> Vec<Action> {
        if self.closed.is_some() {
            return Vec::new();
        }
        self.closed = Some("the launcher that serves it has ended".into());
        let ids = self.members.keys();
        ids.map(|&id| Action::Send(id, FromHost::HostLeaves))
            .collect()
    }

    /// What a node that waits should know.
    pub(super) fn gathering(&self, id: Id) -> Option<Gathering> {
        let member = self.members.get(&id)?;
        if !matches!(member.state, State::Ready(_)) {
            return None;
        }
        let in_round = self.count(|member| member.rank.is_some());
        let absent = self.absent_ranks().map(|rank| format!("node rank {rank}"));
        let busy = self.members.values().filter(|member| member.is_busy());
        Some(Gathering {
            ready: self.count(|member| matches!(member.state, State::Ready(_))),
            min_nodes: self.rules.min_nodes,
            max_nodes: self.rules.max_nodes,
            missing: busy
                .map(Member::label)
                .chain(absent)
                .take(MAX_NAMES)
                .collect(),
            spare: member.rank.is_none() && in_round >= self.rules.max_nodes,
        })
    }

    /// Ranks that nobody has claimed, where they are given.
    fn absent_ranks(&self) -> impl Iterator<Item = u32> {
        let ranks = self.rules.fixed.as_ref().map(|_| 0..self.rules.max_nodes);
        ranks.into_iter().flatten().filter(|rank| {
            let claims = |member: &Member| member.hello.node_rank == Some(*rank);
            !self.members.values().any(claims)
        })
    }

    /// Whether a newcomer could take part, if all began again. Not once a node has finished, since
    /// it will not.
    fn has_room(&self) -> bool {
        let finished = |member: &Member| member.state == State::Finished;
        self.count(|member| member.rank.is_some()) < self.rules.max_nodes
            && !self.members.values().any(finished)
    }

    fn count(&self, of: impl Fn(&Member) -> bool) -> u32 {
        let count = self.members.values().filter(|member| of(member)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Tells those of the round that it cannot stay as it is; once a round.
    fn disturb(&mut self, what: &Disturbance) -> Vec<Action> {
        if std::mem::replace(&mut self.disturbed, true) {
            return Vec::new();
        }
        let round = self.round;
        let concerned = |member: &Member| {
            member.rank.is_some() && matches!(member.state, State::Running | State::Finished)
        };
        let told = self
            .members
            .iter()
            .filter(|(_id, member)| concerned(member));
        told.map(|(&id, _member)| {
            let what = what.clone();
            Action::Send(id, FromHost::Disturbed { round, what })
        })
        .collect()
    }
}
