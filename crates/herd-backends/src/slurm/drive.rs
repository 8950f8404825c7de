//! The driver of a Slurm job: one run of its batch script, from finding out which attempt it is to the
//! job's result, or to the next run.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use herd_core::event::{Event, EventKind};
use herd_core::exit;
use herd_core::plan::Plan;
use herd_core::result::{AttemptEnd, Failure, JobResult};
use herd_core::state::{AttemptState, JobState};
use herd_jobdir::runlog::RunLogWriter;
use herd_jobdir::{AttemptDir, JobDir, JobDirError, apart};
use herd_link::message::ToCoordinator;
use herd_runtime::clock::Clock;
use herd_runtime::driver::{Asking, Attempt, ExecutorStart, NodePlan, WhyEnded, Withdrawal};
use herd_runtime::entry::KEY_VARIABLE;
use herd_runtime::signals::Signals;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::allocation::{Allocation, SlurmRun};
use super::record::Site;
use super::{DURABILITY, listen, scontrol, step};
use crate::attempts::{
    again, count_tasks, drive_attempt, make_room, once, read_key, read_plan, result, task_history,
    write_next,
};
pub use crate::drive_error::DriveError;
use crate::local::target;

/// How long the nodes of an allocation may take to register.
const GANG_TIMEOUT: Duration = Duration::from_mins(2);
/// How often the coordinator is asked for the end, which may not listen yet, and the pause between.
const ASKS: u32 = 100;
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// After a requeue Slurm ends this process; it is not waited for longer.
const END_BOUND: Duration = Duration::from_mins(1);

/// How a driver runs a job.
#[derive(Debug)]
pub struct DriveOptions {
    /// The program of the executors and its first arguments.
    pub executor: Vec<String>,
    /// Tells the user, by the batch script's output, of something that does not end the job.
    pub warn: fn(&str),
}

/// What became of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driven {
    /// The job has ended.
    Ended(JobResult),
    /// Slurm starts the job again.
    Again,
    /// The job belongs to another run or has ended before; nothing was done.
    NotOurs {
        /// Why.
        why: String,
    },
}

/// Whose attempts a run makes.
struct Work<'a> {
    /// The job: its key, its secrets, what was said at submission.
    job: &'a JobDir,
    /// Where attempts, output and result go: the job's directory, or that of one task.
    own: JobDir,
    /// The task, and the plan of the job as a whole.
    task: Option<(u32, Plan)>,
}

impl<'a> Work<'a> {
    fn of(job: &'a JobDir, task: Option<u32>) -> Result<Self, DriveError> {
        let Some(index) = task else {
            return Ok(Self {
                job,
                own: job.clone(),
                task: None,
            });
        };
        Ok(Self {
            job,
            own: job.task(index),
            task: Some((index, read_plan(job, &job.attempt(1))?)),
        })
    }
}

/// Drives the attempt that is due in this run, at the job or at one task of it.
pub async fn drive(
    job: &JobDir,
    task: Option<u32>,
    allocation: &Allocation,
    options: &DriveOptions,
) -> Result<Driven, DriveError> {
    let clock = Clock::start();
    let mut signals = Signals::watch().map_err(DriveError::Signals)?;
    // Slurm's notice ahead of a time limit or preemption must not end this process. What it is for is
    // known here: the limit by the job's own clock, and a preemption by the signal that follows. The same
    // signal says that somebody has asked for the end of all tasks.
    let mut notice = signal(SignalKind::user_defined1()).map_err(DriveError::Signals)?;
    let work = Work::of(job, task)?;
    let (dir, plan) = match begin(&work, &allocation.run, &clock)? {
        Begun::Attempt(dir, plan) => (dir, *plan),
        Begun::NotOurs(why) => return Ok(Driven::NotOurs { why }),
        Begun::Over(end, attempts) => {
            return finish(&work, result(Some(end), attempts, clock.now_ms()));
        }
    };
    let ended = tokio::select! {
        ended = attempt(&work, &dir, &plan, allocation, options, &mut signals) => ended,
        never = pass_requests_on(&work, &mut notice) => match never {},
    };
    let end = match ended {
        Ok(end) => end,
        Err(error) => {
            // The job has ended for all who look; the error goes on to the batch script's output.
            let end = AttemptEnd {
                state: AttemptState::Failed,
                failure: Some(Failure::DriverLost {
                    detail: error.to_string(),
                }),
                exit_code: exit::HERD_FAILED,
                ended_ms: clock.now_ms(),
                ranks: Vec::new(),
            };
            once(dir.write_end(&end, DURABILITY))?;
            finish(&work, result(Some(end), plan.attempt, clock.now_ms()))?;
            return Err(error);
        }
    };
    if end.state == AttemptState::Preempted {
        note(&dir, &clock, "Slurm starts it again")?;
        return Ok(Driven::Again);
    }
    if again(&plan, &end, retries_used(&work.own, plan.attempt)?).is_some() {
        let mut next_plan = plan.clone();
        // Slurm may end this process as soon as it is asked, so all is written before.
        let next = write_next(&work.own, &mut next_plan, DURABILITY)?;
        note(&next, &clock, "Slurm starts it again after a failure")?;
        match scontrol::requeue(allocation.id()).await {
            Ok(()) => {
                let _ended = timeout(END_BOUND, signals.next()).await;
                return Ok(Driven::Again);
            }
            Err(error) => (options.warn)(&format!(
                "the job is not tried again, since it cannot be requeued: {error}"
            )),
        }
    }
    let mut settled = result(Some(end), plan.attempt, clock.now_ms());
    settled.tasks = count_tasks(&plan, job)?;
    finish(&work, settled)
}

