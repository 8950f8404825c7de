//! What reaches a running job over the link: a command inside it, with this process's streams, and its
//! merged output.

use std::net::SocketAddr;
use std::ops::ControlFlow;

use herd_jobdir::{JobDir, JobDirError};
use herd_link::session::{Place, SessionRequest, Terminal};
use herd_link::{Channel, Key, LinkError};
use herd_runtime::session::client::{self, ClientError, SessionEnd, Target};
use herd_runtime::session::follow_client::{FollowEnd, Output};
use herd_runtime::signals::Signals;
use rustix::termios::isatty;
use thiserror::Error;

/// Why a running job could not be reached.
#[derive(Debug, Error)]
pub enum ExecError {
    /// No driver of it can be reached: it waits, or is between attempts.
    #[error("job {job} has no driver that can be reached just now")]
    NoDriver {
        /// The job.
        job: String,
    },
    /// The job directory failed.
    #[error("could not read the job's records")]
    Records(#[from] JobDirError),
    /// The job's key is no key.
    #[error("the job's key cannot be read")]
    Key(#[source] LinkError),
    /// Signals cannot be watched.
    #[error("could not watch for signals")]
    Signals(#[source] std::io::Error),
    /// The session failed.
    #[error(transparent)]
    Session(#[from] ClientError),
}

/// Runs a command and returns how it ended. It has a terminal where this process has one on both its
/// standard input and its standard output, else pipes.
pub async fn exec(job: &JobDir, place: Place, argv: Vec<String>) -> Result<SessionEnd, ExecError> {
    let target = target(job)?;
    let interactive = isatty(std::io::stdin()) && isatty(std::io::stdout());
    let terminal = client::terminal_size()
        .filter(|_| interactive)
        .map(|size| Terminal {
            kind: std::env::var("TERM").unwrap_or_else(|_unset| "dumb".to_owned()),
            size,
        });
    let request = SessionRequest {
        place,
        argv,
        terminal,
    };
    let mut signals = Signals::watch().map_err(ExecError::Signals)?;
    Ok(target.run(request, &mut signals).await?)
}

/// Hands the merged output of the job's attempt to `take` as it grows, from these lengths of `run.log`
/// and `run.index` on ([`Target::follow`]).
pub async fn follow(
    job: &JobDir,
    log: u64,
    index: u64,
    take: impl FnMut(Output<'_>) -> ControlFlow<()>,
) -> Result<FollowEnd, ExecError> {
    Ok(target(job)?.follow(log, index, take).await?)
}

/// The driver of the job's newest attempt, whether or not it lives.
pub(crate) fn target(job: &JobDir) -> Result<Target, ExecError> {
    let no_driver = || ExecError::NoDriver {
        job: job.id().short(),
    };
    let attempt = job.latest_attempt()?.ok_or_else(no_driver)?;
    let driver = attempt.read_driver()?.ok_or_else(no_driver)?;
    let address: SocketAddr = driver.address.parse().map_err(|_none| no_driver())?;
    let key = job.read_key()?.ok_or_else(no_driver)?;
    Ok(Target {
        address,
        key: Key::from_hex(&key).map_err(ExecError::Key)?,
        channel: Channel {
            job: job.id().to_string(),
            attempt: attempt.number(),
        },
    })
}
