//! A submission on its way, for others to see; and what becomes of one whose process is gone. Nothing of it
//! may stay in the queue that nobody knows.

use std::time::Duration;

use herd_core::exit;
use herd_core::result::{JobResult, Rejection};
use herd_core::spec::Array;
use herd_core::state::{JobState, RejectionKind};
use herd_jobdir::{DriverInfo, JobDir, JobDirError, Liveness, apart};
use herd_slurm::array::Chunk;
use herd_slurm::control;
use herd_slurm::job::Id;
use herd_slurm::script::job_name;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::DURABILITY;
use super::allocation::SlurmRun;
use super::cluster::{Cluster, SUBMIT};
use super::command::CommandError;
use super::record::{Part, Record};
use super::submit::find;
use crate::attempts::once;
use crate::local::end_unstarted;

const FILE: &str = "slurm-submitting.json";

/// Says which of both holds, once: a submission and whoever takes it for gone may meet.
const DECISION: &str = "slurm-submitted.json";
/// Slurm has all arrays of the job: they may be released.
const COMPLETE: &str = "complete";
/// The job was given up before Slurm had all of it: nothing of it ever begins.
const BROKEN_OFF: &str = "broken-off";

/// A submission that is not seen from here counts as gone when it has made no step for this long: each
/// step is bounded by about two minutes.
const SILENCE: Duration = Duration::from_mins(10);

/// A job that is being handed to Slurm; `slurm-submitting.json`. It is there from before the first `sbatch`
/// until [`Record`] is there and everything may start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitting {
    /// Who does it.
    process: DriverInfo,
    /// When it last got on, milliseconds since the Unix epoch.
    at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    staged_to: Option<String>,
    /// The arrays that its tasks make.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shares: Vec<Share>,
    /// What `sbatch` has answered so far, in the order of the arrays.
    #[serde(default)]
    numbers: Vec<u32>,
    /// Whether the user wants it held.
    #[serde(default)]
    hold: bool,
}

/// An array of Slurm that may have no number yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Share {
    offset: u32,
    tasks: Array,
}

/// What became of a submission whose process is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakenUp {
    /// Slurm has all of it, and it goes on.
    Has(Record),
    /// Slurm has nothing of it that could begin.
    Nothing,
}

