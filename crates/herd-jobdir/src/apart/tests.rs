use herd_core::JobId;
use herd_core::plan::{self, BackendFacts, BackendKind, Submission};
use herd_core::spec::{Command, JobSpec};

use super::*;
use crate::home::Home;
use crate::job::EndRequest;
use crate::runlog::{Filter, Piece, RunLogWriter, Stream, TaskLogs};

struct Case {
    _dir: tempfile::TempDir,
    job: JobDir,
    plan: Plan,
}

fn case() -> Case {
    let dir = tempfile::tempdir().unwrap();
    let spec = JobSpec {
        run: Some(Command::Shell("true".to_owned())),
        array: Some("0-3".parse().unwrap()),
        ..JobSpec::default()
    };
    let facts = BackendFacts {
        kind: BackendKind::Slurm,
        ..BackendFacts::local(8, 0)
    };
    let submission = Submission::first(JobId::generate(), "/");
    let plan = plan::plan(&spec, &facts, submission).unwrap();
    let job = Home::at(dir.path()).unwrap().create(plan.job).unwrap();
    job.attempt(1).create().unwrap();
    job.attempt(1)
        .write_plan(&plan, Durability::Process)
        .unwrap();
    job.prepare_for_tasks().unwrap();
    Case {
        _dir: dir,
        job,
        plan,
    }
}

impl Case {
    fn begin(&self, index: u32) {
        let attempt = self.job.task(index).attempt(1);
        attempt.create().unwrap();
        // It may have been begun before.
        drop(attempt.claim_owner("slurm:7.0"));
    }

    fn end(&self, index: u32, state: JobState, exit_code: u8, ended_ms: u64) {
        self.begin(index);
        let rank = RankResult::ended(0, 0, ProcessEnd::Exited(exit_code), ended_ms);
        let result = JobResult {
            state,
            rejection: None,
            failure: (state == JobState::Failed).then(|| Failure::RankFailed(Box::new(rank))),
            reason: None,
            exit_code,
            attempts: 1,
            ended_ms,
            tasks: None,
        };
        let task = self.job.task(index);
        task.write_result(&result, Durability::Process).unwrap();
    }

    fn finish(&self, never: &[u32]) -> Option<JobResult> {
        let never = never.iter().copied().collect();
        finish(&self.job, &self.plan, &never, 99, Durability::Process).unwrap()
    }

    fn cancel(&self) {
        let request = EndRequest {
            by: "herd cancel".to_owned(),
            signal: 15,
            grace_ms: None,
        };
        self.job.request_end(&request).unwrap();
    }
}

#[test]
fn i1_a_job_ends_with_its_last_task_and_the_code_of_the_first_that_failed() {
    let case = case();
    assert_eq!(crate::status(&case.job).unwrap().brief.state, "ACCEPTED");
    for (index, code, ended_ms) in [(0, 0, 10), (3, 4, 30), (2, 5, 20)] {
        let state = if code == 0 {
            JobState::Succeeded
        } else {
            JobState::Failed
        };
        case.end(index, state, code, ended_ms);
        assert_eq!(case.finish(&[]), None);
    }
    case.begin(1);
    let now = overview(&case.job, case.plan.array.as_ref().unwrap()).unwrap();
    assert_eq!((now.running, now.counts.failed), (1, 2));
    assert_eq!(crate::status(&case.job).unwrap().brief.state, "RUNNING");
    case.end(1, JobState::Succeeded, 0, 40);
    let result = case.finish(&[]).unwrap();
    assert_eq!((result.state, result.exit_code), (JobState::Failed, 5));
    assert_eq!((result.ended_ms, result.tasks.unwrap().failed), (40, 2));
    let Some(Failure::TaskFailed(task)) = result.failure.clone() else {
        panic!("{result:?}");
    };
    assert_eq!(task.result.index, 2);
    // Whoever comes later finds it.
    assert_eq!(case.finish(&[]), Some(result));
    let lines = case.job.read_tasks().unwrap();
    assert_eq!(
        lines.iter().map(|line| line.index).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
}

#[test]
fn i3_a_task_that_nobody_has_ends_only_by_a_request_or_the_clusters_word() {
    let case = case();
    for index in 0..3 {
        case.end(index, JobState::Succeeded, 0, 10);
    }
    assert_eq!(case.finish(&[]), None);
    let result = case.finish(&[3]).unwrap();
    assert_eq!((result.state, result.exit_code), (JobState::Cancelled, 130));
    assert_eq!(
        result.reason.as_deref(),
        Some("1 of 4 tasks were cancelled")
    );
}

#[test]
fn i1_a_cancelled_job_waits_for_the_tasks_that_somebody_has() {
    let case = case();
    case.end(0, JobState::Failed, 3, 10);
    case.begin(2);
    case.cancel();
    assert_eq!(crate::status(&case.job).unwrap().brief.state, "CANCELLING");
    assert_eq!(case.finish(&[]), None);
    case.end(2, JobState::Cancelled, 130, 20);
    let result = case.finish(&[]).unwrap();
    assert_eq!(result.reason.as_deref(), Some("asked for by herd cancel"));
    let tasks = result.tasks.unwrap();
    assert_eq!((tasks.failed, tasks.stopped, tasks.total), (1, 1, 4));
    let brief = crate::status(&case.job).unwrap().brief;
    assert_eq!(
        (brief.state.as_str(), brief.exit_code),
        ("CANCELLED", Some(130))
    );
}

#[test]
fn between_attempts_a_task_waits_again() {
    let case = case();
    case.begin(0);
    assert_eq!(stand(&case.job, 0).unwrap(), Stand::Running);
    let end = |state| herd_core::result::AttemptEnd {
        why: None,
        state,
        failure: None,
        exit_code: 1,
        ended_ms: 1,
        ranks: Vec::new(),
    };
    let task = case.job.task(0);
    task.attempt(1)
        .write_end(&end(AttemptState::Failed), Durability::Process)
        .unwrap();
    assert_eq!(stand(&case.job, 0).unwrap(), Stand::Again { failed: true });
    task.attempt(2).create().unwrap();
    assert_eq!(stand(&case.job, 0).unwrap(), Stand::Again { failed: true });
    task.attempt(2).claim_owner("slurm:7.1").unwrap();
    assert_eq!(stand(&case.job, 0).unwrap(), Stand::Running);
    task.attempt(2)
        .write_end(&end(AttemptState::Preempted), Durability::Process)
        .unwrap();
    assert_eq!(stand(&case.job, 0).unwrap(), Stand::Again { failed: false });
}

#[test]
fn i7_what_a_task_printed_is_read_from_a_mirror_that_gets_it_after_the_tasks_end() {
    let case = case();
    case.end(1, JobState::Succeeded, 0, 5);
    let mut logs = TaskLogs::new(&case.job, 1, Filter::default()).of_mirror(true);
    assert!(logs.read().unwrap().is_none());
    let mut writer = RunLogWriter::open(case.job.task(1).path()).unwrap();
    let piece = Piece {
        time_ms: 4,
        rank: 0,
        node: 0,
        stream: Stream::Stdout,
        prefix_len: 0,
        continuation: false,
    };
    writer
        .append(&piece, |text| text.extend_from_slice(b"late\n"))
        .unwrap();
    writer.flush().unwrap();
    let entry = logs.read().unwrap().unwrap();
    assert_eq!((entry.record.rank, entry.bytes), (1, &b"late\n"[..]));
    assert!(logs.read().unwrap().is_none());
}
