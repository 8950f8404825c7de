//! States as users see them, and the end of lost jobs.

use herd_core::event::{Event, EventKind};
use herd_core::exit;
use herd_core::result::AttemptEnd;
use herd_core::state::{AttemptState, JobState};

use super::*;
use crate::attempt::AttemptDir;
use crate::files::Durability;
use crate::home::Home;
use herd_core::JobId;
use herd_core::exit::ProcessEnd;

struct Case {
    _dir: tempfile::TempDir,
    job: JobDir,
}

fn case() -> Case {
    let dir = tempfile::tempdir().unwrap();
    let job = Home::at(dir.path())
        .unwrap()
        .create(JobId::generate())
        .unwrap();
    Case { _dir: dir, job }
}

impl Case {
    /// Begins attempt `number` and writes these events.
    fn begin(&self, number: u32, kinds: Vec<EventKind>) -> AttemptDir {
        let attempt = self.job.attempt(number);
        attempt.create().unwrap();
        let mut writer = attempt.event_writer().unwrap();
        for (at, kind) in kinds.into_iter().enumerate() {
            writer
                .write(&Event {
                    time_ms: 100 + at as u64,
                    kind,
                })
                .unwrap();
        }
        attempt
    }

    fn shown(&self) -> (String, Option<String>) {
        let brief = status(&self.job).unwrap().brief;
        (brief.state, brief.why)
    }
}

fn job_event(state: JobState, why: Option<&str>) -> EventKind {
    EventKind::Job {
        state,
        why: why.map(str::to_owned),
    }
}

fn attempt_event(state: AttemptState) -> EventKind {
    EventKind::Attempt {
        state,
        failure: None,
    }
}

fn here() -> DriverInfo {
    DriverInfo::of_this_process(String::from("127.0.0.1:9"))
}

fn dead() -> DriverInfo {
    DriverInfo {
        start_ticks: 1,
        ..here()
    }
}

fn end(state: AttemptState) -> AttemptEnd {
    AttemptEnd {
        why: None,
        state,
        failure: None,
        exit_code: 1,
        ended_ms: 900,
        ranks: Vec::new(),
    }
}

#[test]
fn states_follow_the_events() {
    let case = case();
    assert_eq!(case.shown().0, "ACCEPTED");
    case.begin(
        1,
        vec![job_event(JobState::Queued, Some("waits for 1 GPU"))],
    );
    assert_eq!(
        case.shown(),
        ("QUEUED".into(), Some("waits for 1 GPU".into()))
    );
    let attempt = case.begin(
        1,
        vec![
            job_event(JobState::Active, None),
            attempt_event(AttemptState::Starting),
            attempt_event(AttemptState::Running),
        ],
    );
    attempt.write_driver(&here()).unwrap();
    assert_eq!(case.shown(), ("RUNNING".into(), None));
    case.begin(
        1,
        vec![EventKind::CancelRequested {
            by: "signal 2".into(),
        }],
    );
    assert_eq!(case.shown().0, "CANCELLING");
}

#[test]
fn nodes_ranks_and_warnings_are_told() {
    let case = case();
    case.begin(
        1,
        vec![
            EventKind::NodeJoined {
                node: 0,
                name: "n0".into(),
                pid: 7,
            },
            EventKind::NodeJoined {
                node: 1,
                name: "n1".into(),
                pid: 8,
            },
            EventKind::RankStarted {
                rank: 1,
                node: 1,
                pid: 9,
            },
            EventKind::RankStarted {
                rank: 0,
                node: 0,
                pid: 10,
            },
            EventKind::RankEnded {
                rank: 1,
                node: 1,
                end: ProcessEnd::Signaled(9),
                stopped: false,
            },
            EventKind::NodeLost {
                name: "n1".into(),
                detail: "silent for 15 s".into(),
            },
            EventKind::Warning {
                text: "slow".into(),
            },
        ],
    );
    let status = status(&case.job).unwrap();
    assert_eq!(status.nodes[1].lost.as_deref(), Some("silent for 15 s"));
    assert_eq!(
        status.ranks.iter().map(|r| r.rank).collect::<Vec<_>>(),
        [0, 1]
    );
    assert_eq!(status.ranks[1].end, Some(ProcessEnd::Signaled(9)));
    assert_eq!(status.warnings, ["slow"]);
}

