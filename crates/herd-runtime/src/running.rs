//! The phase that a node is in, whatever starts its processes.

use std::time::Duration;

use herd_core::spec::JobType;
use herd_core::text::error_line;
use herd_launch::Pid;
use herd_link::message::{Assign, Phase};

use crate::environment::Meeting;
use crate::mpi::run::MpiRun;
use crate::phase::{PhaseEvent, PhaseRun};
use crate::ray::run::RayRun;

/// A running phase.
pub(crate) enum Running {
    /// Herd starts its processes.
    Own(Box<PhaseRun>),
    /// `mpirun` does.
    Mpi(Box<MpiRun>),
    /// Herd does on node 0, in the Ray cluster that all nodes make.
    Ray(Box<RayRun>),
}

impl Running {
    /// Starts a phase. What cannot start is told as an end of its own.
    pub(crate) fn start(assign: &Assign, phase: Phase, meeting: &Meeting, own_name: bool) -> Self {
        match assign.plan.job_type {
            JobType::Mpi if phase == Phase::Run => {}
            JobType::Ray if phase == Phase::Run => {
                return Self::Ray(Box::new(RayRun::start(assign)));
            }
            JobType::Command | JobType::Pytorch | JobType::Mpi | JobType::Ray => {
                return Self::Own(Box::new(PhaseRun::start(assign, phase, meeting)));
            }
        }
        match MpiRun::start(assign, own_name) {
            Ok(run) => Self::Mpi(Box::new(run)),
            Err(error) => {
                let failed = PhaseRun::failed(assign, phase, error_line(&error), error.exit_code());
                Self::Own(Box::new(failed))
            }
        }
    }

    /// The next event. Cancel-safe. Pends for ever after `Done`.
    pub(crate) async fn next(&mut self) -> PhaseEvent {
        match self {
            Self::Own(run) => run.next().await,
            Self::Mpi(run) => run.next().await,
            Self::Ray(run) => run.next().await,
        }
    }

    /// Asks the processes to end; asked again, kills them.
    pub(crate) fn stop(&mut self, signal: i32, grace: Duration) {
        match self {
            Self::Own(run) => run.stop(signal, grace),
            Self::Mpi(run) => run.stop(signal, grace),
            Self::Ray(run) => run.stop(signal, grace),
        }
    }

    /// What node 0 ran is over: a phase that only served it ends.
    pub(crate) fn finish(&mut self) {
        match self {
            Self::Own(run) => run.finish(),
            Self::Mpi(run) => run.finish(),
            Self::Ray(run) => run.finish(),
        }
    }

    /// The daemon of node 0 is up: see [`RayRun::service_ready`].
    pub(crate) fn service_ready(&mut self, assign: &Assign, head: &Meeting) {
        match self {
            Self::Ray(run) => run.service_ready(assign, head),
            Self::Own(_) | Self::Mpi(_) => {}
        }
    }

    /// Says which children of this process are not the phase's.
    pub(crate) fn spare(&mut self, pids: Vec<Pid>) {
        match self {
            Self::Own(run) => run.spare(pids),
            Self::Mpi(run) => run.spare(pids),
            Self::Ray(run) => run.spare(pids),
        }
    }

    /// Ends the processes now, bounded by `grace` and the time that killing takes; what they leave
    /// behind outside their groups is the caller's to end.
    pub(crate) async fn end(&mut self, signal: i32, grace: Duration) {
        match self {
            Self::Own(run) => run.end(signal, grace).await,
            Self::Mpi(run) => run.end_now(signal, grace).await,
            Self::Ray(run) => run.end_now(signal, grace).await,
        }
    }
}
