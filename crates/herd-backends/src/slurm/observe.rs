//! What Slurm says of jobs: the queue for all of them at once, then accounting for those that are not in
//! it. Only a positive end record ends a job (I3); what Slurm does not know just now stays as it was.

use std::collections::BTreeMap;

use herd_core::exit;
use herd_core::hostlist;
use herd_core::result::{AttemptEnd, Failure, JobResult};
use herd_core::state::{AttemptState, JobState};
use herd_jobdir::{JobDir, JobDirError};
use herd_slurm::exit::ExitCode;
use herd_slurm::job::Id;
use herd_slurm::outcome::{Condition, End};
use herd_slurm::reason::Reason;
use herd_slurm::{sacct, squeue};
use nix::unistd::{Uid, User};
use thiserror::Error;

use super::DURABILITY;
use super::cluster::Cluster;
use super::command::CommandError;
use super::record::Record;
use crate::after::first_in_vain;
use crate::attempts::{once, result};

/// Why a job is over whose end nobody has asked herd for.
pub(super) const CANCELLED_IN_SLURM: &str = "cancelled in Slurm";

/// The same with the name of who did it.
pub(super) fn cancelled_in_slurm(by: Option<u32>) -> String {
    let Some(number) = by else {
        return CANCELLED_IN_SLURM.to_owned();
    };
    let name = match User::from_uid(Uid::from_raw(number)) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => format!("user {number}"),
    };
    format!("{CANCELLED_IN_SLURM} by {name}")
}

/// What Slurm says of one job, or of one task of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// What Slurm calls it. An array's number alone is the part of it that will never begin.
    pub id: Id,
    /// Its own number; of a task that waits, the array's.
    pub raw: u32,
    /// What it means.
    pub condition: Condition,
    /// Why, in Slurm's words.
    pub reason: Reason,
    /// When Slurm expects to start a job that waits, seconds since the Unix epoch.
    pub start: Option<u64>,
    /// Its nodes, in Slurm's short form.
    pub node_list: Option<String>,
    /// The user who cancelled it, where accounting knows that.
    pub cancelled_by: Option<u32>,
}

/// What Slurm says, by what it calls jobs and tasks.
pub type Views = BTreeMap<Id, View>;

/// A job that Slurm is asked about.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What is known of it.
    pub record: Record,
    /// Its tasks that have not ended, by their indices in the job file, where they are Slurm's.
    pub open: Vec<u32>,
}

impl Asked {
    /// A job that is one of Slurm's.
    pub fn job(record: Record) -> Self {
        Self {
            record,
            open: Vec::new(),
        }
    }

    /// What Slurm calls what has not ended.
    fn ids(&self) -> Vec<Id> {
        if self.record.parts.is_empty() {
            return vec![Id::job(self.record.job)];
        }
        let open = self.open.iter();
        open.filter_map(|index| self.record.task(*index)).collect()
    }
}

