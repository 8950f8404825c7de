//! Asks a job's driver for the end: over the link, else by a signal to its process.

use std::time::Duration;

use herd_core::exit;
use herd_core::result::JobResult;
use herd_core::state::JobState;
use herd_core::units::Span;
use herd_jobdir::{JobDir, JobDirError, Liveness};
use herd_link::message::ToCoordinator;
use herd_link::{Channel, Key};
use herd_runtime::clock::Clock;
use herd_runtime::session::client::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use thiserror::Error;
use tokio::time::{Instant, sleep};

use super::end_unstarted;

/// Bound on waiting for a driver that starts.
const BOUND: Duration = Duration::from_secs(5);
/// How often a starting driver is looked for.
const POLL: Duration = Duration::from_millis(10);

/// Why a job could not be cancelled.
#[derive(Debug, Error)]
pub enum CancelError {
    /// It has ended.
    #[error("job {job} has ended already")]
    Ended {
        /// The job.
        job: String,
    },
    /// No driver answers and none lives on this machine.
    #[error("no driver of job {job} lives on this machine")]
    NoDriver {
        /// The job.
        job: String,
    },
    /// The job directory failed.
    #[error("could not read the job's records")]
    Records(#[from] JobDirError),
    /// The driver's process could not be signalled.
    #[error("could not signal the driver, process {pid}")]
    Signal {
        /// Its process id.
        pid: u32,
        /// What the system says.
        #[source]
        source: nix::errno::Errno,
    },
}

/// Asks for the end and returns when the request was taken up, not when the job has ended.
pub async fn cancel(
    job: &JobDir,
    signal: i32,
    grace: Option<Span>,
    by: &str,
) -> Result<(), CancelError> {
    if job.read_result()?.is_some() {
        return Err(CancelError::Ended {
            job: job.id().short(),
        });
    }
    let no_driver = || CancelError::NoDriver {
        job: job.id().short(),
    };
    let attempt = job.latest_attempt()?.ok_or_else(no_driver)?;
    // A driver that was started a moment ago has not introduced itself yet.
    let deadline = Instant::now() + BOUND;
    let mut driver = attempt.read_driver()?;
    while driver.is_none() && Instant::now() < deadline {
        sleep(POLL).await;
        driver = attempt.read_driver()?;
    }
    if let (Some(driver), Some(key)) = (&driver, job.read_key()?) {
        if let (Ok(address), Ok(key)) = (driver.address.parse(), Key::from_hex(&key)) {
            let target = Target {
                address,
                key,
                channel: Channel {
                    job: job.id().to_string(),
                    attempt: attempt.number(),
                },
            };
            let request = ToCoordinator::Cancel {
                signal,
                grace_ms: grace.map(|grace| grace.ms),
                by: by.to_owned(),
            };
            if target.ask(&request).await.is_ok() {
                return Ok(());
            }
        }
    }
    if driver.is_none() && attempt.number() == 1 {
        let cancelled = JobResult {
            state: JobState::Cancelled,
            rejection: None,
            reason: Some(format!("asked for by {by}")),
            failure: None,
            exit_code: exit::CANCELLED,
            attempts: 1,
            ended_ms: Clock::start().now_ms(),
            tasks: None,
        };
        if end_unstarted(job, cancelled)?.is_some() {
            return Ok(());
        }
    }
    // Not reachable: before its first attempt, or between attempts, the driver has no port.
    let driver = driver.ok_or_else(no_driver)?;
    if driver.liveness() != Liveness::Alive {
        return Err(no_driver());
    }
    // A signal alone would be anybody's.
    job.request_cancel(by)?;
    let pid = i32::try_from(driver.pid).unwrap_or(0);
    let pid = Pid::from_raw(pid);
    kill(pid, Signal::SIGTERM).map_err(|source| CancelError::Signal {
        pid: driver.pid,
        source,
    })?;
    // One that its terminal stopped acts on the first only now; any other may have ended by it.
    let _ended = kill(pid, Signal::SIGCONT);
    Ok(())
}
