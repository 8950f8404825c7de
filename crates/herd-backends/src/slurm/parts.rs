//! A job on its way to Slurm, which may take an array in several parts only.

use herd_core::plan::Plan;
use herd_core::spec::Array;
use herd_jobdir::{Home, JobDir};
use herd_runtime::clock::Clock;
use herd_slurm::array::Chunk;
use herd_slurm::control;
use herd_slurm::facts::ClusterFacts;
use herd_slurm::job::Id;
use herd_slurm::script::{Part as ScriptPart, job_name};

use super::cluster::Cluster;
use super::record::{Part, Record};
use super::submit::{Submission, SubmitError, find, script_of, send};

/// The arrays of Slurm that a job's tasks make; none for a job that is one job of Slurm.
pub(super) fn chunks(plan: &Plan, facts: &ClusterFacts) -> Vec<Chunk> {
    match &plan.array {
        Some(array) if plan.tasks_apart => facts.chunks(array),
        Some(_) | None => Vec::new(),
    }
}

pub(super) fn part(
    chunks: &[Chunk],
    number: usize,
    previous: Option<u32>,
) -> Option<ScriptPart<'_>> {
    let chunk = chunks.get(number)?;
    Some(ScriptPart {
        chunk,
        number,
        of: chunks.len(),
        previous: previous.filter(|_| chunk.after_previous),
    })
}

/// A job that may have been handed over by somebody who did not live to write it down. Of one in several
/// parts the first is cancelled: the others may not be there, and it is held until they are.
pub async fn find_again(
    job: &JobDir,
    cluster: &Cluster,
    facts: &ClusterFacts,
    user: &str,
) -> Result<Option<Record>, SubmitError> {
    let Some(plan) = job.attempt(1).read_plan()? else {
        return Ok(None);
    };
    let Some(found) = find(cluster, &job_name(&plan, 0), user).await else {
        return Ok(None);
    };
    let chunks = chunks(&plan, facts);
    if chunks.len() > 1 {
        let held = [Id::job(found.job)];
        cluster.control(control::cancel_call(&held)).await?;
        return Ok(None);
    }
    let record = Record {
        job: found.job,
        cluster: found.cluster,
        submitted_ms: Clock::start().now_ms(),
        staged_to: None,
        parts: chunks
            .iter()
            .map(|chunk| of_chunk(chunk, found.job))
            .collect(),
    };
    record.write(job)?;
    Ok(Some(record))
}

/// A job on its way to Slurm.
pub(super) struct Handing<'a> {
    pub(super) home: &'a Home,
    pub(super) plan: &'a Plan,
    pub(super) submission: &'a Submission<'a>,
    pub(super) cluster: &'a Cluster,
    pub(super) facts: &'a ClusterFacts,
    pub(super) job: &'a JobDir,
}

impl Handing<'_> {
    /// Hands over all parts of the job. Where Slurm refuses one, it has none afterwards: they are held
    /// until all are there.
    pub(super) async fn all(&self, first: String, chunks: &[Chunk]) -> Result<Record, SubmitError> {
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
        // A user who wants it held lets it go.
        if self
            .submission
            .options
            .extra
            .iter()
            .any(|option| option == "--hold")
        {
            return Ok(());
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
            staged_to: self.submission.staged_to.map(str::to_owned),
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