/// What this run is about.
enum Begun {
    Attempt(AttemptDir, Box<Plan>),
    /// The attempt has ended, and only the job's result is missing.
    Over(AttemptEnd, u32),
    NotOurs(String),
}

/// Finds out which attempt this run is, and takes it (I2).
fn begin(work: &Work<'_>, run: &SlurmRun, clock: &Clock) -> Result<Begun, DriveError> {
    let own = &work.own;
    if work.job.read_result()?.is_some() || own.read_result()?.is_some() {
        return Ok(Begun::NotOurs("it has ended already".to_owned()));
    }
    let latest = match (own.latest_attempt()?, &work.task) {
        (None, Some((index, whole))) => first_of_task(own, &whole.of_task(*index))?,
        (latest, _) => latest.ok_or_else(|| DriveError::missing(own, "attempt"))?,
    };
    let mut plan = read_plan(own, &latest)?;
    let dir = match latest.read_owner()? {
        None => latest,
        Some(owner) => {
            let before = SlurmRun::parse(&owner)
                .filter(|before| before.job == run.job && before.restarts < run.restarts);
            if before.is_none() {
                return Ok(Begun::NotOurs(format!("it belongs to {owner}")));
            }
            match latest.read_end()? {
                Some(end) if end.state != AttemptState::Preempted => {
                    return Ok(Begun::Over(end, latest.number()));
                }
                Some(_) => {}
                // Its driver died with its node or was killed, and Slurm has started the job again.
                None => once(latest.write_end(&unrun(AttemptState::Preempted, clock), DURABILITY))?,
            }
            write_next(own, &mut plan, DURABILITY)?
        }
    };
    match dir.claim_owner(&run.to_string()) {
        Err(JobDirError::AlreadyOwned(owner)) => {
            return Ok(Begun::NotOurs(format!("it belongs to {owner}")));
        }
        claimed => claimed?,
    }
    // After the claim: whoever asks for the end of all tasks counts on one of the two being seen.
    if work.task.is_some() && work.job.cancel_request()?.is_some() {
        let end = unrun(AttemptState::Cancelled, clock);
        once(dir.write_end(&end, DURABILITY))?;
        return Ok(Begun::Over(end, dir.number()));
    }
    Ok(Begun::Attempt(dir, Box::new(plan)))
}

/// Writes down the first attempt at a task, which nobody did at submission. A duplicate writes the same.
fn first_of_task(own: &JobDir, plan: &Plan) -> Result<AttemptDir, JobDirError> {
    let first = own.attempt(plan.attempt);
    first.create()?;
    once(first.write_plan(plan, DURABILITY))?;
    Ok(first)
}

/// The end of an attempt of which nothing is known but that.
fn unrun(state: AttemptState, clock: &Clock) -> AttemptEnd {
    AttemptEnd {
        state,
        failure: None,
        exit_code: match state {
            AttemptState::Cancelled => exit::CANCELLED,
            _ => exit::HERD_FAILED,
        },
        ended_ms: clock.now_ms(),
        ranks: Vec::new(),
    }
}

