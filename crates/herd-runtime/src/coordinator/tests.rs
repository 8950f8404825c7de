//! The coordinator's decisions, told as stories of messages, losses and time.

use herd_core::JobId;
use herd_core::exit::ProcessEnd;
use herd_core::plan::{self, BackendFacts, Submission};
use herd_core::spec::{Command, JobSpec, JobType, SetupOn};
use herd_core::units::Span;

use super::*;

#[path = "service_tests.rs"]
mod services;

const GANG_MS: u64 = 10_000;

fn plan() -> Plan {
    let spec = JobSpec {
        nodes: 2,
        run: Some(Command::Argv(vec!["true".to_owned()])),
        ..JobSpec::default()
    };
    let submission = Submission::first(JobId::generate(), "/");
    plan::plan(&spec, &BackendFacts::local(8, 0), submission).unwrap()
}

fn hello(node: &str) -> Hello {
    Hello {
        version: 1,
        node: node.to_owned(),
        pid: 1,
        address: "127.0.0.1".to_owned(),
        free_port: 9,
    }
}

fn started(plan: Plan) -> Coordinator {
    let names = vec!["a".to_owned(), "b".to_owned()];
    let mut coordinator = Coordinator::new(plan, names, GANG_MS, 2, 0);
    assert_eq!(coordinator.hello(hello("b"), 1), Ok(1));
    assert_eq!(coordinator.hello(hello("a"), 2), Ok(0));
    coordinator
}

fn ended(rank: u32, code: u8, stopped: bool) -> RankResult {
    RankResult {
        stopped,
        ..RankResult::ended(rank, rank, ProcessEnd::Exited(code), 100 + u64::from(rank))
    }
}

fn ends(actions: &[Action]) -> Vec<&AttemptEnd> {
    let ends = actions.iter().filter_map(|action| match action {
        Action::Finish(end) => Some(&**end),
        Action::Assign { .. }
        | Action::Send { .. }
        | Action::Task(_)
        | Action::Event(_)
        | Action::GiveUp { .. } => None,
    });
    ends.collect()
}

fn cancels(actions: &[Action]) -> usize {
    let cancel = |action: &&Action| {
        matches!(
            action,
            Action::Send {
                message: FromCoordinator::Cancel { .. },
                ..
            }
        )
    };
    actions.iter().filter(cancel).count()
}

#[test]
fn ranks_start_when_every_node_is_there_and_all_done_is_success() {
    let mut coordinator = started(plan());
    let actions = coordinator.take_actions();
    let starts = |action: &&Action| {
        matches!(
            action,
            Action::Send {
                message: FromCoordinator::Start { .. },
                ..
            }
        )
    };
    assert_eq!(actions.iter().filter(starts).count(), 2);
    coordinator.phase_done(0, Phase::Run, None, 10);
    assert!(ends(&coordinator.take_actions()).is_empty());
    coordinator.phase_done(1, Phase::Run, None, 11);
    let actions = coordinator.take_actions();
    assert_eq!(ends(&actions)[0].state, AttemptState::Succeeded);
}

#[test]
fn a_name_belongs_to_its_first_connection_and_strangers_are_refused() {
    let mut coordinator = started(plan());
    assert!(coordinator.hello(hello("a"), 3).is_err());
    assert!(coordinator.hello(hello("c"), 3).is_err());
}

#[test]
fn i6_the_gang_timeout_names_who_is_missing() {
    let names = vec!["a".to_owned(), "b".to_owned()];
    let mut coordinator = Coordinator::new(plan(), names, GANG_MS, 2, 0);
    coordinator.hello(hello("a"), 1).unwrap();
    coordinator.tick(GANG_MS);
    let actions = coordinator.take_actions();
    let end = ends(&actions)[0];
    assert_eq!(end.exit_code, 125);
    let lost = |failure: &Failure| matches!(failure, Failure::NodeLost { node, .. } if node == "b");
    assert!(end.failure.as_ref().is_some_and(lost), "{end:?}");
}

#[test]
fn i1_the_first_failing_rank_stops_all_and_there_is_one_end() {
    let mut coordinator = started(plan());
    coordinator.take_actions();
    coordinator.rank_ended(ended(1, 7, false), 20);
    assert_eq!(cancels(&coordinator.take_actions()), 2);
    coordinator.rank_ended(ended(0, 143, true), 21);
    coordinator.phase_done(0, Phase::Run, None, 22);
    coordinator.phase_done(1, Phase::Run, None, 23);
    coordinator.lost(0, "its connection was closed", 24);
    coordinator.tick(1_000_000);
    let actions = coordinator.take_actions();
    assert_eq!(ends(&actions).len(), 1);
    assert_eq!(ends(&actions)[0].exit_code, 7);
}

