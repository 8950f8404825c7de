//! Stories of nodes that come, fail and go, and random ones against what must always hold.

use proptest::prelude::*;

use super::*;
use crate::rendezvous::message::Assignment;

const LAST_CALL: Duration = Duration::from_secs(30);

/// A membership and what its nodes have heard.
struct Story {
    membership: Membership,
    now: Duration,
    heard: Vec<(Id, FromHost)>,
    door: Option<bool>,
}

impl Story {
    fn elastic(min_nodes: u32, max_nodes: u32) -> Self {
        Self::new(min_nodes, max_nodes, None)
    }

    fn fixed(nodes: u32) -> Self {
        Self::new(nodes, nodes, Some(("h0".into(), 29_500)))
    }

    fn new(min_nodes: u32, max_nodes: u32, fixed: Option<(String, u16)>) -> Self {
        let rules = Rules {
            min_nodes,
            max_nodes,
            last_call: LAST_CALL,
            fixed,
        };
        Self {
            membership: Membership::new(rules),
            now: Duration::ZERO,
            heard: Vec::new(),
            door: None,
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(id, message) => self.heard.push((id, message)),
                Action::CloseDoor { has_store } => self.door = Some(has_store),
            }
        }
    }

    fn greet(&mut self, id: Id, change: impl FnOnce(&mut Hello)) {
        let rules = &self.membership.rules;
        let mut hello = Hello {
            version: VERSION,
            name: format!("h{id}"),
            pid: 100,
            address: format!("10.0.0.{id}"),
            addresses: vec![format!("10.0.0.{id}").parse().unwrap()],
            local_size: 2,
            role: "default".into(),
            min_nodes: rules.min_nodes,
            max_nodes: rules.max_nodes,
            node_rank: None,
        };
        change(&mut hello);
        let actions = self
            .membership
            .hello(id, hello, "192.168.0.1".parse().unwrap());
        self.act(actions);
    }

    fn say(&mut self, id: Id, message: ToHost) {
        let actions = self.membership.receive(id, message, self.now);
        self.act(actions);
    }

    fn join(&mut self, id: Id, restarts: u32) {
        let message = ToHost::Join {
            round: self.membership.round,
            restarts,
            port: 1000 + u16::try_from(id).unwrap(),
            has_store: true,
            reason: None,
        };
        self.say(id, message);
    }

    fn come(&mut self, id: Id) {
        self.greet(id, |_hello| {});
        self.join(id, 0);
    }

    fn come_as(&mut self, id: Id, node_rank: u32) {
        self.greet(id, |hello| hello.node_rank = Some(node_rank));
        self.join(id, 0);
    }

    fn finish(&mut self, id: Id) {
        let round = self.membership.round;
        self.say(id, ToHost::Finished { round });
    }

    fn go(&mut self, id: Id) {
        let actions = self.membership.gone(id, "its connection broke", self.now);
        self.act(actions);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        let actions = self.membership.tick(self.now);
        self.act(actions);
    }

    /// What was heard since the last call.
    fn news(&mut self) -> Vec<(Id, FromHost)> {
        std::mem::take(&mut self.heard)
    }

    /// The worlds among the news: who, and the rank of its node.
    fn worlds(&mut self) -> Vec<(Id, Assignment)> {
        let news = self.news().into_iter();
        news.filter_map(|(id, message)| match message {
            FromHost::World(assignment) => Some((id, *assignment)),
            _ => None,
        })
        .collect()
    }

    fn ranks(&mut self) -> Vec<(Id, u32)> {
        let worlds = self.worlds().into_iter();
        worlds.map(|(id, world)| (id, world.node_rank)).collect()
    }

    fn disturbances(&mut self) -> Vec<(Id, Disturbance)> {
        let news = self.news().into_iter();
        news.filter_map(|(id, message)| match message {
            FromHost::Disturbed { what, .. } => Some((id, what)),
            _ => None,
        })
        .collect()
    }
}

#[test]
fn row_47_all_nodes_of_the_most_make_a_round_at_once_in_the_order_of_their_addresses() {
    let mut story = Story::elastic(2, 2);
    story.come(2);
    assert_eq!(story.news(), []);
    story.come(1);
    let worlds = story.worlds();
    let rows: Vec<_> = worlds
        .iter()
        .map(|(id, world)| (*id, world.node_rank, world.first_rank, world.world_size))
        .collect();
    assert_eq!(rows, [(1, 0, 0, 4), (2, 1, 2, 4)]);
    for (_, world) in &worlds {
        assert_eq!(
            (world.master_addr.as_str(), world.master_port),
            ("10.0.0.1", 1001)
        );
    }
    let peers = &worlds[0].1.peers;
    let seen: Vec<_> = peers[1].addresses.iter().map(ToString::to_string).collect();
    assert_eq!(seen, ["10.0.0.2", "192.168.0.1"]);
    assert!(worlds[1].1.peers.is_empty());
}

