//! What a driver asks of Slurm while its job runs. Nothing of it is needed for the job to run: where Slurm
//! does not answer, that is an answer.

use std::time::Duration;

use herd_core::exit::ProcessEnd;
use herd_runtime::driver::Withdrawal;
use herd_slurm::control;
use herd_slurm::job::{self, Id, Shown};
use herd_slurm::sbatch;
use herd_slurm::state::State;
use herd_slurm::time::Limit;
use tokio::time::{Instant, sleep};

use super::allocation::SlurmRun;
use super::cluster::{Cluster, ClusterError};
use super::command::CommandError;

/// How long a controller that does not answer is waited for before a job is not tried again.
const REQUEUE_BOUND: Duration = Duration::from_mins(5);
/// Pause between two times of asking it.
const REQUEUE_PAUSE: Duration = Duration::from_secs(5);

/// Why Slurm is just ending the job.
pub(super) async fn why_ended(id: Id, run: &SlurmRun) -> Result<Withdrawal, ClusterError> {
    let text = Cluster::default().text(job::show_call(id)).await?;
    let shown = job::parse(&text).map_err(|_other| ClusterError::Output {
        command: "scontrol show job",
    })?;
    Ok(withdrawal(&shown, run))
}

/// Whether Slurm has announced that it preempts the job, and how long is left until it does, where Slurm
/// says that.
pub(super) async fn preemption(id: Id) -> Result<Option<Preemption>, ClusterError> {
    let text = Cluster::default().text(job::show_call(id)).await?;
    let shown = job::parse(&text).map_err(|_other| ClusterError::Output {
        command: "scontrol show job",
    })?;
    Ok(announced(&shown))
}

/// Whether this run of the job goes on, as far as Slurm is concerned.
pub(super) async fn goes_on(id: Id, run: &SlurmRun) -> bool {
    let text = Cluster::default().text(job::show_call(id)).await;
    let shown = text.ok().and_then(|text| job::parse(&text).ok());
    shown.is_some_and(|shown| shown.state == State::Running && shown.restarts == run.restarts)
}

/// A preemption that was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preemption {
    /// How long it leaves, seconds.
    pub(super) seconds: Option<u64>,
}

fn announced(shown: &Shown) -> Option<Preemption> {
    let since = shown.preempted.filter(|_| shown.state == State::Running)?;
    let seconds = shown.end.map(|end| end.0.saturating_sub(since.0));
    Some(Preemption { seconds })
}

/// A job that will start again has its next start counted at once; of one that has reached its limit both
/// state and reason tell.
fn withdrawal(shown: &Shown, run: &SlurmRun) -> Withdrawal {
    if shown.restarts > run.restarts {
        return Withdrawal::Requeued;
    }
    if shown.reason.code() == "TimeLimit" || shown.state == State::Timeout {
        let limit = shown.limit.and_then(Limit::span);
        let seconds = limit.map_or(0, |span| span.ms / 1000);
        return Withdrawal::TimeLimit { seconds };
    }
    if shown.state == State::Running && shown.preempted.is_some() {
        // Without a signal to the batch script Slurm asks the steps to end when the grace begins.
        return Withdrawal::Requeued;
    }
    if shown.state == State::Running {
        return Withdrawal::Nobody;
    }
    Withdrawal::Asked
}

/// Has the job started again. Slurm ends this process soon after, and `scontrol` with it, now and then
/// before that has ended. A controller that is not there just now is waited for.
pub(super) async fn requeue(id: Id) -> Result<(), CommandError> {
    let started = Instant::now();
    loop {
        let call = control::requeue_call(id);
        let asked = Cluster::default().control(call).await;
        let absent = match &asked {
            Err(CommandError::Failed {
                end: ProcessEnd::Signaled(_),
                ..
            }) => return Ok(()),
            Err(CommandError::TimedOut { .. }) => true,
            Err(CommandError::Failed { text, .. }) => sbatch::is_unavailable(text),
            Ok(()) | Err(_) => false,
        };
        if !absent || started.elapsed() > REQUEUE_BOUND {
            return asked;
        }
        sleep(REQUEUE_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `scontrol show job` that are read.
    fn why(state: &str, restarts: &str, limit: &str) -> Withdrawal {
        let text = format!(
            "JobId=2 JobName=t.sh\n   {state}\n   Requeue=1 {restarts} BatchFlag=1\n   \
             RunTime=00:00:30 {limit} TimeMin=N/A\n"
        );
        let run = SlurmRun {
            job: 2,
            restarts: 0,
        };
        withdrawal(&job::parse(&text).unwrap(), &run)
    }

    #[test]
    fn a_notice_is_of_a_preemption_or_of_a_time_limit() {
        let of = |end: &str, since: &str| {
            let text = format!(
                "JobId=2 JobName=t.sh\n   JobState=RUNNING Reason=None\n   StartTime=100 EndTime={end}\n   \
                 PreemptEligibleTime=100 PreemptTime={since}\n"
            );
            announced(&job::parse(&text).unwrap())
        };
        assert_eq!(of("160", "None"), None);
        assert_eq!(of("160", "145"), Some(Preemption { seconds: Some(15) }));
        assert_eq!(of("Unknown", "145"), Some(Preemption { seconds: None }));
    }

    #[test]
    fn an_end_is_a_requeue_a_limit_or_a_wish() {
        assert_eq!(
            why(
                "JobState=COMPLETING Reason=TimeLimit",
                "Restarts=0",
                "TimeLimit=00:01:00"
            ),
            Withdrawal::TimeLimit { seconds: 60 }
        );
        assert_eq!(
            why(
                "JobState=COMPLETING Reason=None",
                "Restarts=1",
                "TimeLimit=00:01:00"
            ),
            Withdrawal::Requeued
        );
        assert_eq!(
            why(
                "JobState=CANCELLED Reason=None",
                "Restarts=0",
                "TimeLimit=UNLIMITED"
            ),
            Withdrawal::Asked
        );
        assert_eq!(
            why(
                "JobState=RUNNING Reason=None",
                "Restarts=0",
                "TimeLimit=UNLIMITED"
            ),
            Withdrawal::Nobody
        );
        assert_eq!(
            why(
                "JobState=RUNNING Reason=None\n   PreemptEligibleTime=100 PreemptTime=160",
                "Restarts=0",
                "TimeLimit=UNLIMITED"
            ),
            Withdrawal::Requeued
        );
    }
}