#[test]
fn a_silent_node_is_lost_and_the_others_are_stopped() {
    let mut coordinator = started(plan());
    coordinator.take_actions();
    coordinator.heard(0, SILENCE_MS);
    coordinator.tick(SILENCE_MS + 2);
    let actions = coordinator.take_actions();
    assert_eq!(cancels(&actions), 1);
    coordinator.phase_done(0, Phase::Run, None, SILENCE_MS + 3);
    let actions = coordinator.take_actions();
    assert_eq!(ends(&actions)[0].exit_code, 125);
}

#[test]
fn cancelled_twice_is_at_once_and_nodes_that_do_not_end_are_given_up() {
    let mut coordinator = started(plan());
    coordinator.take_actions();
    coordinator.cancel(2, None, 130, "signal 2", 30);
    coordinator.cancel(2, None, 130, "signal 2", 31);
    let actions = coordinator.take_actions();
    assert_eq!(cancels(&actions), 4);
    let now = |message: &Action| {
        matches!(
            message,
            Action::Send {
                message: FromCoordinator::Cancel { grace_ms: 0, .. },
                ..
            }
        )
    };
    assert!(actions.iter().any(now));
    coordinator.tick(31 + ENDING_MARGIN_MS);
    let actions = coordinator.take_actions();
    assert_eq!(ends(&actions)[0].exit_code, 130);
    assert_eq!(ends(&actions)[0].state, AttemptState::Cancelled);
}

#[test]
fn the_walltime_includes_a_grace_that_takes_little_of_it() {
    let limited = Plan {
        walltime: Some(Span::from_secs(60)),
        ..plan()
    };
    let mut coordinator = started(limited);
    coordinator.heard(0, 53_000);
    coordinator.heard(1, 53_000);
    coordinator.take_actions();
    assert_eq!(coordinator.next_due_ms(), Some(54_000));
    coordinator.tick(53_999);
    assert_eq!(cancels(&coordinator.take_actions()), 0);
    coordinator.tick(54_000);
    let actions = coordinator.take_actions();
    let asked = FromCoordinator::Cancel {
        signal: SIGTERM,
        grace_ms: 6000,
        told: false,
    };
    assert_eq!(sent(&actions, &asked), 2);
    assert_eq!(coordinator.next_due_ms(), None);
    coordinator.phase_done(0, Phase::Run, None, 54_100);
    coordinator.phase_done(1, Phase::Run, None, 54_100);
    let end = ends(&coordinator.take_actions())[0].clone();
    let reached = Failure::TimeLimit {
        seconds: 60,
        early_ms: 6000,
    };
    assert_eq!((end.exit_code, end.failure), (124, Some(reached)));
}

#[test]
fn nodes_that_serve_are_told_when_node_0_is_done_and_waited_for() {
    let mut coordinator = started(Plan {
        job_type: JobType::Mpi,
        ..plan()
    });
    coordinator.take_actions();
    coordinator.phase_done(0, Phase::Run, None, 10);
    let actions = coordinator.take_actions();
    assert_eq!(
        actions,
        [Action::Send {
            node: 1,
            message: FromCoordinator::Finish
        }]
    );
    coordinator.phase_done(1, Phase::Run, None, 11);
    let actions = coordinator.take_actions();
    assert_eq!(ends(&actions)[0].state, AttemptState::Succeeded);
}

#[test]
fn a_node_that_serves_and_does_not_end_is_lost() {
    let mut coordinator = started(Plan {
        job_type: JobType::Ray,
        ..plan()
    });
    coordinator.phase_done(0, Phase::Run, None, 10);
    coordinator.heard(1, 20_000);
    coordinator.tick(20_010);
    let actions = coordinator.take_actions();
    assert_eq!(ends(&actions)[0].state, AttemptState::Failed);
}

fn sent(actions: &[Action], wanted: &FromCoordinator) -> usize {
    let sent =
        |action: &&Action| matches!(action, Action::Send { message, .. } if message == wanted);
    actions.iter().filter(sent).count()
}

#[test]
fn a_paused_job_is_neither_lost_nor_late_and_goes_on() {
    let mut coordinator = started(Plan {
        walltime: Some(Span::from_secs(60)),
        ..plan()
    });
    coordinator.take_actions();
    coordinator.pause(10_000);
    coordinator.pause(10_001);
    assert_eq!(
        sent(&coordinator.take_actions(), &FromCoordinator::Pause),
        2
    );
    for second in 10..3600 {
        coordinator.heard(0, second * 1000);
        coordinator.heard(1, second * 1000);
        coordinator.tick(second * 1000);
    }
    assert!(coordinator.take_actions().is_empty());
    coordinator.resume(3_600_000);
    coordinator.tick(3_600_001);
    let actions = coordinator.take_actions();
    assert_eq!(sent(&actions, &FromCoordinator::Resume), 2);
    assert_eq!(cancels(&actions), 0);
    coordinator.phase_done(0, Phase::Run, None, 3_600_002);
    coordinator.phase_done(1, Phase::Run, None, 3_600_002);
    assert_eq!(ends(&coordinator.take_actions())[0].exit_code, 0);
}