#[test]
fn row_47_given_ranks_are_kept_and_all_nodes_are_needed() {
    let mut story = Story::fixed(2);
    story.come_as(1, 1);
    let waits = story.membership.gathering(1).unwrap();
    assert_eq!(waits.missing, ["node rank 0"]);
    story.pass(LAST_CALL * 10);
    assert_eq!(story.news(), []);
    story.come_as(2, 0);
    assert_eq!(story.door, Some(true));
    let worlds = story.worlds();
    assert_eq!(worlds[0].0, 2);
    assert_eq!((worlds[0].1.node_rank, worlds[1].1.node_rank), (0, 1));
    assert_eq!(worlds[0].1.master_port, 29_500);
}

#[test]
fn a_rank_that_is_taken_is_refused_by_name() {
    let mut story = Story::fixed(3);
    story.come_as(1, 1);
    story.come_as(2, 1);
    let refused = |news: &[(Id, FromHost)]| match news {
        [(2, FromHost::Unfit { reason })] => reason.clone(),
        other => panic!("{other:?}"),
    };
    let reason = refused(&story.news());
    assert!(reason.contains("node rank 1 is taken by h1"), "{reason}");
    story.greet(2, |hello| (hello.node_rank, hello.max_nodes) = (Some(2), 2));
    let reason = refused(&story.news());
    assert!(reason.contains("3:2") && reason.contains("3:3"), "{reason}");
    story.greet(2, |_no_rank| {});
    assert!(refused(&story.news()).contains("--rdzv-backend"));
    story.greet(2, |hello| hello.address = "h2\nEVIL=1".into());
    assert!(refused(&story.news()).contains("out of bounds"));
}

#[test]
fn row_48_enough_nodes_start_after_the_last_call() {
    let mut story = Story::elastic(1, 2);
    story.come(1);
    assert_eq!(story.membership.next_tick(), Some(LAST_CALL));
    story.pass(LAST_CALL / 2);
    assert_eq!(story.news(), []);
    story.pass(LAST_CALL / 2);
    assert_eq!(story.ranks(), [(1, 0)]);
    assert_eq!(story.membership.next_tick(), None);
}

#[test]
fn row_48_a_late_node_makes_all_begin_again_and_takes_part() {
    let mut story = Story::elastic(1, 2);
    story.come(2);
    story.pass(LAST_CALL);
    story.news();
    story.come(1);
    assert_eq!(
        story.disturbances(),
        [(2, Disturbance::NodesWaiting { nodes: 1 })]
    );
    story.pass(LAST_CALL * 2);
    assert_eq!(story.ranks(), [], "its workers still run");
    story.join(2, 0);
    let worlds = story.worlds();
    let rows: Vec<_> = worlds
        .iter()
        .map(|(id, world)| (*id, world.node_rank, world.world_size, world.restarts))
        .collect();
    assert_eq!(rows, [(1, 0, 4, 0), (2, 1, 4, 0)]);
}

#[test]
fn a_node_too_many_stands_by_and_takes_the_place_of_one_that_is_gone() {
    let mut story = Story::elastic(2, 2);
    story.come(1);
    story.come(2);
    story.news();
    story.come(3);
    assert_eq!(story.news(), []);
    assert!(story.membership.gathering(3).unwrap().spare);
    story.go(1);
    let told = story.disturbances();
    assert!(
        matches!(&told[..], [(2, Disturbance::PeerGone { node, .. })] if node.contains("node 0 (h1")),
        "{told:?}"
    );
    story.join(2, 0);
    assert_eq!(story.ranks(), [(2, 0), (3, 1)]);
}

#[test]
fn who_had_a_part_is_not_put_out_by_one_that_stands_by() {
    let mut story = Story::elastic(2, 2);
    story.come(2);
    story.come(3);
    story.come(1);
    story.news();
    story.join(2, 1);
    story.join(3, 1);
    assert_eq!(story.ranks(), [(2, 0), (3, 1)]);
}

