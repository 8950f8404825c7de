//! What users see of a job: result, end, events and the driver's liveness taken together.
//!
//! Reads only. [`finish_lost`] alone writes, for callers whose duty it is to end a job whose
//! driver died.

use std::collections::BTreeMap;

use herd_core::JobId;
use herd_core::event::{Event, EventKind};
use herd_core::exit::{self, ProcessEnd};
use herd_core::result::{AttemptEnd, Failure, JobResult, RankResult, TaskCounts, TaskResult};
use herd_core::state::{AttemptState, JobState};
use serde::{Deserialize, Serialize};

use crate::attempt::AttemptDir;
use crate::driver::{DriverInfo, Liveness};
use crate::error::JobDirError;
use crate::files::Durability;
use crate::job::JobDir;

/// The state shown for an attempt whose driver died without a word.
pub const DRIVER_LOST: &str = "DRIVER LOST";

/// Where a job stands, on one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brief {
    /// `RUNNING`, `PREEMPTED`, `DRIVER LOST`, …: the state of the job or of its attempt, whichever
    /// says more.
    pub state: String,
    /// What it waits for, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Latest attempt; 0 before the first.
    pub attempt: u32,
    /// Milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// Milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// The code herd ends with, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// Whether the job has its result and will never change.
    pub settled: bool,
}

/// Where a job stands, with its nodes and ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobStatus {
    /// The job.
    pub id: JobId,
    /// On one line.
    #[serde(flatten)]
    pub brief: Brief,
    /// Particulars of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Nodes of the latest attempt.
    pub nodes: Vec<NodeStatus>,
    /// Ranks of the latest attempt.
    pub ranks: Vec<RankStatus>,
    /// Tasks of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskCounts>,
    /// Warnings of the latest attempt, oldest first.
    pub warnings: Vec<String>,
    /// The latest attempt's driver, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverInfo>,
}

/// One node of the latest attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Node index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Process id of its executor.
    pub pid: u32,
    /// What was observed when it was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// One rank of the latest attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankStatus {
    /// Global rank.
    pub rank: u32,
    /// Node index.
    pub node: u32,
    /// Its process on that node.
    pub pid: u32,
    /// How it ended, once it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<ProcessEnd>,
    /// Whether herd had asked for its end.
    pub stopped: bool,
}

/// What the events of an attempt add up to.
#[derive(Default)]
struct Seen {
    job: Option<(JobState, Option<String>)>,
    attempt: Option<AttemptState>,
    cancelled_by: Option<String>,
    started_ms: Option<u64>,
    nodes: BTreeMap<u32, NodeStatus>,
    ranks: BTreeMap<u32, RankStatus>,
    ends: BTreeMap<u32, RankResult>,
    warnings: Vec<String>,
}

/// Where a job stands now.
pub fn status(job: &JobDir) -> Result<JobStatus, JobDirError> {
    // The result first: whatever is read after it is at least as new.
    let result = job.read_result()?;
    let latest = job.latest_attempt()?;
    let mut facts = Facts {
        result,
        ..Facts::default()
    };
    if let Some(attempt) = &latest {
        facts.attempt = attempt.number();
        facts.process = attempt.process()?;
        // Liveness before `end`: a driver that ends between the two has written it by then.
        facts.liveness = facts.process.as_ref().map(DriverInfo::liveness);
        facts.end = attempt.read_end()?;
        facts.seen = read_seen(attempt)?;
    }
    if facts.result.is_none() && facts.liveness == Some(Liveness::Dead) {
        // It may have written the result between the first look and its death.
        facts.result = job.read_result()?;
    }
    let tasks = match facts.result.as_ref().and_then(|result| result.tasks) {
        Some(counts) => Some(counts),
        None => count_tasks(&job.read_tasks()?),
    };
    let brief = facts.brief();
    let failure = facts
        .result
        .as_ref()
        .and_then(|result| result.failure.clone())
        .or_else(|| facts.end.as_ref().and_then(|end| end.failure.clone()));
    Ok(JobStatus {
        id: job.id(),
        brief,
        failure,
        nodes: facts.seen.nodes.into_values().collect(),
        ranks: facts.seen.ranks.into_values().collect(),
        tasks,
        warnings: facts.seen.warnings,
        driver: facts.process.filter(|driver| !driver.address.is_empty()),
    })
}

