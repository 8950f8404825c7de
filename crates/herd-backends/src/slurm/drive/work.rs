//! What a run of a batch script works at: a job, or one task of an array. Which attempt it is, requests for
//! its end, and the result.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use herd_core::exit;
use herd_core::plan::Plan;
use herd_core::result::{AttemptEnd, JobResult};
use herd_core::state::AttemptState;
use herd_jobdir::{AttemptDir, JobDir, JobDirError, apart};
use herd_link::message::ToCoordinator;
use herd_runtime::clock::Clock;
use herd_slurm::job::Id;
use tokio::signal::unix::Signal;
use tokio::time::sleep;

use super::super::DURABILITY;
use super::super::allocation::SlurmRun;
use super::super::scontrol;
use crate::attempts::{again, once, read_plan, write_next};
use crate::drive_error::DriveError;
use crate::local::target;

/// How often the coordinator is asked for the end, which may not listen yet, and the pause between.
const ASKS: u32 = 100;
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Whose attempts a run makes.
pub(super) struct Work<'a> {
    /// The job: its key, its secrets, what was said at submission.
    pub(super) job: &'a JobDir,
    /// Where attempts, output and result go: the job's directory, or that of one task.
    pub(super) own: JobDir,
    /// The task, and the plan of the job as a whole.
    pub(super) task: Option<(u32, Plan)>,
}

impl<'a> Work<'a> {
    pub(super) fn of(job: &'a JobDir, task: Option<u32>) -> Result<Self, DriveError> {
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

    /// Whether Slurm has started a later attempt: it may have lost this one's node from sight (I4).
    pub(super) fn is_overtaken(&self, attempt: u32) -> Result<bool, JobDirError> {
        let latest = self.own.latest_attempt()?;
        Ok(latest.is_some_and(|latest| latest.number() > attempt))
    }
}

/// What this run is about.
pub(super) enum Begun {
    Attempt(AttemptDir, Box<Plan>),
    /// The last attempt has ended, and only the job's result is missing.
    Over(AttemptEnd, Box<Plan>),
    NotOurs(String),
}

/// Finds out which attempt this run is, and takes it (I2).
pub(super) fn begin(work: &Work<'_>, run: &SlurmRun, clock: &Clock) -> Result<Begun, DriveError> {
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
                // Its driver was ended before it could write more; another attempt may be due.
                Some(end)
                    if end.state != AttemptState::Preempted
                        && again(&plan, &end, retries_used(own, plan.attempt)?).is_none() =>
                {
                    return Ok(Begun::Over(end, Box::new(plan)));
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
    // After the claim: whoever asks for the end of all tasks counts on one of the two being seen. Where Slurm
    // did not answer whoever asked, this is the first that hears of it.
    if work.job.cancel_request()?.is_some() {
        let end = unrun(AttemptState::Cancelled, clock);
        once(dir.write_end(&end, DURABILITY))?;
        return Ok(Begun::Over(end, Box::new(plan)));
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
        why: None,
        exit_code: match state {
            AttemptState::Cancelled => exit::CANCELLED,
            _ => exit::HERD_FAILED,
        },
        ended_ms: clock.now_ms(),
        ranks: Vec::new(),
    }
}

/// Whenever Slurm's notice comes, looks whether somebody has asked for the end, or Slurm preempts the job,
/// and asks this driver's own coordinator for it, as a client does that can reach it. A notice ahead of the
/// time limit is for nobody: the coordinator has that limit.
pub(super) async fn pass_requests_on(work: &Work<'_>, id: Id, notice: &mut Signal) -> Infallible {
    loop {
        if notice.recv().await.is_none() {
            return std::future::pending().await;
        }
        let Some(request) = request(work, id).await else {
            continue;
        };
        // The coordinator may not listen yet.
        for _ in 0..ASKS {
            if let Ok(target) = target(&work.own)
                && target.ask(&request).await.is_ok()
            {
                break;
            }
            sleep(ASK_AGAIN).await;
        }
    }
}

/// What a notice is for; none of what is nobody's, and where it cannot be found out.
async fn request(work: &Work<'_>, id: Id) -> Option<ToCoordinator> {
    // Slurm has one notice for each preemption. Where it signals every process of the job, one after the
    // other, that of the question may be among them; and its controller may be slow.
    for _ in 0..ASKS {
        if let Ok(Some(request)) = work.job.end_request() {
            return Some(ToCoordinator::Cancel {
                signal: request.signal,
                grace_ms: request.grace_ms,
                by: request.by,
            });
        }
        if let Ok(answer) = scontrol::preemption(id).await {
            let preemption = answer?;
            let left = preemption.seconds;
            let left = left.map_or_else(String::new, |seconds| format!(", {seconds} s"));
            return Some(ToCoordinator::Preempt {
                grace_ms: preemption.seconds.map(|seconds| seconds * 1000),
                by: format!("preempted by Slurm{left}"),
            });
        }
        sleep(ASK_AGAIN).await;
    }
    None
}

/// Attempts before this one that failed: preemptions do not count.
pub(super) fn retries_used(job: &JobDir, attempt: u32) -> Result<u32, JobDirError> {
    let mut used = 0;
    for number in 1..attempt {
        let end = job.attempt(number).read_end()?;
        used += u32::from(end.is_some_and(|end| end.state == AttemptState::Failed));
    }
    Ok(used)
}

pub(super) fn finish(work: &Work<'_>, result: &JobResult) -> Result<(), DriveError> {
    match &work.task {
        None => {
            work.job.delete_secrets()?;
            once(work.own.write_result(result, DURABILITY))?;
        }
        Some((_, whole)) => {
            once(work.own.write_result(result, DURABILITY))?;
            // With the last task the job ends.
            let now_ms = result.ended_ms;
            apart::finish(work.job, whole, &BTreeSet::new(), now_ms, DURABILITY)?;
        }
    }
    Ok(())
}