#[test]
fn a_restart_reaches_all_and_the_same_nodes_begin_at_once() {
    let mut story = Story::elastic(1, 3);
    story.come(1);
    story.come(2);
    story.pass(LAST_CALL);
    story.news();
    let reason = "rank 3 ended with 7".to_owned();
    let message = ToHost::Restart { round: 1, reason };
    story.say(2, message.clone());
    let told = story.disturbances();
    assert!(
        matches!(&told[..], [(1, Disturbance::PeerRestarts { node, reason })]
            if node.starts_with("node 1 (h2") && reason == "rank 3 ended with 7"),
        "{told:?}"
    );
    story.join(1, 0);
    story.join(2, 1);
    let restarts: Vec<_> = story
        .worlds()
        .iter()
        .map(|(_, world)| world.restarts)
        .collect();
    assert_eq!(
        restarts,
        [1, 1],
        "all count as the highest does, without a last call"
    );
    story.say(2, message);
    assert_eq!(
        story.news(),
        [],
        "what belongs to an earlier round does nothing"
    );
}

#[test]
fn those_left_begin_again_after_a_last_call_if_they_are_enough() {
    let mut story = Story::elastic(1, 2);
    story.come(1);
    story.come(2);
    story.news();
    story.go(2);
    assert!(matches!(
        &story.disturbances()[..],
        [(1, Disturbance::PeerGone { .. })]
    ));
    story.join(1, 0);
    assert_eq!(story.ranks(), []);
    story.pass(LAST_CALL);
    assert_eq!(story.ranks(), [(1, 0)]);
}

#[test]
fn those_left_wait_for_another_node_if_they_are_not_enough() {
    let mut story = Story::elastic(2, 2);
    story.come(1);
    story.come(2);
    story.news();
    story.go(2);
    story.join(1, 0);
    story.pass(LAST_CALL * 2);
    assert_eq!(story.ranks(), []);
    story.come(3);
    assert_eq!(story.ranks(), [(1, 0), (3, 1)]);
}

#[test]
fn nobody_takes_the_place_of_a_node_with_a_given_rank() {
    let mut story = Story::fixed(2);
    story.come_as(1, 0);
    story.come_as(2, 1);
    story.news();
    story.go(2);
    story.news();
    story.join(1, 0);
    let news = story.news();
    assert!(
        matches!(&news[..], [(1, FromHost::Closed { reason })] if reason.contains("node 1 (h2")),
        "{news:?}"
    );
}

#[test]
fn a_failure_ends_the_job_everywhere_and_closes_it() {
    let mut story = Story::elastic(2, 2);
    story.come(1);
    story.come(2);
    story.come(3);
    story.news();
    let reason = "rank 2 ended with 1\u{1b}[31m".to_owned();
    story.say(2, ToHost::Failed { reason });
    let news = story.news();
    assert!(
        matches!(&news[..], [
            (1, FromHost::PeerFailed { node, reason }),
            (2, FromHost::Closed { .. }),
            (3, FromHost::Closed { .. }),
        ] if node.starts_with("node 1") && reason == "rank 2 ended with 1[31m"),
        "{news:?}"
    );
    story.come(4);
    assert!(matches!(&story.news()[..], [(4, FromHost::Closed { .. })]));
}

#[test]
fn nodes_leave_together() {
    let mut story = Story::elastic(2, 2);
    story.come(1);
    story.come(2);
    story.come(3);
    story.news();
    story.finish(1);
    assert_eq!(story.news(), []);
    story.finish(2);
    let news = story.news();
    assert!(
        matches!(
            &news[..],
            [
                (1, FromHost::Released),
                (2, FromHost::Released),
                (3, FromHost::Released),
            ]
        ),
        "{news:?}"
    );
}

#[test]
fn once_a_node_has_finished_a_newcomer_disturbs_nobody_and_no_restart_is_possible_without_it() {
    let mut story = Story::elastic(2, 3);
    story.come(1);
    story.come(2);
    story.pass(LAST_CALL);
    story.news();
    story.finish(1);
    story.come(3);
    assert_eq!(story.news(), []);
    story.go(3);
    story.join(2, 1);
    let news = story.news();
    assert!(
        matches!(&news[..], [
            (1, FromHost::Disturbed { what: Disturbance::PeerRestarts { .. }, .. }),
            (1, FromHost::Closed { .. }),
            (2, FromHost::Closed { reason }),
        ] if reason.contains("node 0 (h1, pid 100) has finished")),
        "{news:?}"
    );
}

