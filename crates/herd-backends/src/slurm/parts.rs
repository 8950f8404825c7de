//! A job on its way to Slurm, which may take an array in several parts only.

use herd_core::plan::Plan;
use herd_jobdir::{Home, JobDir};
use herd_runtime::clock::Clock;
use herd_slurm::array::Chunk;
use herd_slurm::control;
use herd_slurm::facts::ClusterFacts;
use herd_slurm::script::{Part as ScriptPart, job_name};

use super::cluster::Cluster;
use super::record::Record;
use super::submit::{Submission, SubmitError, script_of, send};
use super::submitting::{self, Claim, Submitting};

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
        let extra = &self.submission.options.extra;
        let hold = extra.iter().any(|option| option == "--hold");
        let staged_to = self.submission.staged_to;
        let now_ms = Clock::start().now_ms();
        let mut on_its_way = Submitting::begin(self.cluster, staged_to, chunks, hold, now_ms);
        // Whatever comes of it, somebody will know of it.
        on_its_way.write(self.job)?;
        let handed = self.each(first, chunks, &mut on_its_way).await;
        if handed.is_err() && !on_its_way.numbers().is_empty() {
            let call = control::cancel_call(&on_its_way.ids());
            // Why it was refused says more; held tasks never begin.
            drop(self.cluster.control(call).await);
        }
        handed
    }

    async fn each(
        &self,
        first: String,
        chunks: &[Chunk],
        on_its_way: &mut Submitting,
    ) -> Result<Record, SubmitError> {
        self.one(first, 0, on_its_way).await?;
        for number in 1..chunks.len() {
            on_its_way.write(self.job)?;
            let previous = on_its_way.numbers().last().copied();
            let part = part(chunks, number, previous);
            let (home, plan, submission) = (self.home, self.plan, self.submission);
            let script = script_of(home, plan, submission, self.facts, part.as_ref());
            let script = script.map_err(SubmitError::Unsupported)?;
            self.one(script, number, on_its_way).await?;
        }
        let record = on_its_way.record().ok_or(SubmitError::GivenUp)?;
        if on_its_way.is_several() {
            on_its_way.write(self.job)?;
            match submitting::claim_complete(self.job)? {
                Claim::Ours => {}
                Claim::GivenUp => return Err(SubmitError::GivenUp),
            }
        }
        record.write(self.job)?;
        // A user who wants it held lets it go.
        if on_its_way.is_several() && !on_its_way.is_held() {
            for call in control::release_calls(&on_its_way.ids()) {
                self.cluster.control(call).await?;
            }
        }
        Submitting::remove(self.job)?;
        if self.job.cancel_request()?.is_some() {
            // Asked for meanwhile; whoever looks at the job asks again.
            let call = control::cancel_waiting_call(&record.numbers());
            drop(self.cluster.control(call).await);
        }
        Ok(record)
    }

    async fn one(
        &self,
        script: String,
        number: usize,
        on_its_way: &mut Submitting,
    ) -> Result<(), SubmitError> {
        let name = job_name(self.plan, number);
        let submitted = send(self.cluster, script, &name, self.submission.user).await?;
        let now_ms = Clock::start().now_ms();
        on_its_way.add(submitted.job, submitted.cluster, now_ms);
        Ok(())
    }
}
