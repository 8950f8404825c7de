//! Hands a job to Slurm: written down first, so that its driver finds everything; then `sbatch`; and what
//! `sbatch` may have done without an answer is looked for before anybody sends it again (I2).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use herd_core::plan::{Plan, Unsupported};
use herd_core::spec::{JobType, SlurmOptions};
use herd_jobdir::{Home, JobDir, JobDirError};
use herd_slurm::facts::ClusterFacts;
use herd_slurm::sbatch::{self, Refusal, Submitted};
use herd_slurm::script::{Dependency, Part, Request, script};
use herd_slurm::{sacct, squeue, staging};
use thiserror::Error;

use super::cluster::Cluster;
use super::command::CommandError;
use super::container;
use super::entry::FLAG;
use super::parts::{Handing, chunks, part};
use super::record::{Record, Site};
use super::staging::bundle::{self, BundleError};
use crate::local::{self, SubmitError as WriteError};

/// How far back a job is looked for whose submission was not answered, seconds.
const LOOK_BACK: u64 = 600;

/// What besides the plan a submission needs.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    /// The job file, as the user wrote it.
    pub job_yaml: &'a [u8],
    /// Values of secrets.
    pub secrets: &'a BTreeMap<String, String>,
    /// The job's own words for Slurm.
    pub options: &'a SlurmOptions,
    /// Container image.
    pub image: Option<&'a str>,
    /// Jobs that have to end first.
    pub after: &'a [Dependency],
    /// The program of driver and executors, seen by the nodes.
    pub program: &'a Path,
    /// Name of the user whose jobs these are.
    pub user: &'a str,
    /// The job's directory on its nodes, where they share none with this side.
    pub staged_to: Option<&'a str>,
    /// The workdir that is taken along there.
    pub workdir: Option<&'a Path>,
    /// Where the user is, where the nodes see that.
    pub submit_dir: Option<&'a Path>,
}

/// Why Slurm has not got the job.
#[derive(Debug, Error)]
pub enum SubmitError {
    /// The cluster cannot honour it.
    #[error("the cluster cannot run it")]
    Unsupported(Vec<Unsupported>),
    /// The job could not be written down.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The job directory failed.
    #[error("could not keep the job's records")]
    Records(#[from] JobDirError),
    /// The workdir cannot be taken along.
    #[error("the nodes do not see {}, and it cannot be taken along", workdir.display())]
    Workdir {
        /// Which.
        workdir: PathBuf,
        /// Why.
        #[source]
        source: BundleError,
    },
    /// `sbatch` said no.
    #[error("sbatch refused the job: {text}")]
    Refused {
        /// What it is about.
        refusal: Refusal,
        /// In its own words.
        text: String,
    },
    /// `sbatch` could not be run, or has not answered.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Somebody has taken this process for gone.
    #[error("it took so long that the job was given up")]
    GivenUp,
    /// Neither an answer nor a job of that name.
    #[error("sbatch gave no answer, and Slurm has no job named {name}: {text}")]
    Unanswered {
        /// The name that was looked for.
        name: String,
        /// What sbatch said.
        text: String,
    },
}

/// The batch script, and of an array that Slurm takes in several parts all of them.
pub fn render(
    home: &Home,
    plan: &Plan,
    submission: &Submission<'_>,
    facts: &ClusterFacts,
) -> Result<Vec<String>, Vec<Unsupported>> {
    let chunks = chunks(plan, facts);
    let parts = (0..chunks.len().max(1)).map(|number| part(&chunks, number, None));
    parts
        .map(|part| script_of(home, plan, submission, facts, part.as_ref()))
        .collect()
}

pub(super) fn script_of(
    home: &Home,
    plan: &Plan,
    submission: &Submission<'_>,
    facts: &ClusterFacts,
    part: Option<&Part<'_>>,
) -> Result<String, Vec<Unsupported>> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (program, root) = match submission.staged_to {
        None => (text(submission.program), text(home.path())),
        Some(there) => (format!("{there}/{}", staging::PROGRAM), there.to_owned()),
    };
    let directory = format!("{root}/jobs/{}", plan.job);
    let mut exec = vec![
        program,
        "driver".to_owned(),
        FLAG.to_owned(),
        root,
        plan.job.to_string(),
    ];
    // Tells the driver that it is for one task, and which.
    exec.extend(part.map(|part| part.chunk.offset.to_string()));
    let request = Request {
        plan,
        options: submission.options,
        image: submission.image,
        directory: &directory,
        exclude: &[],
        after: submission.after,
        staged_to: submission.staged_to,
    };
    script(&request, facts, part, &exec)
}

