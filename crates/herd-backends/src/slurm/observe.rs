//! What Slurm says of jobs: the queue for all of them at once, then accounting for those that are not in
//! it. Only a positive end record ends a job (I3); what Slurm does not know just now stays as it was.

use std::collections::BTreeMap;

use herd_core::exit;
use herd_core::hostlist;
use herd_core::result::{AttemptEnd, Failure, JobResult};
use herd_core::state::{AttemptState, JobState};
use herd_jobdir::{JobDir, JobDirError};
use herd_slurm::exit::ExitCode;
use herd_slurm::outcome::{Condition, End};
use herd_slurm::reason::Reason;
use herd_slurm::{sacct, squeue};
use thiserror::Error;

use super::DURABILITY;
use super::cluster::Cluster;
use super::command::CommandError;
use super::record::Record;
use crate::attempts::{once, result};

/// What Slurm says of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Slurm's number of the job.
    pub job: u32,
    /// What it means.
    pub condition: Condition,
    /// Why, in Slurm's words.
    pub reason: Reason,
    /// When Slurm expects to start a job that waits, seconds since the Unix epoch.
    pub start: Option<u64>,
    /// The nodes of an end that was a node's.
    node_list: Option<String>,
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

/// Asks about jobs by Slurm's numbers; those that Slurm does not know are not in the answer.
pub async fn observe(
    cluster: &Cluster,
    records: &[Record],
) -> Result<BTreeMap<u32, View>, CommandError> {
    let numbers: Vec<u32> = records.iter().map(|record| record.job).collect();
    let mut views = BTreeMap::new();
    for call in squeue::poll_calls(&numbers) {
        let answer = cluster.ask(call).await?;
        if !answer.end.is_success() && squeue::is_unknown_job(&answer.err) {
            continue;
        }
        for row in squeue::parse(&answer.success("squeue")?) {
            let condition = Condition::of(&row.state, &row.reason, None);
            let start = row.start.map(|time| time.0);
            let view = View {
                job: row.id.job,
                condition,
                reason: row.reason,
                start,
                node_list: row.node_list,
            };
            views.insert(row.id.job, view);
        }
    }
    // Accounting knows exit codes, which the queue does not, and what has left the queue.
    let unclear: Vec<&Record> = records
        .iter()
        .filter(|record| match views.get(&record.job) {
            None => true,
            Some(view) => matches!(view.condition, Condition::Ended(End::Failed(None))),
        })
        .collect();
    let numbers: Vec<u32> = unclear.iter().map(|record| record.job).collect();
    for call in sacct::job_calls(&numbers) {
        // A cluster may have no accounting.
        let Ok(text) = cluster.text(call).await else {
            continue;
        };
        let rows = sacct::parse(&text);
        for (id, row) in sacct::latest(&rows) {
            // Numbers are used again after years; a minute is for clocks that differ.
            let of_ours = unclear.iter().find(|record| record.job == id.job);
            let submitted = of_ours.map_or(0, |record| record.submitted_ms / 1000);
            if row.submit.is_some_and(|submit| submit.0 + 60 < submitted) {
                continue;
            }
            let reason = Reason::parse("");
            let condition = Condition::of(&row.state, &reason, row.exit);
            let ended = matches!(condition, Condition::Ended(_));
            if ended || !views.contains_key(&id.job) {
                let start = row.start.map(|time| time.0);
                let node_list = row.node_list.clone();
                let view = View {
                    job: id.job,
                    condition,
                    reason,
                    start,
                    node_list,
                };
                views.insert(id.job, view);
            }
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
    if Record::read(job)?.is_some_and(|record| record.job != view.job) {
        return Ok(None);
    }
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
    if settled.state == JobState::Cancelled {
        settled.reason = Some("cancelled in Slurm".to_owned());
    }
    job.delete_secrets()?;
    once(job.write_result(&settled, DURABILITY))?;
    Ok(job.read_result()?)
}

/// The end of an attempt whose driver has not written it.
fn of_slurm(end: End, view: &View, now_ms: u64) -> AttemptEnd {
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
