//! The end of a job that was written down and that no driver ever took.

use herd_core::result::JobResult;
use herd_jobdir::{JobDir, JobDirError};

use super::DURABILITY;

/// How the owner that [`end_unstarted`] makes begins.
const ENDED: &str = "ended:";

/// Ends a job that no driver has taken, by taking its first attempt: a driver that comes later finds
/// an owner and stops itself (I2), so nothing is concluded from absence (I3). `None` where a driver
/// has it; then nothing is written.
pub fn end_unstarted(job: &JobDir, result: JobResult) -> Result<Option<JobResult>, JobDirError> {
    match job
        .attempt(1)
        .claim_owner(&format!("{ENDED}{}", std::process::id()))
    {
        Ok(()) => {}
        Err(JobDirError::AlreadyOwned(_)) => return Ok(None),
        Err(error) => return Err(error),
    }
    job.write_result(&result, DURABILITY)?;
    job.delete_secrets()?;
    Ok(Some(result))
}

/// Whether somebody has the job's first attempt: a driver, or who ended it without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nobody yet.
    No,
    /// A driver, now or before.
    ByDriver,
    /// It was ended; no driver ever comes.
    Ended,
}

/// Who has taken the job.
pub fn taken(job: &JobDir) -> Taken {
    match job.attempt(1).read_owner() {
        Ok(None) => Taken::No,
        Ok(Some(owner)) if owner.starts_with(ENDED) => Taken::Ended,
        // One that is being written cannot be read yet, and is there.
        Ok(Some(_)) | Err(_) => Taken::ByDriver,
    }
}
