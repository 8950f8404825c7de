//! The seam to the local backend: every call that starts, stops or enters something running.
//!
//! It translates between the command line's types and the backend's; it decides nothing.

use std::ffi::OsString;

use herd_core::JobId;
use herd_core::plan::BackendFacts;
use herd_core::result::JobResult;
use herd_core::units::Span;
use herd_jobdir::{Home, JobDir};

use crate::cli::job::PrefixStyle;
use crate::error::ExpectedError;
use crate::job_input::JobInput;

/// How a foreground run shows the job's output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// How lines are marked; the default for the number of ranks where absent.
    pub(crate) prefix: Option<PrefixStyle>,
    /// Whether control sequences pass.
    pub(crate) raw: bool,
    /// Whether marks are coloured.
    pub(crate) color: bool,
}

/// A foreground run that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The job.
    pub(crate) id: JobId,
    /// How it ended.
    pub(crate) result: JobResult,
}

/// Where `herd exec` enters a job.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// With the environment of a rank, on its node.
    Rank(u32),
    /// On a node.
    Node(u32),
}

/// What this machine offers to jobs.
pub(crate) fn facts() -> BackendFacts {
    let cpus = std::thread::available_parallelism()
        .map_or(1, |number| u32::try_from(number.get()).unwrap_or(u32::MAX));
    BackendFacts {
        memory_enforced: crate::machine::writable_cgroup().is_some(),
        ..BackendFacts::local(cpus, crate::machine::gpu_devices().usable)
    }
}

/// Writes the job down and starts a driver that outlives this process.
pub(crate) fn submit(home: &Home, input: JobInput) -> Result<JobId, ExpectedError> {
    drop((home.path(), input.secrets.into_values()));
    Err(missing("hand the job over"))
}

/// Runs the job as a child of this process and streams its output.
pub(crate) fn run_foreground(
    home: &Home,
    input: JobInput,
    shown: Shown,
) -> Result<Ended, ExpectedError> {
    let Shown { prefix, raw, color } = shown;
    drop((home.path(), input.secrets.into_values(), prefix, raw, color));
    Err(missing("run the job"))
}

/// Asks the job's driver to end it; returns once the request was taken.
pub(crate) fn cancel(
    job: &JobDir,
    signal: u8,
    grace: Option<Span>,
) -> Result<(), ExpectedError> {
    let _: (&JobDir, u8, Option<Span>) = (job, signal, grace);
    Err(missing("cancel the job"))
}

/// Runs a command inside the job with this process's streams; its exit code.
pub(crate) fn exec(job: &JobDir, place: Place, command: &[String]) -> Result<u8, ExpectedError> {
    let (Place::Rank(index) | Place::Node(index)) = place;
    let _: (&JobDir, u32, &[String]) = (job, index, command);
    Err(missing("enter the job"))
}

/// `herd executor`.
pub(crate) fn executor(args: &[OsString]) -> Result<u8, ExpectedError> {
    let _: &[OsString] = args;
    Err(missing("run an executor"))
}

/// `herd driver`.
pub(crate) fn driver(args: &[OsString]) -> Result<u8, ExpectedError> {
    let _: &[OsString] = args;
    Err(missing("run a driver"))
}

/// `herd rsh`.
pub(crate) fn rsh(args: &[OsString]) -> Result<u8, ExpectedError> {
    let _: &[OsString] = args;
    Err(missing("start a remote command"))
}

fn missing(what: &str) -> ExpectedError {
    ExpectedError::Backend {
        detail: format!("cannot {what}: the local backend is not part of this build"),
        hint: None,
    }
}
