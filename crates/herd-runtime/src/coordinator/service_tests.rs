//! Daemons that serve the ranks: their order, and what becomes of the job when one fails.

use herd_link::message::ServiceFailure;

use super::*;

/// Messages of one kind, with the nodes they go to.
fn sent(actions: &[Action], wanted: &FromCoordinator) -> Vec<usize> {
    let to = |action: &Action| match action {
        Action::Send { node, message } if message == wanted => Some(*node),
        _ => None,
    };
    actions.iter().filter_map(to).collect()
}

fn ray_head() -> FromCoordinator {
    FromCoordinator::ServiceReady {
        address: "127.0.0.2".to_owned(),
        port: 20_001,
    }
}

fn ray_started() -> Coordinator {
    let mut coordinator = started(Plan {
        job_type: JobType::Ray,
        ..plan()
    });
    coordinator.take_actions();
    coordinator
}

#[test]
fn the_head_comes_first_then_the_workers_then_the_ranks() {
    let mut coordinator = ray_started();
    coordinator.service_ready(0, "127.0.0.2", 20_001);
    assert_eq!(sent(&coordinator.take_actions(), &ray_head()), [1]);
    coordinator.service_ready(1, "127.0.0.3", 20_018);
    assert_eq!(sent(&coordinator.take_actions(), &ray_head()), [0]);
    // Told twice, it changes nothing.
    coordinator.service_ready(1, "127.0.0.3", 20_018);
    assert!(coordinator.take_actions().is_empty());
    // The workers are told to end as soon as the entry point has.
    coordinator.rank_ended(ended(0, 0, false), 5);
    let actions = coordinator.take_actions();
    assert_eq!(sent(&actions, &FromCoordinator::Finish), [1]);
    coordinator.phase_done(0, Phase::Run, None, 6);
    coordinator.phase_done(1, Phase::Run, None, 7);
    let actions = coordinator.take_actions();
    assert_eq!(ends(&actions)[0].state, AttemptState::Succeeded);
}

#[test]
fn a_daemon_that_ends_under_the_ranks_is_the_loss_of_its_node() {
    let mut coordinator = ray_started();
    coordinator.service_ready(0, "127.0.0.2", 20_001);
    coordinator.service_ready(1, "127.0.0.3", 20_018);
    coordinator.take_actions();
    let failure = ServiceFailure {
        start_code: None,
        detail: "its Ray worker was ended by signal 9".to_owned(),
        last_lines: vec!["last words".to_owned()],
    };
    coordinator.service_failed(1, failure, 5);
    assert_eq!(cancels(&coordinator.take_actions()), 2);
    coordinator.rank_ended(ended(0, 1, true), 6);
    coordinator.phase_done(0, Phase::Run, None, 7);
    coordinator.phase_done(1, Phase::Run, None, 8);
    let actions = coordinator.take_actions();
    let end = ends(&actions)[0];
    assert_eq!(end.exit_code, 125);
    assert!(
        matches!(&end.failure, Some(Failure::NodeLost { node, last_lines, .. })
            if node == "b" && last_lines == &["last words"]),
        "{end:?}"
    );
}

#[test]
fn a_daemon_that_cannot_start_gives_its_programs_code() {
    let mut coordinator = ray_started();
    let failure = ServiceFailure {
        start_code: Some(127),
        detail: "program \"ray\" not found".to_owned(),
        last_lines: Vec::new(),
    };
    coordinator.service_failed(0, failure, 5);
    coordinator.phase_done(0, Phase::Run, None, 6);
    let actions = coordinator.take_actions();
    assert_eq!(sent(&actions, &FromCoordinator::Finish), [1]);
    coordinator.phase_done(1, Phase::Run, None, 7);
    let actions = coordinator.take_actions();
    assert_eq!(ends(&actions)[0].exit_code, 127);
}
