//! Asks for the end of a job of Slurm: its driver over the link, which gives the ranks their grace; where
//! there is none, or it cannot be reached from here, Slurm.

use herd_core::units::Span;
use herd_jobdir::{EndRequest, JobDir, JobDirError};
use herd_link::message::ToCoordinator;
use herd_slurm::control;
use herd_slurm::job::Id;
use thiserror::Error;

use super::array;
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

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was passed on.
    Now,
    /// It is written down, since Slurm does not answer: whoever looks at the job passes it on, and what
    /// begins finds it.
    Later,
}

/// Asks for the end and returns when the request was taken up.
pub async fn cancel(
    job: &JobDir,
    record: &Record,
    cluster: &Cluster,
    signal: i32,
    grace: Option<Span>,
    by: &str,
) -> Result<Taken, CancelError> {
    if job.read_result()?.is_some() {
        return Err(CancelError::Ended {
            job: job.id().short(),
        });
    }
    let request = EndRequest {
        by: by.to_owned(),
        signal,
        grace_ms: grace.map(|grace| grace.ms),
    };
    if record.parts.is_empty() {
        if tell_driver(job, &request).await {
            return Ok(Taken::Now);
        }
        if record.staged_to.is_some() && here::is_staged(job) && runs(job)? {
            // What stages the job reaches the driver by Slurm's own ways.
            job.request_end(&request)?;
            job.note_passed_on()?;
            return Ok(Taken::Now);
        }
    }
    // For drivers to know who it was, should they live; what begins from now on finds it.
    job.request_end(&request)?;
    match pass_on(job, record, cluster).await {
        Err(CancelError::Slurm(error)) if error.is_silence() => Ok(Taken::Later),
        passed => passed.map(|()| Taken::Now),
    }
}

/// The same for a request that has reached nobody, since Slurm did not answer then.
pub async fn repeat(job: &JobDir, record: &Record, cluster: &Cluster) -> Result<(), CancelError> {
    if record.parts.is_empty()
        && let Some(request) = job.end_request()?
        && tell_driver(job, &request).await
    {
        return Ok(job.note_passed_on()?);
    }
    pass_on(job, record, cluster).await
}

async fn tell_driver(job: &JobDir, request: &EndRequest) -> bool {
    let request = ToCoordinator::Cancel {
        signal: request.signal,
        grace_ms: request.grace_ms,
        by: request.by.clone(),
    };
    match target(job) {
        Ok(target) => target.ask(&request).await.is_ok(),
        Err(_) => false,
    }
}

/// Has Slurm see to it that the request is heard.
async fn pass_on(job: &JobDir, record: &Record, cluster: &Cluster) -> Result<(), CancelError> {
    if record.parts.is_empty() {
        let call = control::cancel_call(&[Id::job(record.job)]);
        cluster.control(call).await?;
    } else {
        array::cancel(record, cluster).await?;
    }
    Ok(job.note_passed_on()?)
}

/// Whether a driver has begun the newest attempt and not ended it, as far as is known here.
fn runs(job: &JobDir) -> Result<bool, JobDirError> {
    Ok(match job.latest_attempt()? {
        Some(attempt) => attempt.read_driver()?.is_some() && attempt.read_end()?.is_none(),
        None => false,
    })
}