#[test]
fn a_paused_job_can_be_cancelled_and_its_nodes_lost() {
    let mut coordinator = started(plan());
    coordinator.pause(10);
    coordinator.take_actions();
    coordinator.cancel(15, None, 143, "signal 15", 20);
    assert_eq!(cancels(&coordinator.take_actions()), 2);
    coordinator.resume(21);
    coordinator.pause(22);
    assert!(coordinator.take_actions().is_empty());

    let mut coordinator = started(plan());
    coordinator.pause(10);
    coordinator.heard(0, SILENCE_MS + 10);
    coordinator.tick(SILENCE_MS + 10);
    assert_eq!(cancels(&coordinator.take_actions()), 1);
}

#[test]
fn a_node_that_comes_during_a_pause_is_paused() {
    let names = vec!["a".to_owned(), "b".to_owned()];
    let mut coordinator = Coordinator::new(plan(), names, GANG_MS, 2, 0);
    coordinator.hello(hello("a"), 1).unwrap();
    coordinator.pause(2);
    coordinator.take_actions();
    coordinator.hello(hello("b"), 3).unwrap();
    let actions = coordinator.take_actions();
    let last = actions.last().unwrap();
    assert!(
        matches!(last, Action::Send { node: 1, message } if *message == FromCoordinator::Pause),
        "it is paused after it was told to start: {actions:?}"
    );
}

#[test]
fn a_node_whose_connection_broke_may_come_back_in_time() {
    let mut coordinator = started(plan());
    coordinator.take_actions();
    coordinator.broken(0, "its connection broke: cut");
    coordinator.heard(1, SILENCE_MS);
    coordinator.tick(SILENCE_MS);
    assert!(coordinator.take_actions().is_empty());
    coordinator.heard(0, SILENCE_MS + 1);
    coordinator.tick(SILENCE_MS + 2);
    assert!(coordinator.take_actions().is_empty());
}

#[test]
fn a_node_whose_connection_broke_and_that_does_not_come_back_is_lost() {
    let mut coordinator = started(plan());
    coordinator.take_actions();
    coordinator.broken(0, "its connection broke: cut");
    coordinator.heard(1, SILENCE_MS);
    coordinator.tick(SILENCE_MS + 3);
    let actions = coordinator.take_actions();
    assert!(actions.contains(&Action::GiveUp { node: 0 }));
    coordinator.phase_done(1, Phase::Run, None, SILENCE_MS + 4);
    let actions = coordinator.take_actions();
    let end = ends(&actions)[0];
    let Some(Failure::NodeLost { node, detail, .. }) = &end.failure else {
        panic!("{end:?}");
    };
    assert_eq!(node, "a");
    assert_eq!(
        detail,
        "its connection broke: cut, and it did not come back within 15 s"
    );
}

#[test]
fn releases_next_to_this_one_are_understood_and_others_refused_with_a_sentence() {
    for (version, understood) in [
        (VERSION - 1, true),
        (VERSION, true),
        (VERSION + 1, true),
        (VERSION + 2, false),
    ] {
        let names = vec!["a".to_owned()];
        let mut coordinator = Coordinator::new(plan(), names, GANG_MS, 2, 0);
        let other = Hello {
            version,
            ..hello("a")
        };
        let answer = coordinator.hello(other, 1);
        assert_eq!(answer.is_ok(), understood, "version {version}");
        if let Err(reason) = answer {
            assert!(reason.contains("install herd"), "{reason}");
            // The job ends with that reason rather than with a time-out.
            let actions = coordinator.take_actions();
            assert_eq!(ends(&actions)[0].exit_code, 125);
        }
    }
}

/// An array of two tasks, whose task 0 failed and waits for a second try, and task 1 is done.
fn array_in_a_pause() -> Coordinator {
    let mut plan = plan();
    plan.array = Some("0-1".parse().unwrap());
    plan.retry = Some(herd_core::spec::Retry {
        max: 1,
        on: vec![herd_core::spec::RetryOn::Exit(75)],
        backoff: Some(Span::from_secs(60)),
    });
    let mut coordinator = started(plan);
    let task = |index, code| TaskResult {
        index,
        attempt: 1,
        node: index,
        end: ProcessEnd::Exited(code),
        started_ms: 3,
        ended_ms: 4,
        start_error: None,
        log_offset: 0,
        log_bytes: None,
        stopped: false,
        again: false,
        out_of_memory: false,
        failure: None,
    };
    coordinator.tasks_ended(0, vec![task(0, 75)], 1000);
    coordinator.tasks_ended(1, vec![task(1, 0)], 1000);
    assert!(ends(&coordinator.take_actions()).is_empty());
    assert_eq!(coordinator.next_due_ms(), Some(61_000));
    coordinator
}

