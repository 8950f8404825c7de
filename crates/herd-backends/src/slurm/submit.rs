//! Hands a job to Slurm: written down first, so that its driver finds everything; then `sbatch`; and what
//! `sbatch` may have done without an answer is looked for before anybody sends it again (I2).

use std::collections::BTreeMap;
use std::path::Path;

use herd_core::plan::{Plan, Unsupported};
use herd_core::spec::{Array, JobType, SlurmOptions};
use herd_jobdir::{Home, JobDir, JobDirError};
use herd_runtime::clock::Clock;
use herd_slurm::array::Chunk;
use herd_slurm::control;
use herd_slurm::facts::ClusterFacts;
use herd_slurm::job::Id;
use herd_slurm::sbatch::{self, Refusal, Submitted};
use herd_slurm::script::{Dependency, Part as ScriptPart, Request, job_name, script};
use herd_slurm::{sacct, squeue};
use thiserror::Error;

use super::cluster::Cluster;
use super::command::CommandError;
use super::entry::FLAG;
use super::record::{Part, Record, Site};
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

/// The arrays of Slurm that a job's tasks make; none for a job that is one job of Slurm.
fn chunks(plan: &Plan, facts: &ClusterFacts) -> Vec<Chunk> {
    match &plan.array {
        Some(array) if plan.tasks_apart => facts.chunks(array),
        Some(_) | None => Vec::new(),
    }
}

fn part(chunks: &[Chunk], number: usize, previous: Option<u32>) -> Option<ScriptPart<'_>> {
    let chunk = chunks.get(number)?;
    Some(ScriptPart {
        chunk,
        number,
        of: chunks.len(),
        previous: previous.filter(|_| chunk.after_previous),
    })
}

fn script_of(
    home: &Home,
    plan: &Plan,
    submission: &Submission<'_>,
    facts: &ClusterFacts,
    part: Option<&ScriptPart<'_>>,
) -> Result<String, Vec<Unsupported>> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let directory = text(&home.jobs_dir().join(plan.job.to_string()));
    let mut exec = vec![
        text(submission.program),
        "driver".to_owned(),
        FLAG.to_owned(),
        text(home.path()),
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
    let first = script_of(
        home,
        &plan,
        submission,
        facts,
        part(&chunks, 0, None).as_ref(),
    );
    let first = first.map_err(SubmitError::Unsupported)?;
    let mut site = site(&plan, submission.options, facts);
    if plan.job_type == JobType::Mpi {
        site.mpi = cluster.mpi_plugins().await;
    }
    let job = local::submit(home, submission.job_yaml, plan.clone(), submission.secrets)?.dir;
    job.write_script(&first)?;
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
    match handing.all(first, &chunks).await {
        Ok(record) => Ok((job, record)),
        Err(error) => {
            // Nothing runs under this id, and nobody is to wait for it.
            job.discard()?;
            Err(error)
        }
    }
}

/// A job on its way to Slurm.
struct Handing<'a> {
    home: &'a Home,
    plan: &'a Plan,
    submission: &'a Submission<'a>,
    cluster: &'a Cluster,
    facts: &'a ClusterFacts,
    job: &'a JobDir,
}

impl Handing<'_> {
    /// Hands over all parts of the job. Where Slurm refuses one, it has none afterwards: they are held
    /// until all are there.
    async fn all(&self, first: String, chunks: &[Chunk]) -> Result<Record, SubmitError> {
        let mut record = self.one(first, 0).await?;
        record
            .parts
            .extend(chunks.first().map(|chunk| of_chunk(chunk, record.job)));
        record.write(self.job)?;
        let Err(error) = self.others(chunks, &mut record).await else {
            return Ok(record);
        };
        let held: Vec<Id> = record.numbers().into_iter().map(Id::job).collect();
        // Why it was refused says more; held tasks never begin.
        drop(self.cluster.control(control::cancel_call(&held)).await);
        Err(error)
    }

    async fn others(&self, chunks: &[Chunk], record: &mut Record) -> Result<(), SubmitError> {
        if chunks.len() < 2 {
            return Ok(());
        }
        for number in 1..chunks.len() {
            self.next(chunks, number, record).await?;
        }
        let held: Vec<Id> = record.numbers().into_iter().map(Id::job).collect();
        for call in control::release_calls(&held) {
            self.cluster.control(call).await?;
        }
        Ok(())
    }

    async fn next(
        &self,
        chunks: &[Chunk],
        number: usize,
        record: &mut Record,
    ) -> Result<(), SubmitError> {
        let previous = record.parts.last().map(|part| part.job);
        let part = part(chunks, number, previous);
        let script = script_of(
            self.home,
            self.plan,
            self.submission,
            self.facts,
            part.as_ref(),
        );
        let script = script.map_err(SubmitError::Unsupported)?;
        let job = self.one(script, number).await?.job;
        record
            .parts
            .extend(chunks.get(number).map(|chunk| of_chunk(chunk, job)));
        record.write(self.job)?;
        Ok(())
    }

    async fn one(&self, script: String, number: usize) -> Result<Record, SubmitError> {
        let name = job_name(self.plan, number);
        let submitted = send(self.cluster, script, &name, self.submission.user).await?;
        Ok(Record {
            job: submitted.job,
            cluster: submitted.cluster,
            submitted_ms: Clock::start().now_ms(),
            parts: Vec::new(),
        })
    }
}

fn of_chunk(chunk: &Chunk, job: u32) -> Part {
    Part {
        job,
        offset: chunk.offset,
        tasks: Array {
            indices: chunk.array.indices.clone(),
            limit: None,
        },
    }
}

fn site(plan: &Plan, options: &SlurmOptions, facts: &ClusterFacts) -> Site {
    let partition = facts.partition(options.partition.as_deref());
    let gpus = plan.resources.gpus.filter(|gpus| *gpus > 0);
    let kind = plan.resources.gpu_type.as_deref();
    Site {
        gres: gpus.map(|gpus| facts.gres_request(partition, gpus, kind)),
        binds_cpus: facts.config.binds_cpus(),
        mpi: Vec::new(),
    }
}

async fn send(
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
                Some(found) => Ok(found),
                None => Err(error.into()),
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
    let found = find(cluster, name, user).await;
    found.ok_or_else(|| SubmitError::Unanswered {
        name: name.to_owned(),
        text,
    })
}

/// The job of that name, which no other has, in the queue or among those that ended just now.
async fn find(cluster: &Cluster, name: &str, user: &str) -> Option<Submitted> {
    let found = |job: u32| Submitted { job, cluster: None };
    if let Ok(text) = cluster.text(squeue::find_call(user, name)).await {
        if let Some(row) = squeue::parse(&text).iter().min_by_key(|row| row.raw) {
            return Some(found(row.id.job));
        }
    }
    let text = cluster
        .text(sacct::find_call(user, name, LOOK_BACK))
        .await
        .ok()?;
    let rows = sacct::parse(&text);
    rows.iter().map(|row| row.id.job).min().map(found)
}