#[test]
fn one_that_finishes_is_released_although_its_peer_is_gone() {
    let mut story = Story::elastic(2, 2);
    story.come(1);
    story.come(2);
    story.news();
    story.finish(1);
    story.go(2);
    let news = story.news();
    assert!(
        matches!(
            &news[..],
            [
                (
                    1,
                    FromHost::Disturbed {
                        what: Disturbance::PeerGone { .. },
                        ..
                    }
                ),
                (1, FromHost::Released),
            ]
        ),
        "{news:?}"
    );
}

#[test]
fn a_join_that_crossed_with_the_round_it_asked_for_is_no_restart() {
    let mut story = Story::elastic(2, 2);
    story.come(1);
    story.come(2);
    story.news();
    let again = ToHost::Join {
        round: 0,
        restarts: 0,
        port: 1,
        has_store: true,
        reason: None,
    };
    story.say(1, again);
    assert_eq!(story.news(), []);
}

#[test]
fn one_node_without_the_store_is_enough_for_none() {
    let mut story = Story::elastic(2, 2);
    story.come(1);
    story.greet(2, |_hello| {});
    let message = ToHost::Join {
        round: 0,
        restarts: 0,
        port: 5,
        has_store: false,
        reason: None,
    };
    story.say(2, message);
    assert!(story.worlds().iter().all(|(_, world)| !world.has_store));
}

/// What a random story may do next.
#[derive(Clone, Debug)]
enum Step {
    Come,
    Join,
    Restart,
    Finish,
    Go,
    Pass,
}

fn step() -> impl Strategy<Value = (Step, Id)> {
    let steps = prop_oneof![
        4 => Just(Step::Come),
        6 => Just(Step::Join),
        2 => Just(Step::Restart),
        2 => Just(Step::Finish),
        2 => Just(Step::Go),
        3 => Just(Step::Pass),
    ];
    (steps, 1..7_u64)
}

proptest! {
    #[test]
    fn each_round_is_whole_and_starts_only_when_no_worker_of_the_last_one_runs(
        min in 1..4_u32,
        more in 0..3_u32,
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut story = Story::elastic(min, min + more);
        let mut present = std::collections::BTreeSet::new();
        for (step, id) in steps {
            let busy = story.membership.members.values().any(Member::is_busy);
            let asks = story.membership.members.get(&id).is_some_and(Member::is_busy);
            match step {
                Step::Come if present.insert(id) => story.come(id),
                Step::Come | Step::Join => story.join(id, 0),
                Step::Restart => {
                    let (round, reason) = (story.membership.round, String::new());
                    story.say(id, ToHost::Restart { round, reason });
                }
                Step::Finish => story.finish(id),
                Step::Go => {
                    present.remove(&id);
                    story.go(id);
                }
                Step::Pass => story.pass(LAST_CALL),
            }
            let others = story.membership.round;
            let worlds = story.worlds();
            if let Some((_, first)) = worlds.first() {
                prop_assert!(!busy || asks, "round {} while workers ran", others);
                let nodes = u32::try_from(worlds.len()).unwrap();
                prop_assert!((min..=min + more).contains(&nodes));
                prop_assert_eq!(first.nodes, nodes);
                let expected: Vec<_> = (0..nodes).map(|rank| (rank, 2 * rank, 2 * nodes)).collect();
                let given: Vec<_> = worlds
                    .iter()
                    .map(|(_, world)| (world.node_rank, world.first_rank, world.world_size))
                    .collect();
                prop_assert_eq!(given, expected);
            }
        }
    }

    /// Whatever happened: if all who are there want to go on, they do, or are told why not.
    #[test]
    fn nobody_waits_in_vain_once_all_are_ready_and_enough(
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let mut story = Story::elastic(2, 3);
        for (step, id) in steps {
            match step {
                Step::Come if !story.membership.members.contains_key(&id) => story.come(id),
                Step::Come | Step::Join => story.join(id, 0),
                Step::Restart => {
                    let (round, reason) = (story.membership.round, String::new());
                    story.say(id, ToHost::Restart { round, reason });
                }
                Step::Finish => story.finish(id),
                Step::Go => story.go(id),
                Step::Pass => story.pass(LAST_CALL),
            }
        }
        story.news();
        let before = story.membership.round;
        let ids: Vec<Id> = story.membership.members.keys().copied().collect();
        if story.membership.closed.is_some() || ids.len() < 2 {
            return Ok(());
        }
        for id in ids {
            if !matches!(story.membership.members[&id].state, State::Ready(_)) {
                story.join(id, 0);
            }
        }
        story.pass(LAST_CALL);
        story.pass(LAST_CALL);
        prop_assert!(story.membership.round > before || story.membership.closed.is_some());
    }
}
