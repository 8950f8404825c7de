//! A local job from its queue to its result: waits for what it needs, makes attempts, decides on
//! retries, writes the one result.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use herd_core::event::{Event, EventKind};
use herd_core::exit;
use herd_core::plan::Plan;
use herd_core::result::{AttemptEnd, Failure, JobResult, TaskCounts};
use herd_core::retry::{self, Decision};
use herd_core::spec::AfterWhen;
use herd_core::state::{AttemptState, JobState};
use herd_jobdir::runlog::RunLogWriter;
use herd_jobdir::{AttemptDir, DriverInfo, Home, JobDir, JobDirError, tasks};
use herd_launch::cgroup;
use herd_link::Key;
use herd_runtime::clock::Clock;
use herd_runtime::driver::{self, Attempt, DriverError, LogGrown, NodePlan};
use herd_runtime::signals::Signals;
use thiserror::Error;
use tokio::time::{Instant, sleep_until, timeout};

use super::leases::{DIRECTORY_VARIABLE, Lease, LeaseError, Leases, Need, Stock, Ticket};
use super::machine::{self, Machine};

use super::DURABILITY;

/// How long executors of this machine may take to register.
const GANG_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a waiting job looks whether it may start.
const QUEUE_POLL: Duration = Duration::from_millis(200);

/// How a driver runs a job.
#[derive(Debug)]
pub struct DriveOptions {
    /// The program of the executors and its first arguments.
    pub executor: Vec<OsString>,
    /// Whether a job with one rank reads this process's standard input.
    pub pass_stdin: bool,
    /// Tells the user of something that does not end the job.
    pub warn: fn(&str),
    /// Who is told when the job's merged log has grown.
    pub log_grown: Option<LogGrown>,
}

