//! When nodes make a round, and when they part.

use std::time::Duration;

use super::{Action, Id, Member, Membership, Ready, State};
use crate::rendezvous::message::{Assignment, FromHost, Peer};
use crate::rendezvous::ranks::ranks;

impl Membership {
    /// After a node has finished or is gone: all the others of the round may be done.
    pub(super) fn release_or_complete(&mut self, now: Duration) -> Vec<Action> {
        let mut in_round = self
            .members
            .values()
            .filter(|member| member.rank.is_some())
            .peekable();
        let any = in_round.peek().is_some();
        if !any || !in_round.all(|member| member.state == State::Finished) {
            return self.complete_if_ready(now);
        }
        // Those that stand by are not needed any more.
        let told = |&id| Action::Send(id, FromHost::Released);
        let actions = self.members.keys().map(told).collect();
        self.closed = Some("the job has finished".to_owned());
        actions
    }

    /// There is no further round, because the nodes left cannot make one.
    fn close(&mut self, reason: String) -> Vec<Action> {
        let told = |&id| {
            let reason = reason.clone();
            Action::Send(id, FromHost::Closed { reason })
        };
        let actions = self.members.keys().map(told).collect();
        self.closed = Some(reason);
        actions
    }

    /// Makes a round of the nodes that are ready, if it is time to.
    pub(super) fn complete_if_ready(&mut self, now: Duration) -> Vec<Action> {
        if self.closed.is_some() {
            return Vec::new();
        }
        if self.members.values().any(Member::is_busy) {
            self.last_call_at = None;
            return Vec::new();
        }
        // Those who had a part come first, so that no newcomer takes their places.
        let mut ready: Vec<(bool, u64, Id)> = Vec::new();
        for (&id, member) in &self.members {
            if let State::Ready(Ready { order, .. }) = member.state {
                ready.push((member.rank.is_none(), order, id));
            }
        }
        ready.sort_unstable();
        let had_part = ready.iter().filter(|(newcomer, ..)| !newcomer).count();
        let (min, max) = (
            usize::try_from(self.rules.min_nodes).unwrap_or(usize::MAX),
            usize::try_from(self.rules.max_nodes).unwrap_or(usize::MAX),
        );
        let finished = |member: &&Member| member.state == State::Finished;
        let finished = self.members.values().find(finished).map(Member::label);
        if ready.len() >= max {
            ready.truncate(max);
        } else if had_part > 0 && (self.rules.fixed.is_some() || ready.len() < min) {
            // With fixed ranks nobody takes the place of one that is gone; one that has finished
            // does not begin again.
            let gone = self.lost.clone().filter(|_| self.rules.fixed.is_some());
            return match (finished, gone) {
                (Some(node), _) => self.close(format!(
                    "{node} has finished already, and the others cannot begin again without it"
                )),
                (None, Some(node)) => self.close(format!(
                    "{node} is gone, and with the static backend no other node can take its place"
                )),
                (None, None) => {
                    self.last_call_at = None;
                    Vec::new()
                }
            };
        } else if self.rules.fixed.is_some() || ready.len() < min {
            self.last_call_at = None;
            return Vec::new();
        } else if !(self.lost.is_none() && finished.is_none() && had_part == ready.len()) {
            // Newcomers have a last call to come in, and so has whoever replaces a node that is
            // gone. The same nodes as before need not wait for anybody.
            let at = now.saturating_add(self.rules.last_call);
            let at = *self.last_call_at.get_or_insert(at);
            if now < at {
                return Vec::new();
            }
        }
        let chosen = ready.into_iter().map(|(_newcomer, _order, id)| id);
        let chosen = chosen.collect();
        self.complete(chosen)
    }

    fn complete(&mut self, mut chosen: Vec<Id>) -> Vec<Action> {
        let place = |id: &Id| {
            let hello = self.members.get(id).map(|member| &member.hello);
            // Given ranks, where there are; else by address and process, as torchrun does.
            hello.map(|hello| (hello.node_rank, hello.address.clone(), hello.pid, *id))
        };
        chosen.sort_by_cached_key(place);
        self.round += 1;
        self.disturbed = false;
        self.lost = None;
        self.last_call_at = None;
        let mut actions = Vec::new();
        for (&id, member) in &mut self.members {
            if member.state == State::Finished {
                actions.push(Action::Send(id, FromHost::Released));
                member.state = State::Known;
            }
            member.rank = None;
        }
        let assignments = self.assign(&chosen);
        if self.round == 1 && self.rules.fixed.is_some() {
            let has_store = assignments.iter().all(|assignment| assignment.has_store);
            actions.push(Action::CloseDoor { has_store });
        }
        for (id, assignment) in chosen.into_iter().zip(assignments) {
            if let Some(member) = self.members.get_mut(&id) {
                member.state = State::Running;
                member.rank = Some(assignment.node_rank);
            }
            let world = FromHost::World(Box::new(assignment));
            actions.push(Action::Send(id, world));
        }
        actions
    }

    fn assign(&self, chosen: &[Id]) -> Vec<Assignment> {
        let mut nodes = Vec::with_capacity(chosen.len());
        for id in chosen {
            if let Some(member) = self.members.get(id) {
                if let State::Ready(ready) = member.state {
                    nodes.push((member, ready));
                }
            }
        }
        let sizes: Vec<_> = nodes
            .iter()
            .map(|(member, _ready)| (member.hello.local_size, member.hello.role.as_str()))
            .collect();
        let restarts = nodes.iter().map(|(_, ready)| ready.restarts).max();
        let has_store = nodes.iter().all(|(_, ready)| ready.has_store);
        let first = nodes.first();
        let first = first.map(|(member, ready)| (member.hello.address.clone(), ready.port));
        let (master_addr, master_port) = self.rules.fixed.clone().or(first).unwrap_or_default();
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let numbered = (0_u32..).zip(ranks(&sizes));
        numbered
            .map(|(node_rank, ranks)| Assignment {
                round: self.round,
                restarts: restarts.unwrap_or_default(),
                node_rank,
                nodes: count,
                first_rank: ranks.first_rank,
                world_size: ranks.world_size,
                first_role_rank: ranks.first_role_rank,
                role_world_size: ranks.role_world_size,
                master_addr: master_addr.clone(),
                master_port,
                has_store,
                peers: match node_rank {
                    0 => peers(&nodes),
                    _ => Vec::new(),
                },
            })
            .collect()
    }
}

fn peers(nodes: &[(&Member, Ready)]) -> Vec<Peer> {
    let numbered = (0_u32..).zip(nodes);
    numbered
        .map(|(node_rank, (member, _ready))| {
            let mut addresses = member.hello.addresses.clone();
            if !addresses.contains(&member.seen) {
                addresses.push(member.seen);
            }
            Peer {
                node_rank,
                name: member.hello.name.clone(),
                local_size: member.hello.local_size,
                addresses,
            }
        })
        .collect()
}