#[test]
fn a_task_runs_again_when_its_pause_is_over() {
    let mut coordinator = array_in_a_pause();
    for node in 0..2 {
        coordinator.heard(node, 60_000);
    }
    coordinator.tick(60_999);
    assert!(coordinator.take_actions().is_empty());
    coordinator.tick(61_000);
    let again = |action: &Action| {
        matches!(action, Action::Send { message: FromCoordinator::RunTasks { tasks, .. }, .. }
            if tasks.iter().any(|task| (task.index, task.attempt) == (0, 2)))
    };
    assert!(coordinator.take_actions().iter().any(again));
}

#[test]
fn a_cancel_ends_an_array_that_only_waits_for_pauses() {
    let mut coordinator = array_in_a_pause();
    coordinator.cancel(SIGTERM, None, 130, "a test", 2000);
    let actions = coordinator.take_actions();
    assert_eq!(ends(&actions)[0].state, AttemptState::Cancelled);
}

/// The graces that nodes were given with requests for their end.
fn graces(actions: &[Action]) -> Vec<u64> {
    let graces = actions.iter().filter_map(|action| match action {
        Action::Send {
            message: FromCoordinator::Cancel { grace_ms, .. },
            ..
        } => Some(*grace_ms),
        _ => None,
    });
    graces.collect()
}

#[test]
fn a_preemption_that_is_announced_leaves_the_ranks_its_grace_and_then_their_own() {
    let own = plan().grace.ms;
    let mut coordinator = started(plan());
    coordinator.take_actions();
    coordinator.preempt(Some(60_000), "preempted", 1000);
    assert_eq!(graces(&coordinator.take_actions()), [60_000 + own; 2]);
    // Heard twice, it is the same.
    coordinator.preempt(Some(60_000), "preempted", 2000);
    assert!(coordinator.take_actions().is_empty());
    coordinator.withdraw(SIGTERM, None, 143, "signal 15", 61_000);
    let cause = Cause {
        by: "Slurm".to_owned(),
        why: "preempted in Slurm".to_owned(),
    };
    coordinator.decide(Withdrawal::Requeued(cause), 61_500);
    assert!(graces(&coordinator.take_actions()).is_empty());
    for now in [62_000, 61_000 + own] {
        coordinator.heard(0, now);
        coordinator.heard(1, now);
        coordinator.tick(now);
        let ended = now == 61_000 + own;
        assert_eq!(
            graces(&coordinator.take_actions()),
            vec![0; if ended { 2 } else { 0 }]
        );
    }
}

#[test]
fn who_cancels_a_job_that_is_being_preempted_ends_it_for_good() {
    let mut coordinator = started(plan());
    coordinator.preempt(None, "preempted", 1000);
    coordinator.take_actions();
    coordinator.cancel(SIGTERM, None, 130, "herd cancel", 2000);
    assert_eq!(graces(&coordinator.take_actions()), [0, 0]);
    for node in 0..2 {
        coordinator.lost(node, "gone", 3000);
    }
    let actions = coordinator.take_actions();
    let ends = ends(&actions);
    assert_eq!(ends[0].state, AttemptState::Cancelled, "{actions:?}");
}

/// How an attempt ends whose setup was ended by SIGTERM, where this is behind it.
fn end_of_setup(why: Withdrawal) -> AttemptState {
    let mut plan = plan();
    plan.setup = Some(plan::PlannedSetup {
        run: Command::Argv(vec!["true".to_owned()]),
        on: SetupOn::Each,
    });
    let mut coordinator = started(plan);
    coordinator.leave_undecided();
    let setup = SetupResult {
        end: ProcessEnd::Signaled(15),
        last_lines: Vec::new(),
        start_error: None,
    };
    coordinator.phase_done(1, Phase::Setup, Some(setup), 10);
    coordinator.phase_done(0, Phase::Setup, None, 20);
    assert!(ends(&coordinator.take_actions()).is_empty());
    coordinator.decide(why, 30);
    for node in 0..2 {
        coordinator.lost(node, "gone", 40);
    }
    let actions = coordinator.take_actions();
    ends(&actions)[0].state
}

#[test]
fn a_setup_that_the_backend_has_ended_is_no_failure() {
    let cause = || Cause {
        by: "Slurm".to_owned(),
        why: "requeued".to_owned(),
    };
    let requeued = end_of_setup(Withdrawal::Requeued(cause()));
    assert_eq!(requeued, AttemptState::Preempted);
    let cancelled = end_of_setup(Withdrawal::Asked(cause()));
    assert_eq!(cancelled, AttemptState::Cancelled);
    assert_eq!(end_of_setup(Withdrawal::Nobody), AttemptState::Failed);
}