/// Why a job could not be driven to its result.
#[derive(Debug, Error)]
pub enum DriveError {
    /// Another driver owns the job.
    #[error("job {job} has a driver already")]
    Owned {
        /// The job.
        job: String,
        /// What its owner file says.
        #[source]
        source: JobDirError,
    },
    /// A record of the job is missing or broken.
    #[error("job {job} has no {what}")]
    Missing {
        /// The job.
        job: String,
        /// Which record.
        what: &'static str,
    },
    /// The job's key is no key.
    #[error("the job's key cannot be read")]
    Key(#[source] herd_link::LinkError),
    /// The job directory failed.
    #[error("could not keep the job's records")]
    Records(#[from] JobDirError),
    /// The lease directory failed.
    #[error("could not lease this machine's CPUs or GPUs")]
    Leases(#[from] LeaseError),
    /// An attempt could not be driven.
    #[error("could not drive attempt {attempt}")]
    Driver {
        /// Its number.
        attempt: u32,
        /// Why.
        #[source]
        source: DriverError,
    },
    /// Signals cannot be watched.
    #[error("could not watch for signals")]
    Signals(#[source] std::io::Error),
}

/// How waiting ended.
enum Waited<T> {
    Ready(T),
    Cancelled(i32),
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
        .map_err(|source| DriveError::Owned {
            job: job.id().short(),
            source,
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
    let missing = |what| DriveError::Missing {
        job: job.id().short(),
        what,
    };
    let clock = Clock::start();
    let mut plan = first.read_plan()?.ok_or_else(|| missing("plan"))?;
    let key_text = job.read_key()?.ok_or_else(|| missing("key"))?;
    let key = Key::from_hex(&key_text).map_err(DriveError::Key)?;
    let secrets = job.read_secrets()?;
    let done = |end: Option<AttemptEnd>, attempts: u32| JobResult {
        state: match end.as_ref().map(|end| end.state) {
            Some(AttemptState::Succeeded) => JobState::Succeeded,
            Some(AttemptState::Cancelled) | None => JobState::Cancelled,
            Some(_) => JobState::Failed,
        },
        rejection: None,
        exit_code: end.as_ref().map_or(exit::CANCELLED, |end| end.exit_code),
        failure: end.and_then(|end| end.failure),
        attempts,
        ended_ms: clock.now_ms(),
        tasks: None,
    };
    let cancelled = |signal: i32, attempts: u32| JobResult {
        exit_code: 128u8.saturating_add(u8::try_from(signal).unwrap_or(0)),
        ..done(None, attempts)
    };
    if let Waited::Cancelled(signal) = wait_for_others(home, &plan, first, signals, &clock).await? {
        return Ok(cancelled(signal, 0));
    }
    loop {
        let dir = job.attempt(plan.attempt);
        dir.create()?;
        let (nodes, _lease) = match lease(&plan, &dir, signals, &clock).await? {
            Waited::Ready(leased) => leased,
            Waited::Cancelled(signal) => return Ok(cancelled(signal, plan.attempt - 1)),
        };
        for node in &nodes {
            dir.setup_log(&node.name)?;
        }
        if let Some(array) = &plan.array {
            job.create_task_dirs(&array.indices)?;
        }
        for rank in 0..plan.world_size() {
            dir.create_rank(rank)?;
        }
        let attempt = Attempt {
            secrets: secrets.clone(),
            key: key.clone(),
            dir: dir.clone(),
            durability: DURABILITY,
            run_log: RunLogWriter::open(job.path())?,
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            gang_timeout: GANG_TIMEOUT,
            nodes,
            task_history: match &plan.array {
                Some(_) if plan.attempt > 1 => job.read_tasks()?,
                _ => Vec::new(),
            },
            tasks: plan.array.as_ref().map(|_| job.task_writer()).transpose()?,
            tasks_dir: job.path().join("tasks"),
            // Leased CPUs, else all.
            task_slots: match (&plan.array, plan.resources.cpus) {
                (None, _) => 1,
                (Some(_), Some(cpus)) => cpus.saturating_mul(plan.nodes),
                (Some(_), None) => machine::cpus(),
            },
            executor: options.executor.clone(),
            key_file: job.path().join("key"),
            pass_stdin: options.pass_stdin && plan.world_size() == 1,
            warn: options.warn,
            logs_at_hand: true,
            log_grown: options.log_grown.clone(),
            plan: plan.clone(),
        };
        let end = Box::pin(driver::run(attempt, signals))
            .await
            .map_err(|source| DriveError::Driver {
                attempt: plan.attempt,
                source,
            })?;
        // A task that failed has had its own attempts; the array is not run again for it.
        let of_a_task =
            |failure: &&Failure| plan.array.is_some() && matches!(failure, Failure::RankFailed(_));
        let failure = end.failure.as_ref().filter(|failure| !of_a_task(failure));
        let decision = failure.map(|failure| {
            // Attempts are numbered from 1: the first is no retry.
            retry::decide(plan.retry.as_ref(), failure, plan.attempt - 1)
        });
        let Some(Decision::Again { after: backoff }) = decision else {
            let mut result = done(Some(end), plan.attempt);
            result.tasks = count_tasks(&plan, job)?;
            return Ok(result);
        };
        plan.attempt += 1;
        plan.generation += 1;
        let next = job.attempt(plan.attempt);
        next.create()?;
        next.write_plan(&plan, DURABILITY)?;
        let why = format!("retries after {} s", backoff.as_duration().as_secs_f32());
        note_queued(&next, &clock, &why)?;
        let until = Instant::now() + backoff.as_duration();
        tokio::select! {
            () = sleep_until(until) => {}
            signal = signals.next() => return Ok(cancelled(signal, plan.attempt - 1)),
        }
    }
}

/// Tasks by outcome, for an array.
fn count_tasks(plan: &Plan, job: &JobDir) -> Result<Option<TaskCounts>, DriveError> {
    let Some(array) = &plan.array else {
        return Ok(None);
    };
    let total = u32::try_from(array.indices.len()).unwrap_or(u32::MAX);
    Ok(Some(tasks::count(&job.read_tasks()?, total, true)))
}

/// Waits until the jobs of `after` have ended as they must.
async fn wait_for_others(
    home: &Home,
    plan: &Plan,
    dir: &AttemptDir,
    signals: &mut Signals,
    clock: &Clock,
) -> Result<Waited<()>, DriveError> {
    for after in &plan.after {
        let Ok(id) = home.select(&after.job) else {
            return Err(DriveError::Missing {
                job: after.job.clone(),
                what: "record",
            });
        };
        let other = home.open(id)?;
        let mut noted = false;
        let result = loop {
            if let Some(result) = other.read_result()? {
                break result;
            }
            if !noted {
                note_queued(dir, clock, &format!("waits for job {}", id.short()))?;
                noted = true;
            }
            if let Ok(signal) = timeout(QUEUE_POLL, signals.next()).await {
                return Ok(Waited::Cancelled(signal));
            }
        };
        let fits = match after.when {
            AfterWhen::Ok => result.state == JobState::Succeeded,
            AfterWhen::Failed => result.state == JobState::Failed,
            AfterWhen::Any => true,
        };
        if !fits {
            let text = format!(
                "job {} ended {}: this job does not run",
                id.short(),
                result.state
            );
            dir.event_writer()?.write(&Event {
                time_ms: clock.now_ms(),
                kind: EventKind::Warning { text },
            })?;
            return Ok(Waited::Cancelled(0));
        }
    }
    Ok(Waited::Ready(()))
}

/// Waits for the CPUs and GPUs that the plan asks for and divides them among its nodes.
async fn lease(
    plan: &Plan,
    dir: &AttemptDir,
    signals: &mut Signals,
    clock: &Clock,
) -> Result<Waited<(Vec<NodePlan>, Option<Lease>)>, DriveError> {
    let names = (0..plan.nodes).map(|index| format!("node{index}"));
    // Where no group is writable, memory is accounting only, which `render` and `run` have said.
    let memory = plan.resources.memory.map(|memory| memory.0);
    let memory = memory.filter(|_| cgroup::Parent::find().is_some());
    let need = Need {
        gpus: plan.resources.gpus.unwrap_or(0) * plan.nodes,
        cpus: plan.resources.cpus.unwrap_or(0) * plan.nodes,
    };
    if need.gpus == 0 && need.cpus == 0 {
        // Nothing asked for, nothing leased; zero GPUs asked for are zero GPUs seen.
        let gpus = plan.resources.gpus.map(|_| Vec::new());
        let nodes = names
            .map(|name| NodePlan {
                name,
                gpus: gpus.clone(),
                cpus: None,
                memory,
            })
            .collect();
        return Ok(Waited::Ready((nodes, None)));
    }
    let machine = Machine::of_this_process();
    let directory = std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from);
    let ticket = Ticket {
        job: plan.job,
        user: std::env::var("USER").unwrap_or_default(),
        priority: plan.priority,
        created_ms: plan.job.created_ms().unwrap_or(0),
        need,
    };
    let stock = Stock {
        gpus: machine.gpus,
        cpus: machine.cpus,
    };
    let mut waiting = Leases::open(directory.as_deref())?.enqueue(ticket, stock)?;
    let mut noted = String::new();
    let lease = loop {
        if let Some(lease) = waiting.try_acquire()? {
            break lease;
        }
        let why = waiting.why()?;
        if why != noted {
            note_queued(dir, clock, &why)?;
            noted = why;
        }
        if let Ok(signal) = timeout(QUEUE_POLL, signals.next()).await {
            return Ok(Waited::Cancelled(signal));
        }
    };
    // Slots are numbered alike for all who may use the same CPUs.
    let allowed = machine::allowed_cpus();
    let own_cpus: Vec<usize> = lease
        .cpus
        .iter()
        .filter_map(|&slot| allowed.get(slot as usize).copied())
        .collect();
    let nodes = names
        .enumerate()
        .map(|(index, name)| NodePlan {
            name,
            gpus: plan.resources.gpus.map(|n| share(&lease.gpus, index, n)),
            cpus: plan.resources.cpus.map(|n| share(&own_cpus, index, n)),
            memory,
        })
        .collect();
    Ok(Waited::Ready((nodes, Some(lease))))
}

/// The part of node `index` when each gets `each`.
fn share<T: Clone>(all: &[T], index: usize, each: u32) -> Vec<T> {
    all.iter()
        .skip(index * each as usize)
        .take(each as usize)
        .cloned()
        .collect()
}

/// Says why the job waits, and who is to be told when it need not any more: before there is a port,
/// a signal to this process is how a job is cancelled.
fn note_queued(dir: &AttemptDir, clock: &Clock, why: &str) -> Result<(), DriveError> {
    dir.write_driver(&DriverInfo::of_this_process(String::new()))?;
    dir.event_writer()?.write(&Event {
        time_ms: clock.now_ms(),
        kind: EventKind::Job {
            state: JobState::Queued,
            why: Some(why.to_owned()),
        },
    })?;
    Ok(())
}
