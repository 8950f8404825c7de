//! What is done to jobs that Slurm has.

use herd_backends::slurm::CommandError;
use herd_backends::slurm::array;
use herd_backends::slurm::cancel::{self, CancelError};
use herd_backends::slurm::cluster::Cluster;
use herd_backends::slurm::record::Record;
use herd_core::units::Span;
use herd_jobdir::JobDir;
use herd_slurm::control;
use herd_slurm::job::Id;

use super::patiently;
use crate::backend_local::runtime;
use crate::error::ExpectedError;

/// Asks for a job's end: its driver where it can be reached, else Slurm.
pub(crate) fn cancel(
    job: &JobDir,
    record: &Record,
    silent: bool,
    signal: u8,
    grace: Option<Span>,
) -> Result<(), ExpectedError> {
    let cluster = Cluster {
        silent,
        ..record.on()
    };
    let (signal, by) = (i32::from(signal), "herd cancel");
    let asked = async {
        if record.parts.is_empty() {
            cancel::cancel(job, record, &cluster, signal, grace, by).await
        } else {
            array::cancel(job, record, &cluster, signal, grace, by).await
        }
    };
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
