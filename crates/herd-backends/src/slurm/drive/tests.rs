//! What a run of the batch script does with what earlier ones have left.

use std::collections::BTreeMap;

use herd_core::JobId;
use herd_core::plan::{self, BackendFacts, Submission};
use herd_core::spec::{Command, JobSpec, Retry};
use herd_jobdir::Home;
use tempfile::TempDir;

use super::*;
use crate::local;
use crate::slurm::SlurmRun;

/// A job that the first run of Slurm's job 7 has taken.
fn taken(retries: u32) -> (TempDir, JobDir) {
    let directory = tempfile::tempdir().unwrap();
    let home = Home::at(directory.path().join("home")).unwrap();
    let spec = JobSpec {
        run: Some(Command::Argv(vec!["/bin/true".to_owned()])),
        retry: Some(Retry {
            max: retries,
            on: Vec::new(),
            backoff: None,
        }),
        ..JobSpec::default()
    };
    let submission = Submission::first(JobId::generate(), "/");
    let plan = plan::plan(&spec, &BackendFacts::local(8, 0), submission).unwrap();
    let job = local::submit(&home, b"{}", plan, &BTreeMap::new()).unwrap();
    job.dir.attempt(1).claim_owner(&run(0).to_string()).unwrap();
    (directory, job.dir)
}

fn work(job: &JobDir) -> Work<'_> {
    Work::of(job, None).unwrap()
}

fn run(restarts: u32) -> SlurmRun {
    SlurmRun { job: 7, restarts }
}

fn ended(job: &JobDir, state: AttemptState) {
    let failure = (state == AttemptState::Failed).then(|| Failure::NodeLost {
        node: "node2".to_owned(),
        detail: String::new(),
        last_lines: Vec::new(),
    });
    let end = AttemptEnd {
        why: None,
        state,
        exit_code: failure.as_ref().map_or(exit::SUCCESS, Failure::exit_code),
        failure,
        ended_ms: 1,
        ranks: Vec::new(),
    };
    job.attempt(1).write_end(&end, DURABILITY).unwrap();
}

/// What the next run begins with, and the number of attempts after that.
fn next(job: &JobDir) -> (Begun, u32) {
    let begun = begin(&work(job), &run(1), &Clock::start()).unwrap();
    (begun, job.latest_attempt().unwrap().unwrap().number())
}

#[test]
fn i1_a_job_with_a_result_is_left_alone() {
    let (_directory, job) = taken(3);
    ended(&job, AttemptState::Succeeded);
    let succeeded = result(job.attempt(1).read_end().unwrap(), 1, 2);
    job.write_result(&succeeded, DURABILITY).unwrap();
    assert!(matches!(next(&job), (Begun::NotOurs(_), 1)));
}

#[test]
fn i1_an_attempt_that_ended_well_before_a_requeue_is_the_last() {
    let (_directory, job) = taken(3);
    ended(&job, AttemptState::Succeeded);
    let (Begun::Over(end, plan), 1) = next(&job) else {
        panic!("another attempt");
    };
    let Driven::Ended(result) = conclude(&work(&job), &plan, end, &Clock::start()).unwrap() else {
        panic!("no end");
    };
    assert_eq!((result.state, result.attempts), (JobState::Succeeded, 1));
}

#[test]
fn an_attempt_that_failed_before_a_requeue_is_tried_again_where_that_is_due() {
    let (_directory, job) = taken(1);
    ended(&job, AttemptState::Failed);
    let (Begun::Attempt(dir, plan), 2) = next(&job) else {
        panic!("no second attempt");
    };
    assert_eq!((dir.number(), plan.attempt), (2, 2));
    let (_directory, job) = taken(0);
    ended(&job, AttemptState::Failed);
    assert!(matches!(next(&job), (Begun::Over(..), 1)));
}

#[test]
fn i2_a_run_that_is_not_later_takes_nothing() {
    let (_directory, job) = taken(0);
    for other in [
        run(0),
        SlurmRun {
            job: 8,
            restarts: 1,
        },
    ] {
        let begun = begin(&work(&job), &other, &Clock::start()).unwrap();
        assert!(matches!(begun, Begun::NotOurs(_)));
    }
    // Of a run that left no end it is known that it was ended.
    assert!(matches!(next(&job), (Begun::Attempt(..), 2)));
    let end = job.attempt(1).read_end().unwrap().unwrap();
    assert_eq!(end.state, AttemptState::Preempted);
}