/// Ends a job whose driver died: `end` as `driver-lost` where it is missing, then the result.
///
/// Nothing is written where the driver lives, cannot be observed from here, or was preempted (the
/// backend makes the next attempt). Safe to call twice and from two processes: each file is
/// written once, and the first writer's content stands.
pub fn finish_lost(job: &JobDir, now_ms: u64) -> Result<Option<JobResult>, JobDirError> {
    if let Some(result) = job.read_result()? {
        return Ok(Some(result));
    }
    let Some(attempt) = job.latest_attempt()? else {
        return Ok(None);
    };
    let Some(process) = attempt.process()? else {
        return Ok(None);
    };
    if process.liveness() != Liveness::Dead {
        return Ok(None);
    }
    if let Some(result) = job.read_result()? {
        return Ok(Some(result));
    }
    if attempt.read_end()?.is_none() {
        let lost = lost_end(&attempt, &process, now_ms)?;
        once(attempt.write_end(&lost, Durability::Machine))?;
    }
    let Some(end) = attempt.read_end()? else {
        return Ok(None);
    };
    let state = match end.state {
        AttemptState::Succeeded => JobState::Succeeded,
        AttemptState::Cancelled => JobState::Cancelled,
        AttemptState::Preempted => return Ok(None),
        AttemptState::Failed
        | AttemptState::Starting
        | AttemptState::SettingUp
        | AttemptState::Running
        | AttemptState::Checkpointing => JobState::Failed,
    };
    let result = JobResult {
        state,
        rejection: None,
        failure: end.failure,
        exit_code: end.exit_code,
        attempts: attempt.number(),
        ended_ms: end.ended_ms,
        tasks: count_tasks(&job.read_tasks()?),
    };
    once(job.write_result(&result, Durability::Machine))?;
    job.delete_secrets()?;
    job.read_result()
}

/// One sentence about a failure.
pub fn describe(failure: &Failure) -> String {
    match failure {
        Failure::SetupFailed {
            node,
            end,
            start_error,
            ..
        } => match start_error {
            Some(error) => format!("setup could not start on node {node}: {error}"),
            None => format!("setup failed on node {node}: {}", describe_end(*end)),
        },
        Failure::RankFailed(rank) => match (&rank.start_error, &rank.error) {
            (Some(error), _) => format!("rank {} could not start: {error}", rank.rank),
            (None, Some(error)) => {
                format!(
                    "rank {}: {}: {}",
                    rank.rank,
                    describe_end(rank.end),
                    error.message
                )
            }
            (None, None) => format!("rank {}: {}", rank.rank, describe_end(rank.end)),
        },
        Failure::NodeLost { node, detail, .. } => format!("node {node} was lost: {detail}"),
        Failure::DriverLost { detail } => format!("the driver was lost: {detail}"),
        Failure::OutOfMemory(rank) => format!("rank {} ran out of memory", rank.rank),
        Failure::TimeLimit { seconds } => format!("the time limit of {seconds} s passed"),
    }
}

/// `exit code 3` or `signal 9`.
pub fn describe_end(end: ProcessEnd) -> String {
    match end {
        ProcessEnd::Exited(code) => format!("exit code {code}"),
        ProcessEnd::Signaled(signal) => format!("signal {signal}"),
    }
}

#[derive(Default)]
struct Facts {
    result: Option<JobResult>,
    attempt: u32,
    process: Option<DriverInfo>,
    liveness: Option<Liveness>,
    end: Option<AttemptEnd>,
    seen: Seen,
}

impl Facts {
    fn brief(&self) -> Brief {
        let started_ms = self.seen.started_ms;
        if let Some(result) = &self.result {
            return Brief {
                state: result.state.to_string(),
                why: result
                    .rejection
                    .as_ref()
                    .map(|rejection| rejection.detail.clone())
                    .or_else(|| result.failure.as_ref().map(describe)),
                attempt: self.attempt.max(result.attempts),
                started_ms,
                ended_ms: Some(result.ended_ms),
                exit_code: Some(result.exit_code),
                settled: true,
            };
        }
        let (state, why) = self.unsettled();
        Brief {
            state,
            why,
            attempt: self.attempt,
            started_ms,
            ended_ms: self.end.as_ref().map(|end| end.ended_ms),
            exit_code: None,
            settled: false,
        }
    }

    fn unsettled(&self) -> (String, Option<String>) {
        let dead = self.liveness == Some(Liveness::Dead);
        if let Some(end) = &self.end {
            // Between attempts: what the job waits for says more than how the last one ended.
            if let (Some((JobState::Queued, why)), false) = (&self.seen.job, dead) {
                return (JobState::Queued.to_string(), why.clone());
            }
            return (end.state.to_string(), end.failure.as_ref().map(describe));
        }
        if dead {
            let process = self.process.as_ref();
            return (DRIVER_LOST.to_owned(), process.map(lost_detail));
        }
        if let Some(by) = &self.seen.cancelled_by {
            return (
                JobState::Cancelling.to_string(),
                Some(format!("asked for by {by}")),
            );
        }
        match (&self.seen.job, self.seen.attempt) {
            (Some((JobState::Active, why)), Some(attempt)) => (attempt.to_string(), why.clone()),
            (Some((JobState::Active, why)), None) => {
                (AttemptState::Starting.to_string(), why.clone())
            }
            (Some((job, why)), _) => (job.to_string(), why.clone()),
            (None, Some(attempt)) => (attempt.to_string(), None),
            (None, None) => (JobState::Accepted.to_string(), None),
        }
    }
}