/// Why it could not be found out.
#[derive(Debug, Error)]
pub enum TakeUpError {
    /// Slurm gave no answer.
    #[error("cannot ask Slurm what it has of the job")]
    Command(#[from] CommandError),
    /// The job directory failed.
    #[error("could not keep the job's records")]
    Records(#[from] JobDirError),
}

/// How a submission ends that has got everything across.
pub(super) enum Claim {
    /// It may let everything start.
    Ours,
    /// Somebody has taken it for gone.
    GivenUp,
}

impl Submitting {
    pub(super) fn begin(
        cluster: &Cluster,
        staged_to: Option<&str>,
        chunks: &[Chunk],
        hold: bool,
        now_ms: u64,
    ) -> Self {
        let share = |chunk: &Chunk| Share {
            offset: chunk.offset,
            tasks: Array {
                indices: chunk.array.indices.clone(),
                limit: None,
            },
        };
        Self {
            process: DriverInfo::of_this_process(String::new()),
            at_ms: now_ms,
            cluster: cluster.name.clone(),
            staged_to: staged_to.map(str::to_owned),
            shares: chunks.iter().map(share).collect(),
            numbers: Vec::new(),
            hold,
        }
    }

    /// Reads it; nothing for a job that is not on its way.
    pub fn read(job: &JobDir) -> Result<Option<Self>, JobDirError> {
        job.read_backend(FILE)
    }

    pub(super) fn write(&self, job: &JobDir) -> Result<(), JobDirError> {
        job.write_backend_mark(FILE, self)
    }

    pub(super) fn remove(job: &JobDir) -> Result<(), JobDirError> {
        job.remove_backend(FILE)
    }

    /// Notes what `sbatch` has answered.
    pub(super) fn add(&mut self, number: u32, cluster: Option<String>, now_ms: u64) {
        self.numbers.push(number);
        self.cluster = cluster.or_else(|| self.cluster.take());
        self.at_ms = now_ms;
    }

    pub(super) fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    pub(super) fn ids(&self) -> Vec<Id> {
        self.numbers.iter().copied().map(Id::job).collect()
    }

    pub(super) fn is_held(&self) -> bool {
        self.hold
    }

    /// Whether its arrays are held until all are there.
    pub(super) fn is_several(&self) -> bool {
        self.shares.len() > 1
    }

    /// The record of it, where Slurm has anything.
    pub(super) fn record(&self) -> Option<Record> {
        let parts = self.shares.iter().zip(&self.numbers);
        let part = |(share, number): (&Share, &u32)| Part {
            job: *number,
            offset: share.offset,
            tasks: share.tasks.clone(),
        };
        Some(Record {
            job: *self.numbers.first()?,
            cluster: self.cluster.clone(),
            submitted_ms: self.at_ms,
            staged_to: self.staged_to.clone(),
            parts: parts.map(part).collect(),
        })
    }

    /// Whether whoever does it is gone, as far as can be told from here (I3).
    pub fn is_left(&self, now_ms: u64) -> bool {
        match self.process.liveness() {
            Liveness::Alive => false,
            Liveness::Dead => true,
            Liveness::Elsewhere => {
                Duration::from_millis(now_ms.saturating_sub(self.at_ms)) > SILENCE
            }
        }
    }

    /// Whether what it last asked of Slurm can still arrive there.
    pub fn may_arrive(&self, now_ms: u64) -> bool {
        Duration::from_millis(now_ms.saturating_sub(self.at_ms)) <= SUBMIT
    }

    /// Who does it, in words.
    pub fn by(&self) -> String {
        format!("process {} on {}", self.process.pid, self.process.host)
    }

    /// The cluster that gets it.
    pub fn on(&self) -> Cluster {
        Cluster::named(self.cluster.clone())
    }
}

/// The submission's own word that all is there.
pub(super) fn claim_complete(job: &JobDir) -> Result<Claim, JobDirError> {
    Ok(if job.decide(DECISION, COMPLETE)? == COMPLETE {
        Claim::Ours
    } else {
        Claim::GivenUp
    })
}

/// Ends what a submission has begun whose process is gone: where Slurm has all of it, it goes on; arrays of
/// which others are missing are cancelled, which have been held until then. It may be done by several at
/// once, and again.
pub async fn take_up(
    job: &JobDir,
    left: &Submitting,
    cluster: &Cluster,
    user: &str,
) -> Result<TakenUp, TakeUpError> {
    let Some(plan) = job.attempt(1).read_plan()? else {
        return Ok(TakenUp::Nothing);
    };
    let mut left = left.clone();
    let all = left.shares.len().max(1);
    // One may be there whose number nobody lived to write down; those after it were never sent.
    while left.numbers.len() < all {
        let name = job_name(&plan, left.numbers.len());
        match find(cluster, &name, user).await? {
            Some(found) => left.numbers.push(found.job),
            None => break,
        }
    }
    if left.is_several() {
        let complete = left.numbers.len() == all;
        let word = if complete { COMPLETE } else { BROKEN_OFF };
        if job.decide(DECISION, word)? != COMPLETE {
            if !left.numbers.is_empty() {
                cluster.control(control::cancel_call(&left.ids())).await?;
            }
            return Ok(TakenUp::Nothing);
        }
    } else if left.numbers.is_empty() {
        // The queue forgets jobs; who has taken the job, its records do not.
        let owner = job.attempt(1).read_owner()?;
        let run = owner.and_then(|owner| SlurmRun::parse(&owner));
        left.numbers.extend(run.map(|run| run.job));
    }
    let Some(record) = left.record() else {
        return Ok(TakenUp::Nothing);
    };
    record.write(job)?;
    if left.is_several() && !left.hold {
        for call in control::release_calls(&left.ids()) {
            cluster.control(call).await?;
        }
    }
    Submitting::remove(job)?;
    Ok(TakenUp::Has(record))
}

/// Ends a job of which Slurm has nothing that could begin. Should something of it arrive there all the same,
/// its driver finds the job ended (I2). Not where a driver has the job.
pub fn give_up(job: &JobDir, why: &str, now_ms: u64) -> Result<bool, JobDirError> {
    let cancelled = job.cancel_request()?;
    let rejection = Rejection {
        kind: RejectionKind::BackendRejected,
        detail: why.to_owned(),
    };
    let (state, exit_code) = match cancelled {
        Some(_) => (JobState::Cancelled, exit::CANCELLED),
        None => (JobState::Rejected, exit::HERD_FAILED),
    };
    let result = JobResult {
        state,
        rejection: cancelled.is_none().then_some(rejection),
        reason: cancelled.map(|by| format!("asked for by {by}")),
        exit_code,
        failure: None,
        attempts: 0,
        ended_ms: now_ms,
        tasks: None,
    };
    if apart::plan_of(job)?.is_some() {
        once(job.write_result(&result, DURABILITY))?;
        job.delete_secrets()?;
    } else if end_unstarted(job, result)?.is_none() {
        return Ok(false);
    }
    Submitting::remove(job)?;
    Ok(true)
}
