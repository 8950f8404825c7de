//! The driver of a Slurm job: one run of its batch script, from finding out which attempt it is to the
//! job's result, or to the next run.

mod work;

use std::path::Path;
use std::time::Duration;

use herd_core::event::{Event, EventKind};
use herd_core::exit;
use herd_core::plan::Plan;
use herd_core::result::{AttemptEnd, Failure, JobResult};
use herd_core::spec::JobType;
use herd_core::state::{AttemptState, JobState};
use herd_jobdir::runlog::RunLogWriter;
use herd_jobdir::{AttemptDir, JobDir, JobDirError};
use herd_runtime::clock::Clock;
use herd_runtime::driver::{Asking, Attempt, ExecutorStart, NodePlan, WhyEnded, Withdrawal};
use herd_runtime::entry::KEY_VARIABLE;
use herd_runtime::signals::Signals;
use herd_slurm::{sbatch, staging};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::allocation::Allocation;
use super::cluster::Cluster;
use super::command::CommandError;
use super::observe::{CANCELLED_IN_SLURM, cancelled_in_slurm};
use super::record::Site;
use super::staging::{NodeSide, kept_here};
use super::{DURABILITY, container, listen, scontrol, step, variables};
use crate::attempts::{
    again, count_tasks, drive_attempt, make_room, once, read_key, result, task_history, write_next,
};
pub use crate::drive_error::DriveError;
use work::{Begun, Work, begin, finish, pass_requests_on, retries_used};

/// How long the nodes of an allocation may take to register.
const GANG_TIMEOUT: Duration = Duration::from_mins(2);
/// After a requeue Slurm ends this process; it is not waited for longer.
const END_BOUND: Duration = Duration::from_mins(1);

/// How long the submitting side is waited for with what a job has left on its nodes. They are the job's as
/// long.
const STAGE_BOUND: Duration = Duration::from_mins(2);
/// The same where Slurm ends this process soon: it gives 30 s, unless the site says otherwise. So long it is
/// waited for Slurm's answer then, too.
const LAST_STAGE_BOUND: Duration = Duration::from_secs(5);

