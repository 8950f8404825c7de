//! The end of a job whose driver died, written by somebody else.

use herd_core::exit;
use herd_core::result::{AttemptEnd, Failure, JobResult};
use herd_core::state::{AttemptState, JobState};

use super::seen::read_seen;
use super::tasks::overview;
use crate::attempt::AttemptDir;
use crate::driver::{DriverInfo, Liveness};
use crate::error::JobDirError;
use crate::files::Durability;
use crate::job::JobDir;

/// Ends a job whose driver died: `end` as `driver-lost` where it is missing, then the result.
///
/// On a disk that is full by then nothing can be written; the result comes all the same. Nothing is
/// written, and none comes, where the driver lives, cannot be observed from here, or was preempted (the
/// backend makes the next attempt). Safe to call twice and from two processes: each file is
/// written once, and the first writer's content stands.
pub fn finish_lost(job: &JobDir, now_ms: u64) -> Result<Option<JobResult>, JobDirError> {
    if let Some(result) = job.read_result()? {
        return Ok(Some(result));
    }
    let Some(attempt) = job.latest_attempt()? else {
        return Ok(None);
    };
    let Some(process) = attempt.process()? else {
        return Ok(None);
    };
    if process.liveness() != Liveness::Dead {
        return Ok(None);
    }
    if let Some(result) = job.read_result()? {
        return Ok(Some(result));
    }
    let end = if let Some(end) = attempt.read_end()? {
        end
    } else {
        let lost = lost_end(&attempt, &process, now_ms)?;
        where_there_is_room(attempt.write_end(&lost, Durability::Machine))?;
        // Another process may have been first.
        attempt.read_end()?.unwrap_or(lost)
    };
    let state = match end.state {
        AttemptState::Succeeded => JobState::Succeeded,
        AttemptState::Cancelled => JobState::Cancelled,
        AttemptState::Preempted => return Ok(None),
        AttemptState::Failed
        | AttemptState::Starting
        | AttemptState::SettingUp
        | AttemptState::Running
        | AttemptState::Checkpointing => JobState::Failed,
    };
    let result = JobResult {
        state,
        rejection: None,
        reason: None,
        failure: end.failure,
        exit_code: end.exit_code,
        attempts: attempt.number(),
        ended_ms: end.ended_ms,
        tasks: overview(job, true, true)?.map(|overview| overview.counts),
    };
    where_there_is_room(job.write_result(&result, Durability::Machine))?;
    job.delete_secrets()?;
    Ok(job.read_result()?.or(Some(result)))
}

/// Whether nobody writes to the job any more: it has its result, or its driver died. Cheaper than
/// [`super::status`], since it reads no events.
pub fn is_over(job: &JobDir) -> Result<bool, JobDirError> {
    if job.read_result()?.is_some() {
        return Ok(true);
    }
    let Some(attempt) = job.latest_attempt()? else {
        return Ok(false);
    };
    let process = attempt.process()?;
    Ok(process.is_some_and(|process| process.liveness() == Liveness::Dead))
}

fn lost_end(
    attempt: &AttemptDir,
    process: &DriverInfo,
    now_ms: u64,
) -> Result<AttemptEnd, JobDirError> {
    Ok(AttemptEnd {
        why: None,
        state: AttemptState::Failed,
        failure: Some(Failure::DriverLost {
            detail: process.lost_detail(),
        }),
        exit_code: exit::HERD_FAILED,
        ended_ms: now_ms,
        ranks: read_seen(attempt)?.ends.into_values().collect(),
    })
}

/// Success where another process was first, or where the disk takes nothing.
fn where_there_is_room(written: Result<(), JobDirError>) -> Result<(), JobDirError> {
    match written {
        Err(JobDirError::AlreadyWritten(_) | JobDirError::DiskFull { .. }) => Ok(()),
        other => other,
    }
}
