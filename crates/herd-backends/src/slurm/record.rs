//! What the submitting side writes down about a job for Slurm, in the job's directory.

use std::path::PathBuf;

use herd_jobdir::{JobDir, JobDirError};
use serde::{Deserialize, Serialize};

use super::allocation::SlurmRun;
use super::cluster::Cluster;

const RECORD: &str = "slurm.json";
const SITE: &str = "slurm-site.json";

/// A job that Slurm has; `slurm.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Slurm's number.
    pub job: u32,
    /// The cluster, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// When it was handed over, milliseconds since the Unix epoch.
    pub submitted_ms: u64,
    /// The job's directory on its nodes, where they share none with this side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged_to: Option<String>,
}

impl Record {
    /// The cluster that has the job.
    pub fn on(&self) -> Cluster {
        Cluster {
            name: self.cluster.clone(),
        }
    }

    pub(super) fn write(&self, job: &JobDir) -> Result<(), JobDirError> {
        job.write_backend(RECORD, self)
    }

    /// Reads it; nothing for a job that Slurm has not got, as far as is known.
    pub fn read(job: &JobDir) -> Result<Option<Self>, JobDirError> {
        let Some(mut record) = job.read_backend::<Self>(RECORD)? else {
            return Ok(None);
        };
        // Of a submission that was sent twice, the run that has taken the job counts (I2).
        if let Some(attempt) = job.latest_attempt()?
            && let Some(owner) = attempt.read_owner()?
            && let Some(run) = SlurmRun::parse(&owner)
        {
            record.job = run.job;
        }
        Ok(Some(record))
    }
}

/// What the driver has to know of the site and cannot ask there, where a node may have no commands of
/// Slurm but the one that starts the step; `slurm-site.json`, written before the job is handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The value of `--gres` that the job asks for; none for no GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gres: Option<String>,
    /// Whether the site binds tasks to CPUs.
    #[serde(default)]
    pub binds_cpus: bool,
    /// Whether nodes share no directory with the submitting side.
    #[serde(default)]
    pub staged: bool,
    /// The container that the job runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// MPI plug-ins of `srun`, for MPI jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mpi: Vec<String>,
}

/// A container, by the way in which the cluster runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Image {
    /// An image by its name (Pyxis).
    Named(String),
    /// A bundle in a directory of the nodes (Slurm's OCI support).
    Bundle(PathBuf),
}

impl Site {
    pub(super) fn write(&self, job: &JobDir) -> Result<(), JobDirError> {
        job.write_backend(SITE, self)
    }

    pub(super) fn read(job: &JobDir) -> Result<Self, JobDirError> {
        Ok(job.read_backend(SITE)?.unwrap_or_default())
    }
}