/// How a driver runs a job.
#[derive(Debug)]
pub struct DriveOptions {
    /// The program of the executors and its first arguments.
    pub executor: Vec<String>,
    /// Tells the user, by the batch script's output, of something that does not end the job.
    pub warn: fn(&str),
    /// The directory of this job on its nodes, where they share none with the submitting side.
    pub staged: Option<NodeSide>,
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

/// Drives the attempt that is due in this run, at the job or at one task of it.
pub async fn drive(
    job: &JobDir,
    task: Option<u32>,
    allocation: &Allocation,
    options: &DriveOptions,
) -> Result<Driven, DriveError> {
    let driven = run(job, task, allocation, options).await;
    // A run that is not to be is over as well, and a failure is told in the records.
    if !matches!(driven, Ok(Driven::Again)) {
        remove_mounted(job, allocation, options).await;
        stage_out(options, STAGE_BOUND).await;
    }
    driven
}

async fn run(
    job: &JobDir,
    task: Option<u32>,
    allocation: &Allocation,
    options: &DriveOptions,
) -> Result<Driven, DriveError> {
    let clock = Clock::start();
    let mut signals = Signals::watch().map_err(DriveError::Signals)?;
    // Slurm's notice ahead of a time limit or preemption must not end this process. What it is for is
    // known here: the limit by the job's own clock, and a preemption by asking Slurm. The same signal says
    // that somebody has asked for the end of all tasks.
    let mut notice = signal(SignalKind::user_defined1()).map_err(DriveError::Signals)?;
    let work = Work::of(job, task)?;
    let (mut dir, mut plan) = match begin(&work, &allocation.run, &clock)? {
        Begun::Attempt(dir, plan) => (dir, *plan),
        Begun::NotOurs(why) => return Ok(Driven::NotOurs { why }),
        Begun::Over(end, plan) => return conclude(&work, &plan, end, &clock),
    };
    loop {
        let ended = tokio::select! {
            ended = attempt(&work, &dir, &plan, allocation, options, &mut signals) => ended,
            never = pass_requests_on(&work, allocation.id(), &mut notice) => match never {},
        };
        if work.is_overtaken(plan.attempt)? {
            let why = "a later attempt has begun elsewhere".to_owned();
            return Ok(Driven::NotOurs { why });
        }
        let end = match ended {
            Ok(end) => end,
            Err(error) => {
                // The job has ended for all who look; the error goes on to the batch script's output.
                let end = AttemptEnd {
                    state: AttemptState::Failed,
                    failure: Some(Failure::DriverLost {
                        detail: error.to_string(),
                    }),
                    why: None,
                    exit_code: exit::HERD_FAILED,
                    ended_ms: clock.now_ms(),
                    ranks: Vec::new(),
                };
                once(dir.write_end(&end, DURABILITY))?;
                finish(&work, &result(Some(end), plan.attempt, clock.now_ms()))?;
                return Err(error);
            }
        };
        if end.state == AttemptState::Preempted {
            let why = end.why.map_or_else(String::new, |why| format!("{why}; "));
            note(&dir, &clock, &format!("{why}Slurm starts it again"))?;
            if gives_back(allocation, options).await {
                let _ended = timeout(END_BOUND, signals.next()).await;
                return Ok(Driven::Again);
            }
            stage_out(options, LAST_STAGE_BOUND).await;
            return Ok(Driven::Again);
        }
        let Some(pause) = again(&plan, &end, retries_used(&work.own, plan.attempt)?) else {
            let end = named(end, allocation).await;
            return conclude(&work, &plan, end, &clock);
        };
        let mut next_plan = plan.clone();
        // Slurm may end this process as soon as it is asked, so all is written before.
        let next = write_next(&work.own, &mut next_plan, DURABILITY)?;
        note(&next, &clock, "Slurm starts it again after a failure")?;
        let Err(error) = requeue(allocation, options).await else {
            let _ended = timeout(END_BOUND, signals.next()).await;
            return Ok(Driven::Again);
        };
        // Nodes may have no scontrol. What has not lost them can be tried on the same ones.
        let here =
            options.staged.is_none() && !matches!(end.failure, Some(Failure::NodeLost { .. }));
        (options.warn)(&format!(
            "the job is {}, since it cannot be requeued: {error}",
            if here {
                "tried again on the same nodes"
            } else {
                "not tried again"
            }
        ));
        let pause = Duration::from_millis(pause.ms);
        if !here || timeout(pause, signals.next()).await.is_ok() {
            return conclude(&work, &plan, end, &clock);
        }
        next.claim_owner(&allocation.run.to_string())?;
        (dir, plan) = (next, next_plan);
    }
}

/// Gives the nodes back before the end of a preemption's grace, where all that ran has ended; false where
/// Slurm has taken them already.
async fn gives_back(allocation: &Allocation, options: &DriveOptions) -> bool {
    let goes_on = scontrol::goes_on(allocation.id(), &allocation.run);
    if !timeout(LAST_STAGE_BOUND, goes_on).await.unwrap_or(false) {
        return false;
    }
    if let Err(error) = requeue(allocation, options).await {
        // Then Slurm takes them when the grace is over.
        (options.warn)(&format!("cannot give the nodes back early: {error}"));
    }
    true
}

/// Has Slurm start the job, or task, again.
async fn requeue(allocation: &Allocation, options: &DriveOptions) -> Result<(), CommandError> {
    if let Some(side) = &options.staged {
        if kept_here(side, true, STAGE_BOUND).await {
            clean(options);
            return Ok(());
        }
    }
    scontrol::requeue(allocation.id()).await
}

/// With who it was that cancelled the job in Slurm.
async fn named(mut end: AttemptEnd, allocation: &Allocation) -> AttemptEnd {
    if end.why.as_deref() == Some(CANCELLED_IN_SLURM) {
        let by = scontrol::cancelled_by(allocation.id()).await;
        end.why = Some(cancelled_in_slurm(by));
    }
    end
}

/// The job, or task, ends as its last attempt did.
fn conclude(
    work: &Work<'_>,
    plan: &Plan,
    end: AttemptEnd,
    clock: &Clock,
) -> Result<Driven, DriveError> {
    let mut settled = result(Some(end), plan.attempt, clock.now_ms());
    settled.tasks = count_tasks(plan, work.job)?;
    finish(work, &settled)?;
    Ok(Driven::Ended(settled))
}

/// Waits until the submitting side has the records, where it does not see them; then nothing of the job is
/// needed here any more.
async fn stage_out(options: &DriveOptions, bound: Duration) {
    let Some(side) = &options.staged else {
        return;
    };
    if kept_here(side, false, bound).await {
        clean(options);
    } else {
        (options.warn)(&format!(
            "nobody has come for what the job has written: it stays in {}",
            side.path().display()
        ));
    }
}

/// Removes the directory where executors could not: in a container it is a mount.
async fn remove_mounted(job: &JobDir, allocation: &Allocation, options: &DriveOptions) {
    let image = Site::read(job).is_ok_and(|site| site.image.is_some());
    if let Some(side) = options.staged.as_ref().filter(|_| image) {
        let nodes = u32::try_from(allocation.nodes.len()).unwrap_or(u32::MAX);
        let path = side.path().to_string_lossy();
        if let Ok(call) = staging::remove(allocation.run.job, nodes, &path) {
            // A node that does not answer is lost, with what lies on it.
            drop(Cluster::default().reach(call).await);
        }
    }
}

fn clean(options: &DriveOptions) {
    let Some(side) = &options.staged else {
        return;
    };
    // What cannot be removed now is in the way of nobody.
    if let Ok(Some(why)) = side.remove() {
        (options.warn)(&format!("the directory of work does not come back: {why}"));
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
    // Whoever cancels a job or runs a command inside it comes from a login node.
    let listen = listen::address(allocation, true)
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
            apart: options.staged.is_some() && *name != allocation.own_node,
            ..NodePlan::default()
        })
        .collect();
    make_room(own, dir, plan, &nodes)?;
    let (id, run) = (allocation.id(), allocation.run.clone());
    let warn = options.warn;
    let asked_in = job.clone();
    let why_ended = move || -> Asking {
        let (run, job) = (run.clone(), asked_in.clone());
        Box::pin(async move {
            let why = scontrol::why_ended(&job, id, &run).await;
            why.unwrap_or_else(|error| {
                // Slurm knows; what it says of the job later decides.
                warn(&format!(
                    "cannot find out whether Slurm starts it again: {error}"
                ));
                Withdrawal::Unknown
            })
        })
    };
    let site = Site::read(job)?;
    // Slurm signals MPI's launcher, which has ways of its own with the ranks.
    let tells_ranks = site.signals_all && plan.job_type != JobType::Mpi;
    let container = site.image.as_ref().map(|image| {
        let home = job.path().ancestors().nth(2).unwrap_or_else(|| job.path());
        let program = options.executor.first().map(Path::new).unwrap_or(home);
        container::prepare(image, plan, home, program)
    });
    let container = container.transpose().map_err(DriveError::Container)?;
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
            argv: step::argv(plan, &site, allocation, container, &executor(options)),
            env,
            rank_starters: step::rank_starters(plan, &site, allocation),
            try_again: sbatch::is_unavailable,
        },
        nodes,
        key_file: job.path().join("key"),
        pass_stdin: false,
        warn: options.warn,
        // The files of other nodes may be seen late here.
        logs_at_hand: false,
        log_grown: None,
        why_ended: Some(WhyEnded {
            ask: Box::new(why_ended),
            tells_ranks,
        }),
        plan: variables::with_those_of_slurm(plan, &site, std::env::vars()),
    };
    drive_attempt(attempt, signals).await
}

/// The program of the executors, which remove the job's directory on their nodes.
fn executor(options: &DriveOptions) -> Vec<String> {
    let mut words = options.executor.clone();
    if let Some(side) = &options.staged {
        words.push("--staged".to_owned());
        words.push(side.path().to_string_lossy().into_owned());
    }
    words
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

#[cfg(test)]
mod tests;
