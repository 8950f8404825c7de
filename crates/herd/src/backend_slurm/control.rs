//! What is done to jobs that Slurm has.

use herd_backends::slurm::CommandError;
use herd_backends::slurm::cancel::{self, CancelError, Taken};
use herd_backends::slurm::cluster::Cluster;
use herd_backends::slurm::record::Record;
use herd_core::units::Span;
use herd_jobdir::{EndRequest, JobDir};
use herd_slurm::control;
use herd_slurm::job::Id;

use super::patiently;
use crate::backend_local::runtime;
use crate::error::ExpectedError;

/// Whose wish it is.
const BY: &str = "herd cancel";

/// Asks for the end of a job that is on its way to Slurm: whoever hands it over finds the request, or who
/// looks at the job.
pub(crate) fn cancel_submission(
    job: &JobDir,
    signal: u8,
    grace: Option<Span>,
) -> Result<(), ExpectedError> {
    let asked = job.request_end(&EndRequest {
        by: BY.to_owned(),
        signal: i32::from(signal),
        grace_ms: grace.map(|grace| grace.ms),
    });
    asked.map_err(|error| ExpectedError::failed("cancel the job", error))
}

/// Passes on a request for the end that has reached nobody yet.
pub(crate) fn cancel_again(job: &JobDir, record: &Record) -> Result<(), CancelError> {
    match runtime() {
        Ok(runtime) => patiently(&runtime, cancel::repeat(job, record, &record.on())),
        Err(_) => Err(CommandError::Silent.into()),
    }
}

/// Asks for a job's end: its driver where it can be reached, else Slurm.
pub(crate) fn cancel(
    job: &JobDir,
    record: &Record,
    silent: bool,
    signal: u8,
    grace: Option<Span>,
) -> Result<Taken, ExpectedError> {
    let cluster = Cluster {
        silent,
        ..record.on()
    };
    let (signal, by) = (i32::from(signal), BY);
    let asked = cancel::cancel(job, record, &cluster, signal, grace, by);
    patiently(&runtime()?, asked).map_err(|error| match error {
        CancelError::Slurm(error) => undone("cancel the job", error),
        error => ExpectedError::failed("cancel the job", error),
    })
}

/// What can be done to a job in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Keep it from starting.
    Hold,
    /// Let it go.
    Release,
    /// Stop it and queue it again.
    Requeue,
    /// The same, held.
    RequeueHold,
}

/// Does it.
pub(crate) fn control(
    record: &Record,
    silent: bool,
    ids: &[Id],
    control: Control,
) -> Result<(), ExpectedError> {
    let (calls, what) = match control {
        Control::Hold => (control::hold_calls(ids), "hold the job"),
        Control::Release => (control::release_calls(ids), "release the job"),
        Control::Requeue => (control::requeue_calls(ids), "requeue the job"),
        Control::RequeueHold => (control::requeue_hold_calls(ids), "requeue the job"),
    };
    let cluster = Cluster {
        silent,
        ..record.on()
    };
    let runtime = runtime()?;
    for call in calls {
        patiently(&runtime, cluster.control(call)).map_err(|error| undone(what, error))?;
    }
    Ok(())
}

/// What Slurm did not do. Of a controller that is not there its commands say strange things.
fn undone(what: &'static str, error: CommandError) -> ExpectedError {
    if error.is_silence() {
        return ExpectedError::Surroundings {
            what,
            source: format!("Slurm's controller does not answer: {error}").into(),
            hint: "the job is as it was; try again when `scontrol ping` says that the controller is up",
        };
    }
    ExpectedError::failed(what, error)
}
