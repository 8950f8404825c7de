//! A local job from its queue to its result: waits for what it needs, makes attempts, decides on
//! retries, writes the one result.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use herd_core::event::EventKind;
use herd_core::exit;
use herd_core::result::{AttemptEnd, Failure, JobResult};
use herd_core::retry;
use herd_core::sentence;
use herd_core::state::JobState;
use herd_jobdir::runlog::RunLogWriter;
use herd_jobdir::{AttemptDir, Home, JobDir, JobDirError};
use herd_runtime::clock::Clock;
use herd_runtime::driver::{Attempt, ExecutorStart, LogGrown, asked_by_signal};
use herd_runtime::signals::Signals;
use tokio::time::{Instant, sleep_until};

use super::DURABILITY;
use super::machine;
use super::waits::{Waited, Waits, lease, note, note_queued, wait_for_others};
use crate::attempts::{
    again, count_tasks, drive_attempt, make_room, read_key, read_plan, result, task_history,
    write_next,
};
pub use crate::drive_error::DriveError;

/// How long executors of this machine may take to register.
const GANG_TIMEOUT: Duration = Duration::from_secs(10);
/// How a driver runs a job.
#[derive(Debug)]
pub struct DriveOptions {
    /// The program of the executors and its first arguments.
    pub executor: Vec<OsString>,
    /// Says which GPUs jobs may have on this machine; called where one asks for some.
    pub gpus: fn() -> Vec<String>,
    /// Whether a job with one rank reads this process's standard input.
    pub pass_stdin: bool,
    /// Tells the user of something that does not end the job.
    pub warn: fn(&str),
    /// Tells the user what the job waits for, where somebody waits for it.
    pub waits: Option<fn(&str)>,
    /// Who is told when the job's merged log has grown.
    pub log_grown: Option<LogGrown>,
}

/// Runs the job to its end and returns its result. Secrets are deleted whatever happens.
pub async fn drive(
    home: &Home,
    job: &JobDir,
    options: &DriveOptions,
) -> Result<JobResult, DriveError> {
    let first = job.attempt(1);
    first
        .claim_owner(&format!("local:{}", std::process::id()))
        .map_err(|source| match source {
            source @ JobDirError::AlreadyOwned(_) => DriveError::Owned {
                job: job.id().short(),
                source,
            },
            source => DriveError::Records(source),
        })?;
    let mut signals = Signals::watch().map_err(DriveError::Signals)?;
    let outcome = attempts(home, job, &first, options, &mut signals).await;
    job.delete_secrets()?;
    let clock = Clock::start();
    let result = match outcome {
        Ok(result) => result,
        Err(error) => {
            // The job has ended for all who look; the error goes on to the caller.
            let detail = error.to_string();
            let failure = Failure::DriverLost { detail };
            drop(job.write_result(
                &JobResult {
                    state: JobState::Failed,
                    rejection: None,
                    reason: None,
                    failure: Some(failure),
                    exit_code: exit::HERD_FAILED,
                    attempts: 1,
                    ended_ms: clock.now_ms(),
                    tasks: None,
                },
                DURABILITY,
            ));
            return Err(error);
        }
    };
    match job.write_result(&result, DURABILITY) {
        // The caller gets it; those who look later find no result and no driver.
        Err(error @ JobDirError::DiskFull { .. }) => (options.warn)(&format!(
            "{error}; job {} ended {} with exit code {}",
            job.id().short(),
            result.state,
            result.exit_code
        )),
        other => other?,
    }
    Ok(result)
}

async fn attempts(
    home: &Home,
    job: &JobDir,
    first: &AttemptDir,
    options: &DriveOptions,
    signals: &mut Signals,
) -> Result<JobResult, DriveError> {
    let clock = Clock::start();
    let mut plan = read_plan(job, first)?;
    let (key, _) = read_key(job)?;
    let secrets = job.read_secrets()?;
    let done = |end: Option<AttemptEnd>, attempts: u32| result(end, attempts, clock.now_ms());
    // Asked for by a signal while nothing runs, before attempt `next`.
    let cancelled = |signal: i32, next: &AttemptDir| -> Result<JobResult, DriveError> {
        let (by, exit_code) = asked_by_signal(job, signal);
        note(next, &clock, EventKind::CancelRequested { by })?;
        Ok(JobResult {
            exit_code,
            ..done(None, next.number() - 1)
        })
    };
    let in_vain = |reason: String| JobResult {
        reason: Some(reason),
        ..done(None, 0)
    };
    let mut waits = Waits::new(&clock, options.waits);
    match wait_for_others(home, &plan, first, signals, &mut waits).await? {
        Waited::Ready(()) => {}
        Waited::Cancelled(signal) => return cancelled(signal, first),
        Waited::InVain(reason) => return Ok(in_vain(reason)),
    }
    loop {
        let dir = job.attempt(plan.attempt);
        dir.create()?;
        let (nodes, _lease) = match lease(&plan, &dir, options.gpus, signals, &mut waits).await? {
            Waited::Ready(leased) => leased,
            Waited::Cancelled(signal) => return cancelled(signal, &dir),
            Waited::InVain(reason) => return Ok(in_vain(reason)),
        };
        make_room(job, &dir, &plan, &nodes)?;
        let attempt = Attempt {
            secrets: secrets.clone(),
            key: key.clone(),
            job: job.clone(),
            dir: dir.clone(),
            durability: DURABILITY,
            run_log: RunLogWriter::open(job.path())?,
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            gang_timeout: GANG_TIMEOUT,
            nodes,
            task_history: task_history(&plan, job)?,
            tasks: plan.array.as_ref().map(|_| job.task_writer()).transpose()?,
            tasks_dir: job.path().join("tasks"),
            // Leased CPUs, else all.
            task_slots: match (&plan.array, plan.resources.cpus) {
                (None, _) => 1,
                (Some(_), Some(cpus)) => cpus.saturating_mul(plan.nodes),
                (Some(_), None) => machine::cpus(),
            },
            executors: ExecutorStart::Each(options.executor.clone()),
            key_file: job.path().join("key"),
            pass_stdin: options.pass_stdin && plan.world_size() == 1,
            warn: options.warn,
            logs_at_hand: true,
            log_grown: options.log_grown.clone(),
            why_ended: None,
            plan: plan.clone(),
        };
        let end = drive_attempt(attempt, signals).await?;
        let Some(backoff) = again(&plan, &end, plan.attempt - 1) else {
            let mut result = done(Some(end), plan.attempt);
            result.tasks = count_tasks(&plan, job)?;
            return Ok(result);
        };
        let next = write_next(job, &mut plan, DURABILITY)?;
        let why = retry::waits(backoff);
        note_queued(&next, &clock, &why)?;
        if let (Some(tell), Some(failure)) = (options.waits, &end.failure) {
            let failed = sentence::failure(failure, &|node| format!("node{node}"));
            tell(&format!(
                "attempt {} failed, {why}: {failed}",
                plan.attempt - 1
            ));
        }
        let until = Instant::now() + backoff.as_duration();
        tokio::select! {
            () = sleep_until(until) => {}
            signal = signals.next() => return cancelled(signal, &next),
        }
    }
}