/// Hands the job over. Where Slurm has not got it, nothing of it is left but what tells why.
pub async fn submit(
    home: &Home,
    plan: Plan,
    submission: &Submission<'_>,
    cluster: &Cluster,
    facts: &ClusterFacts,
) -> Result<(JobDir, Record), SubmitError> {
    let chunks = chunks(&plan, facts);
    let first = part(&chunks, 0, None);
    let script = script_of(home, &plan, submission, facts, first.as_ref());
    let script = script.map_err(SubmitError::Unsupported)?;
    let mut site = site(&plan, submission.options, facts);
    site.staged = submission.staged_to.is_some();
    let there = |path: &Path| path.to_string_lossy().into_owned();
    let submit_dir = submission.submit_dir.map(there);
    site.submit_dir = Some(submit_dir.unwrap_or_else(|| plan.workdir.clone()));
    site.image = container::of(submission.image, facts.images);
    if plan.job_type == JobType::Mpi {
        site.mpi = cluster.mpi_plugins().await;
    }
    let workdir = submission.workdir.map(Path::to_owned);
    let job = local::submit(home, submission.job_yaml, plan.clone(), submission.secrets)?.dir;
    if let Some(workdir) = workdir
        && let Err(error) = bundle::pack(&workdir, job.path())
    {
        job.discard()?;
        return Err(SubmitError::Workdir {
            workdir,
            source: error,
        });
    }
    job.write_script(&script)?;
    site.write(&job)?;
    if plan.tasks_apart {
        job.prepare_for_tasks()?;
    }
    let handing = Handing {
        home,
        plan: &plan,
        submission,
        cluster,
        facts,
        job: &job,
    };
    match handing.all(script, &chunks).await {
        Ok(record) => Ok((job, record)),
        Err(error) => {
            // Nothing runs under this id, and nobody is to wait for it.
            job.discard()?;
            Err(error)
        }
    }
}

fn site(plan: &Plan, options: &SlurmOptions, facts: &ClusterFacts) -> Site {
    let partition = facts.partition(options.partition.as_deref());
    let gpus = plan.resources.gpus.filter(|gpus| *gpus > 0);
    let kind = plan.resources.gpu_type.as_deref();
    Site {
        gres: gpus.map(|gpus| facts.gres_request(partition, gpus, kind)),
        binds_cpus: facts.config.binds_cpus(),
        signals_all: facts.config.proctrack() == Some("linuxproc"),
        staged: false,
        image: None,
        mpi: Vec::new(),
        submit_dir: None,
        environment: options.environment,
    }
}

pub(super) async fn send(
    cluster: &Cluster,
    script: String,
    name: &str,
    user: &str,
) -> Result<Submitted, SubmitError> {
    let answer = match cluster.submit(sbatch::submit_call(None), script).await {
        Ok(answer) => answer,
        // It may have been accepted before the time ran out.
        Err(error @ CommandError::TimedOut { .. }) => {
            return match find(cluster, name, user).await {
                Ok(Some(found)) => Ok(found),
                Ok(None) | Err(_) => Err(error.into()),
            };
        }
        Err(error) => return Err(error.into()),
    };
    if answer.end.is_success()
        && let Some(submitted) = sbatch::parse(&answer.out)
    {
        return Ok(submitted);
    }
    let (refusal, text) = sbatch::explain(&answer.err);
    let unclear = answer.end.is_success() || refusal == Refusal::Unavailable;
    if !unclear {
        return Err(SubmitError::Refused { refusal, text });
    }
    let found = find(cluster, name, user).await.ok().flatten();
    found.ok_or_else(|| SubmitError::Unanswered {
        name: name.to_owned(),
        text,
    })
}

/// The job of that name, which no other has, in the queue or among those that ended just now.
pub(super) async fn find(
    cluster: &Cluster,
    name: &str,
    user: &str,
) -> Result<Option<Submitted>, CommandError> {
    let found = |job: u32| Submitted {
        job,
        cluster: cluster.name.clone(),
    };
    let text = cluster.text(squeue::find_call(user, name)).await?;
    if let Some(row) = squeue::parse(&text).iter().min_by_key(|row| row.raw) {
        return Ok(Some(found(row.id.job)));
    }
    // A cluster may have no accounting.
    let ended = sacct::find_call(user, name, LOOK_BACK);
    let Ok(text) = cluster.text(ended).await else {
        return Ok(None);
    };
    let rows = sacct::parse(&text);
    Ok(rows.iter().map(|row| row.id.job).min().map(found))
}