fn read_seen(attempt: &AttemptDir) -> Result<Seen, JobDirError> {
    let mut seen = Seen::default();
    for event in attempt.read_events()? {
        seen.add(event);
    }
    Ok(seen)
}

impl Seen {
    fn add(&mut self, event: Event) {
        let time_ms = event.time_ms;
        match event.kind {
            EventKind::Job { state, why } => self.job = Some((state, why)),
            EventKind::Attempt { state, .. } => {
                self.attempt = Some(state);
                self.started_ms.get_or_insert(time_ms);
                // An attempt that moves on is not waiting any more, whether or not the job said so.
                if matches!(self.job, Some((JobState::Queued, _))) && !state.is_terminal() {
                    self.job = Some((JobState::Active, None));
                }
            }
            EventKind::NodeJoined { node, name, pid } => {
                self.nodes.insert(
                    node,
                    NodeStatus {
                        index: node,
                        name,
                        pid,
                        lost: None,
                    },
                );
            }
            EventKind::NodeLost { name, detail } => {
                for node in self.nodes.values_mut().filter(|node| node.name == name) {
                    node.lost = Some(detail.clone());
                }
            }
            EventKind::RankStarted { rank, node, pid } => {
                let status = RankStatus {
                    rank,
                    node,
                    pid,
                    end: None,
                    stopped: false,
                };
                self.ranks.insert(rank, status);
            }
            EventKind::RankEnded {
                rank,
                node,
                end,
                stopped,
            } => {
                let status = self.ranks.entry(rank).or_insert(RankStatus {
                    rank,
                    node,
                    pid: 0,
                    end: None,
                    stopped,
                });
                status.end = Some(end);
                status.stopped = stopped;
                self.ends
                    .insert(rank, rank_result(rank, node, end, stopped, time_ms));
            }
            EventKind::CancelRequested { by } => self.cancelled_by = Some(by),
            EventKind::Warning { text } => self.warnings.push(text),
            EventKind::BoundExpired { wait, detail } => {
                self.warnings
                    .push(format!("gave up waiting for {wait}: {detail}"));
            }
            EventKind::ServiceReady { .. } | EventKind::Unknown => {}
        }
    }
}

fn rank_result(rank: u32, node: u32, end: ProcessEnd, stopped: bool, ended_ms: u64) -> RankResult {
    RankResult {
        rank,
        node,
        end,
        ended_ms,
        stopped,
        start_error: None,
        error: None,
        last_lines: Vec::new(),
        cpu_ms: 0,
        peak_kib: 0,
        out_of_memory: false,
    }
}

fn lost_end(
    attempt: &AttemptDir,
    process: &DriverInfo,
    now_ms: u64,
) -> Result<AttemptEnd, JobDirError> {
    Ok(AttemptEnd {
        state: AttemptState::Failed,
        failure: Some(Failure::DriverLost {
            detail: lost_detail(process),
        }),
        exit_code: exit::HERD_FAILED,
        ended_ms: now_ms,
        ranks: read_seen(attempt)?.ends.into_values().collect(),
    })
}

fn lost_detail(process: &DriverInfo) -> String {
    format!(
        "process {} on {} is gone and wrote no end",
        process.pid, process.host
    )
}

/// Success where another process was first.
fn once(written: Result<(), JobDirError>) -> Result<(), JobDirError> {
    match written {
        Err(JobDirError::AlreadyWritten(_)) => Ok(()),
        other => other,
    }
}

/// Counts by outcome; the last attempt of a task counts.
fn count_tasks(results: &[TaskResult]) -> Option<TaskCounts> {
    if results.is_empty() {
        return None;
    }
    let latest: BTreeMap<u32, bool> = results
        .iter()
        .map(|task| {
            (
                task.index,
                task.end.is_success() && task.start_error.is_none(),
            )
        })
        .collect();
    let total = u32::try_from(latest.len()).unwrap_or(u32::MAX);
    let succeeded = latest.values().filter(|ok| **ok).count();
    let succeeded = u32::try_from(succeeded).unwrap_or(u32::MAX);
    Some(TaskCounts {
        total,
        succeeded,
        failed: total - succeeded,
        running: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;

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
}
