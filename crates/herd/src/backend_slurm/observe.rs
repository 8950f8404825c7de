//! What Slurm says of jobs, and what follows for their records.

use std::collections::BTreeMap;
use std::time::Duration;

use herd_backends::slurm::CommandError;
use herd_backends::slurm::array;
use herd_backends::slurm::cluster::Cluster;
use herd_backends::slurm::evidence::{self, Evidence};
use herd_backends::slurm::observe::{self, Asked, View, Views};
use herd_backends::slurm::record::Record;
use herd_core::plan::Plan;
use herd_jobdir::JobDir;
use tokio::time::timeout;

use super::patiently;
use crate::backend_local::runtime;
use crate::error::ExpectedError;
use crate::text;

/// What Slurm says of jobs, all of them in one question; by cluster. Each may take as long as `bound`.
pub(crate) fn observe(
    asked: Vec<Asked>,
    bound: Duration,
) -> Result<BTreeMap<Option<String>, Views>, CommandError> {
    let mut all = BTreeMap::new();
    let Ok(runtime) = runtime() else {
        return Ok(all);
    };
    let mut by_cluster: BTreeMap<Option<String>, Vec<Asked>> = BTreeMap::new();
    for job in asked {
        let of = by_cluster.entry(job.record.cluster.clone()).or_default();
        of.push(job);
    }
    for (name, asked) in by_cluster {
        let cluster = Cluster::named(name.clone());
        let question = async {
            let answer = timeout(bound, observe::observe(&cluster, &asked)).await;
            answer.unwrap_or_else(|_elapsed| {
                Err(CommandError::TimedOut {
                    program: "squeue".to_owned(),
                    seconds: bound.as_secs(),
                })
            })
        };
        let views = patiently(&runtime, question)?;
        all.insert(name, views);
    }
    Ok(all)
}

/// Why a job waits, as far as its cluster tells.
pub(crate) fn evidence(job: &JobDir, record: &Record, view: &View) -> Option<Evidence> {
    let plan = job.latest_attempt().ok()??.read_plan().ok()??;
    let cluster = record.on();
    let gathered = evidence::gather(
        &cluster,
        record.job,
        &plan.resources,
        plan.nodes,
        &view.reason,
    );
    Some(patiently(&runtime().ok()?, gathered))
}

/// Writes the result of a job that has ended in Slurm alone.
pub(crate) fn settle(job: &JobDir, view: &View) -> Result<(), ExpectedError> {
    observe::settle(job, view, text::now_ms())
        .map(drop)
        .map_err(|error| ExpectedError::failed("end the job", error))
}

/// The same for a job whose tasks are Slurm's, task by task; then for the job, where all have ended.
pub(crate) fn settle_tasks(
    job: &JobDir,
    plan: &Plan,
    tasks: &BTreeMap<u32, View>,
) -> Result<bool, ExpectedError> {
    array::settle(job, plan, tasks, text::now_ms())
        .map(|result| result.is_some())
        .map_err(|error| ExpectedError::failed("end the job", error))
}
