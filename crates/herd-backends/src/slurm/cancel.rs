//! Asks for the end of a job of Slurm: its driver over the link, which gives the ranks their grace; where
//! there is none, or it cannot be reached from here, Slurm.

use herd_core::units::Span;
use herd_jobdir::{JobDir, JobDirError};
use herd_link::message::ToCoordinator;
use herd_slurm::control;
use herd_slurm::job::Id;
use serde_json::json;
use thiserror::Error;

use super::cluster::Cluster;
use super::command::CommandError;
use super::record::Record;
use super::staging::here;
use crate::local::target;

/// Why a job could not be cancelled.
#[derive(Debug, Error)]
pub enum CancelError {
    /// It has ended.
    #[error("job {job} has ended already")]
    Ended {
        /// The job.
        job: String,
    },
    /// The job directory failed.
    #[error("could not read the job's records")]
    Records(#[from] JobDirError),
    /// Slurm said no.
    #[error(transparent)]
    Slurm(#[from] CommandError),
}

/// Asks for the end and returns when the request was taken up.
pub async fn cancel(
    job: &JobDir,
    record: &Record,
    cluster: &Cluster,
    signal: i32,
    grace: Option<Span>,
    by: &str,
) -> Result<(), CancelError> {
    if job.read_result()?.is_some() {
        return Err(CancelError::Ended {
            job: job.id().short(),
        });
    }
    let request = ToCoordinator::Cancel {
        signal,
        grace_ms: grace.map(|grace| grace.ms),
        by: by.to_owned(),
    };
    if let Ok(target) = target(job)
        && target.ask(&request).await.is_ok()
    {
        return Ok(());
    }
    if record.staged_to.is_some() && here::is_staged(job) && runs(job)? {
        // What stages the job reaches the driver by Slurm's own ways.
        let request = json!({"request": "cancel", "by": by, "signal": signal, "grace_ms": grace.map(|g| g.ms)});
        job.append_control(&request)?;
        return Ok(());
    }
    // For the driver to know who it was, should it live.
    job.request_cancel(by)?;
    let call = control::cancel_call(&[Id::job(record.job)]);
    let answer = cluster.ask(call).await?;
    answer.success("scancel")?;
    Ok(())
}

/// Whether a driver has begun the newest attempt and not ended it, as far as is known here.
fn runs(job: &JobDir) -> Result<bool, JobDirError> {
    Ok(match job.latest_attempt()? {
        Some(attempt) => attempt.read_driver()?.is_some() && attempt.read_end()?.is_none(),
        None => false,
    })
}
