//! Why a job could not be driven, on whichever backend.

use herd_jobdir::{JobDir, JobDirError};
use herd_runtime::driver::DriverError;
use thiserror::Error;

use crate::local::leases::LeaseError;
use crate::slurm::ContainerError;

/// Why a job could not be driven to its result.
#[derive(Debug, Error)]
pub enum DriveError {
    /// The job's container does not do.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// Another driver owns the job.
    #[error("job {job} has a driver already")]
    Owned {
        /// The job.
        job: String,
        /// What its owner file says.
        #[source]
        source: JobDirError,
    },
    /// A record of the job is missing or broken.
    #[error("job {job} has no {what}")]
    Missing {
        /// The job.
        job: String,
        /// Which record.
        what: &'static str,
    },
    /// The job's key is no key.
    #[error("the job's key cannot be read")]
    Key(#[source] herd_link::LinkError),
    /// The job directory failed.
    #[error("could not keep the job's records")]
    Records(#[from] JobDirError),
    /// There is no address to listen on.
    #[error("could not find the address of {node} in the allocation's network")]
    Address {
        /// This node.
        node: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The lease directory failed.
    #[error("could not lease this machine's CPUs or GPUs")]
    Leases(#[from] LeaseError),
    /// An attempt could not be driven.
    #[error("could not drive attempt {attempt}")]
    Driver {
        /// Its number.
        attempt: u32,
        /// Why.
        #[source]
        source: DriverError,
    },
    /// Signals cannot be watched.
    #[error("could not watch for signals")]
    Signals(#[source] std::io::Error),
}

impl DriveError {
    /// A job without a record that it must have.
    pub(crate) fn missing(job: &JobDir, what: &'static str) -> Self {
        Self::Missing {
            job: job.id().short(),
            what,
        }
    }
}
