//! What the submitting side writes down about a job for Slurm, in the job's directory.

use std::path::PathBuf;

use herd_core::spec::{Array, SlurmEnvironment};
use herd_jobdir::{JobDir, JobDirError};
use herd_slurm::job::Id;
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
    /// The arrays of Slurm that its tasks are in, where each has an allocation of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// An array of Slurm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Slurm's number of it.
    pub job: u32,
    /// What to add to Slurm's indices to get those of the job file.
    pub offset: u32,
    /// Slurm's indices.
    pub tasks: Array,
}

impl Part {
    /// Whether it has this one of Slurm's indices.
    fn has(&self, task: u32) -> bool {
        self.tasks.indices.binary_search(&task).is_ok()
    }
}

impl Record {
    /// The cluster that has the job.
    pub fn on(&self) -> Cluster {
        Cluster::named(self.cluster.clone())
    }

    /// All of Slurm's numbers: one, or one for each part.
    pub fn numbers(&self) -> Vec<u32> {
        if self.parts.is_empty() {
            return vec![self.job];
        }
        self.parts.iter().map(|part| part.job).collect()
    }

    /// What people and Slurm call it: `25`, `25,31` where it is several arrays.
    pub fn name(&self) -> String {
        let numbers: Vec<String> = self.numbers().iter().map(u32::to_string).collect();
        numbers.join(",")
    }

    /// Whether Slurm's name for a job, or for a task of an array, means this job.
    pub fn is(&self, id: Id) -> bool {
        match id.task {
            None => self.numbers().contains(&id.job),
            Some(task) => self
                .parts
                .iter()
                .any(|part| part.job == id.job && part.has(task)),
        }
    }

    /// What Slurm calls a task by its index in the job file.
    pub fn task(&self, index: u32) -> Option<Id> {
        self.parts.iter().find_map(|part| {
            let task = index.checked_sub(part.offset)?;
            part.has(task).then_some(Id {
                job: part.job,
                task: Some(task),
            })
        })
    }

    pub(super) fn write(&self, job: &JobDir) -> Result<(), JobDirError> {
        job.write_backend(RECORD, self)
    }

    /// Reads it; nothing for a job that Slurm has not got, as far as is known.
    pub fn read(job: &JobDir) -> Result<Option<Self>, JobDirError> {
        let Some(mut record) = job.read_backend::<Self>(RECORD)? else {
            return Ok(None);
        };
        if !record.parts.is_empty() {
            return Ok(Some(record));
        }
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
    /// Whether Slurm's signals reach every process of a step, and not the executor alone.
    #[serde(default)]
    pub signals_all: bool,
    /// Whether nodes share no directory with the submitting side.
    #[serde(default)]
    pub staged: bool,
    /// The container that the job runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// MPI plug-ins of `srun`, for MPI jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mpi: Vec<String>,
    /// The directory that the job was handed in from, as `sbatch` tells it to scripts; where the nodes do not
    /// see it, the one that the job works in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submit_dir: Option<String>,
    /// Which of Slurm's variables the command finds.
    #[serde(default)]
    pub environment: SlurmEnvironment,
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