#[test]
fn between_attempts_it_is_preempted_or_queued() {
    let case = case();
    let attempt = case.begin(1, vec![attempt_event(AttemptState::Running)]);
    attempt
        .write_end(&end(AttemptState::Preempted), Durability::Process)
        .unwrap();
    assert_eq!(case.shown().0, "PREEMPTED");
    case.begin(
        1,
        vec![job_event(JobState::Queued, Some("tries again in 30 s"))],
    );
    assert_eq!(
        case.shown(),
        ("QUEUED".into(), Some("tries again in 30 s".into()))
    );
    case.begin(2, vec![attempt_event(AttemptState::SettingUp)]);
    assert_eq!(case.shown().0, "SETTING_UP");
}

#[test]
fn i1_a_lost_driver_is_reported_and_ended_once() {
    let case = case();
    let attempt = case.begin(
        1,
        vec![
            attempt_event(AttemptState::Running),
            EventKind::RankEnded {
                rank: 0,
                node: 0,
                end: ProcessEnd::Exited(0),
                stopped: false,
            },
        ],
    );
    attempt.write_driver(&dead()).unwrap();
    case.job
        .write_secrets(&[("A".to_owned(), "b".to_owned())].into())
        .unwrap();
    assert_eq!(case.shown().0, DRIVER_LOST);
    let first = finish_lost(&case.job, 1000).unwrap().unwrap();
    assert_eq!(
        (first.state, first.exit_code),
        (JobState::Failed, exit::HERD_FAILED)
    );
    assert_eq!(attempt.read_end().unwrap().unwrap().ranks.len(), 1);
    assert_eq!(finish_lost(&case.job, 2000).unwrap(), Some(first));
    assert!(case.job.read_secrets().unwrap().is_empty());
    let (state, why) = case.shown();
    assert_eq!(state, "FAILED");
    assert!(why.unwrap().starts_with("the driver was lost: process"));
}

#[test]
fn a_driver_that_died_before_it_listened_is_found_by_its_claim() {
    let case = case();
    let attempt = case.begin(1, Vec::new());
    attempt.claim_owner("local 1").unwrap();
    assert_eq!(case.shown().0, "ACCEPTED");
    let owner = attempt.path().join("owner");
    let text = std::fs::read_to_string(&owner).unwrap();
    let ticks = format!("\"start_ticks\":{}", here().start_ticks);
    std::fs::write(&owner, text.replace(&ticks, "\"start_ticks\":1")).unwrap();
    assert_eq!(case.shown().0, DRIVER_LOST);
    assert!(status(&case.job).unwrap().driver.is_none());
}

#[test]
fn i3_nothing_is_ended_that_lives_or_cannot_be_seen_or_was_preempted() {
    let case = case();
    assert_eq!(finish_lost(&case.job, 1).unwrap(), None);
    let attempt = case.begin(1, vec![attempt_event(AttemptState::Running)]);
    assert_eq!(finish_lost(&case.job, 1).unwrap(), None);
    attempt.write_driver(&here()).unwrap();
    assert_eq!(finish_lost(&case.job, 1).unwrap(), None);
    attempt
        .write_driver(&DriverInfo {
            host: "far".into(),
            ..dead()
        })
        .unwrap();
    assert_eq!(finish_lost(&case.job, 1).unwrap(), None);
    assert_eq!(case.shown().0, "RUNNING");
    attempt
        .write_end(&end(AttemptState::Preempted), Durability::Process)
        .unwrap();
    attempt.write_driver(&dead()).unwrap();
    assert_eq!(finish_lost(&case.job, 1).unwrap(), None);
    assert_eq!(case.shown().0, "PREEMPTED");
}

#[test]
fn an_end_without_a_result_becomes_the_result_when_the_driver_is_gone() {
    let case = case();
    let attempt = case.begin(1, vec![attempt_event(AttemptState::Running)]);
    attempt.write_driver(&dead()).unwrap();
    attempt
        .write_end(&end(AttemptState::Cancelled), Durability::Process)
        .unwrap();
    let result = finish_lost(&case.job, 5000).unwrap().unwrap();
    assert_eq!((result.state, result.ended_ms), (JobState::Cancelled, 900));
    assert!(status(&case.job).unwrap().brief.settled);
}