/// Whenever Slurm's notice comes, looks whether somebody has asked for the end, and asks this driver's own
/// coordinator for it, as a client does that can reach it.
async fn pass_requests_on(work: &Work<'_>, notice: &mut Signal) -> Infallible {
    loop {
        if notice.recv().await.is_none() {
            return std::future::pending().await;
        }
        // What cannot be read now is read at the next notice.
        let Ok(Some(request)) = work.job.end_request() else {
            continue;
        };
        let cancel = ToCoordinator::Cancel {
            signal: request.signal,
            grace_ms: request.grace_ms,
            by: request.by,
        };
        // The coordinator may not listen yet.
        for _ in 0..ASKS {
            if let Ok(target) = target(&work.own)
                && target.ask(&cancel).await.is_ok()
            {
                break;
            }
            sleep(ASK_AGAIN).await;
        }
    }
}

/// Runs one attempt in the allocation.
async fn attempt(
    work: &Work<'_>,
    dir: &AttemptDir,
    plan: &Plan,
    allocation: &Allocation,
    options: &DriveOptions,
    signals: &mut Signals,
) -> Result<AttemptEnd, DriveError> {
    let (job, own) = (work.job, &work.own);
    let (key, key_text) = read_key(job)?;
    let listen = listen::address(allocation)
        .await
        .map_err(|source| DriveError::Address {
            node: allocation.own_node.clone(),
            source,
        })?;
    let nodes: Vec<NodePlan> = allocation
        .nodes
        .iter()
        .map(|name| NodePlan {
            name: name.clone(),
            ..NodePlan::default()
        })
        .collect();
    make_room(own, dir, plan, &nodes)?;
    let (id, run) = (allocation.id(), allocation.run.clone());
    let warn = options.warn;
    let why_ended = move || -> Asking {
        let run = run.clone();
        Box::pin(async move {
            scontrol::why_ended(id, &run).await.unwrap_or_else(|error| {
                // Slurm knows; what it says of the job later decides.
                warn(&format!(
                    "cannot find out whether Slurm starts it again: {error}"
                ));
                Withdrawal::Unknown
            })
        })
    };
    let site = Site::read(job)?;
    let mut env = step::environment(std::env::vars_os());
    env.push((KEY_VARIABLE.into(), key_text.into()));
    let attempt = Attempt {
        secrets: job.read_secrets()?,
        key,
        job: own.clone(),
        dir: dir.clone(),
        durability: DURABILITY,
        run_log: RunLogWriter::open(own.path())?,
        listen,
        gang_timeout: GANG_TIMEOUT,
        task_history: task_history(plan, job)?,
        tasks: plan.array.as_ref().map(|_| job.task_writer()).transpose()?,
        tasks_dir: job.tasks_dir(),
        task_slots: plan.resources.cpus.unwrap_or(1).saturating_mul(plan.nodes),
        executors: ExecutorStart::All {
            argv: step::argv(plan, &site, allocation, &options.executor),
            env,
            rank_starters: step::rank_starters(plan, &site, allocation),
        },
        nodes,
        key_file: job.path().join("key"),
        pass_stdin: false,
        warn: options.warn,
        // The files of other nodes may be seen late here.
        logs_at_hand: false,
        log_grown: None,
        why_ended: Some(WhyEnded(Box::new(why_ended))),
        plan: plan.clone(),
    };
    drive_attempt(attempt, signals).await
}

/// Attempts before this one that failed: preemptions do not count.
fn retries_used(job: &JobDir, attempt: u32) -> Result<u32, JobDirError> {
    let mut used = 0;
    for number in 1..attempt {
        let end = job.attempt(number).read_end()?;
        used += u32::from(end.is_some_and(|end| end.state == AttemptState::Failed));
    }
    Ok(used)
}

fn finish(work: &Work<'_>, result: JobResult) -> Result<Driven, DriveError> {
    match &work.task {
        None => {
            work.job.delete_secrets()?;
            once(work.own.write_result(&result, DURABILITY))?;
        }
        Some((_, whole)) => {
            once(work.own.write_result(&result, DURABILITY))?;
            // With the last task the job ends.
            let now_ms = result.ended_ms;
            apart::finish(work.job, whole, &BTreeSet::new(), now_ms, DURABILITY)?;
        }
    }
    Ok(Driven::Ended(result))
}

fn note(dir: &AttemptDir, clock: &Clock, why: &str) -> Result<(), JobDirError> {
    dir.event_writer()?.write(&Event {
        time_ms: clock.now_ms(),
        kind: EventKind::Job {
            state: JobState::Queued,
            why: Some(why.to_owned()),
        },
    })
}