/// Why jobs could not be observed.
#[derive(Debug, Error)]
pub enum ObserveError {
    /// Slurm gave no answer.
    #[error("cannot ask Slurm about the job")]
    Command(#[from] CommandError),
    /// The job directory failed.
    #[error("could not keep the job's records")]
    Records(#[from] JobDirError),
}

/// Asks about all of these with one question; what Slurm does not know is not in the answer.
pub async fn observe(cluster: &Cluster, asked: &[Asked]) -> Result<Views, CommandError> {
    let numbers: Vec<u32> = asked.iter().flat_map(|job| job.record.numbers()).collect();
    let mut views = Views::new();
    for call in squeue::poll_calls(&numbers) {
        let answer = cluster.ask(call).await?;
        if !answer.end.is_success() && squeue::is_unknown_job(&answer.err) {
            continue;
        }
        for row in squeue::parse(&answer.success("squeue")?) {
            let view = View {
                id: row.id,
                raw: row.raw,
                condition: Condition::of(&row.state, &row.reason, None),
                reason: row.reason,
                start: row.start.map(|time| time.0),
                node_list: row.node_list,
                cancelled_by: None,
            };
            views.insert(row.id, view);
        }
    }
    // Accounting knows exit codes and who cancelled a job, which the queue does not, and what has left it.
    let unclear = |views: &Views, id: &Id| match views.get(id) {
        None => true,
        Some(view) => matches!(
            view.condition,
            Condition::Ended(End::Failed(None) | End::Cancelled)
        ),
    };
    // Numbers are used again after years; a minute is for clocks that differ.
    let mut since: BTreeMap<u32, u64> = BTreeMap::new();
    for job in asked {
        for id in job.ids().iter().filter(|id| unclear(&views, id)) {
            since.insert(id.job, job.record.submitted_ms / 1000);
        }
    }
    let numbers: Vec<u32> = since.keys().copied().collect();
    for call in sacct::job_calls(&numbers) {
        // A cluster may have no accounting.
        let Ok(text) = cluster.text(call).await else {
            continue;
        };
        let rows = sacct::parse(&text);
        for (id, row) in sacct::latest(&rows) {
            let submitted = since.get(&id.job).copied().unwrap_or(0);
            if row.submit.is_some_and(|submit| submit.0 + 60 < submitted) || !unclear(&views, &id) {
                continue;
            }
            if let Some(view) = views.get_mut(&id)
                && view.condition == Condition::Ended(End::Cancelled)
            {
                // The newest row may be of an attempt before.
                view.cancelled_by = row.cancelled_by;
                continue;
            }
            let reason = Reason::parse("");
            let condition = Condition::of(&row.state, &reason, row.exit);
            if !matches!(condition, Condition::Ended(_)) && views.contains_key(&id) {
                continue;
            }
            let view = View {
                id,
                raw: row.raw,
                condition,
                reason,
                start: row.start.map(|time| time.0),
                node_list: row.node_list.clone(),
                cancelled_by: row.cancelled_by,
            };
            views.insert(id, view);
        }
    }
    Ok(views)
}

/// Ends a job that has ended in Slurm and whose driver has written no result: it was cancelled before it
/// began, or its driver died. Called when the job directory has been looked at after the answer. Each file
/// is written once, and the first writer's content stands.
pub fn settle(job: &JobDir, view: &View, now_ms: u64) -> Result<Option<JobResult>, ObserveError> {
    if let Some(result) = job.read_result()? {
        return Ok(Some(result));
    }
    let Condition::Ended(end) = view.condition else {
        return Ok(None);
    };
    // A duplicate of the submission has ended, since another run had taken the job (I2).
    if Record::read(job)?.is_some_and(|record| record.job != view.raw) {
        return Ok(None);
    }
    let settled = ended(job, end, view, now_ms)?;
    job.delete_secrets()?;
    once(job.write_result(&settled, DURABILITY))?;
    Ok(job.read_result()?)
}

/// How a job or task has ended whose driver has written no result, its last attempt with it.
pub(super) fn ended(
    job: &JobDir,
    end: End,
    view: &View,
    now_ms: u64,
) -> Result<JobResult, ObserveError> {
    let latest = job.latest_attempt()?;
    let owned = match &latest {
        Some(attempt) => attempt.read_owner()?.is_some(),
        None => false,
    };
    let attempts = latest.as_ref().map_or(0, herd_jobdir::AttemptDir::number);
    let written = match &latest {
        Some(attempt) => attempt.read_end()?,
        None => None,
    };
    // What the driver has written of the attempt says more, unless another run was to follow.
    let ended = match written.filter(|end| end.state != AttemptState::Preempted) {
        Some(end) => end,
        None => of_slurm(end, view, now_ms),
    };
    if let (Some(attempt), true) = (&latest, owned) {
        once(attempt.write_end(&ended, DURABILITY))?;
    }
    let mut settled = result(
        Some(ended),
        if owned {
            attempts
        } else {
            attempts.saturating_sub(1)
        },
        now_ms,
    );
    if settled.state == JobState::Cancelled && settled.reason.is_none() {
        settled.reason = Some(match job.cancel_request()? {
            Some(by) => format!("asked for by {by}"),
            // Slurm cancels a job that waits in vain, and keeps no word of why.
            None if latest.is_some() && !owned => {
                let plan = latest.map(|attempt| attempt.read_plan()).transpose()?;
                let in_vain = plan.flatten().and_then(|plan| first_in_vain(job, &plan));
                in_vain.unwrap_or_else(|| cancelled_in_slurm(view.cancelled_by))
            }
            None => cancelled_in_slurm(view.cancelled_by),
        });
    }
    Ok(settled)
}

/// The end of an attempt whose driver has not written it.
pub(super) fn of_slurm(end: End, view: &View, now_ms: u64) -> AttemptEnd {
    let lost = |detail: String| Some(Failure::DriverLost { detail });
    let (state, failure) = match end {
        End::Cancelled => (AttemptState::Cancelled, None),
        End::TimeLimit => (
            AttemptState::Failed,
            Some(Failure::TimeLimit {
                seconds: 0,
                early_ms: 0,
            }),
        ),
        End::NodeLost => {
            let list = view.node_list.clone().unwrap_or_default();
            let nodes = hostlist::expand(&list).unwrap_or_default();
            (
                AttemptState::Failed,
                Some(Failure::NodeLost {
                    node: match nodes.as_slice() {
                        [node] => node.clone(),
                        _ => list,
                    },
                    detail: "Slurm says that a node failed".to_owned(),
                    last_lines: Vec::new(),
                }),
            )
        }
        End::Completed => (
            AttemptState::Failed,
            lost("its batch script has ended, and it wrote no end".to_owned()),
        ),
        End::Failed(exit) => (AttemptState::Failed, lost(failed(exit))),
        End::OutOfMemory => (
            AttemptState::Failed,
            lost("Slurm ended it for want of memory".to_owned()),
        ),
        End::NotStarted => (
            AttemptState::Failed,
            lost("Slurm could not start the batch script".to_owned()),
        ),
        End::Preempted => (
            AttemptState::Failed,
            lost("it was preempted, and Slurm does not start it again".to_owned()),
        ),
        End::Deadline => (
            AttemptState::Failed,
            lost("it could not have ended before its deadline".to_owned()),
        ),
    };
    AttemptEnd {
        state,
        why: None,
        exit_code: failure.as_ref().map_or(exit::CANCELLED, Failure::exit_code),
        failure,
        ended_ms: now_ms,
        ranks: Vec::new(),
    }
}

fn failed(exit: Option<ExitCode>) -> String {
    match exit {
        Some(exit) => format!("its batch script {}, and it wrote no end", exit.end()),
        None => "its batch script failed, and it wrote no end".to_owned(),
    }
}
