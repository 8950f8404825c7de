//! What a driver asks of Slurm while its job runs. Nothing of it is needed for the job to run: where Slurm
//! does not answer, that is an answer.

use std::time::Duration;

use herd_core::exit::ProcessEnd;
use herd_jobdir::JobDir;
use herd_runtime::clock::Clock;
use herd_runtime::driver::{Cause, Withdrawal};
use herd_slurm::config::{self, Config, GraceOf};
use herd_slurm::job::{self, Id, Shown};
use herd_slurm::partition::{self, Partition};
use herd_slurm::state::State;
use herd_slurm::time::Limit;
use herd_slurm::{accounting, control, sacct, sbatch};
use tokio::time::{Instant, sleep, timeout};

use super::allocation::SlurmRun;
use super::cluster::{Cluster, ClusterError};
use super::command::CommandError;
use super::observe::CANCELLED_IN_SLURM;

/// How long a controller that does not answer is waited for before a job is not tried again.
const REQUEUE_BOUND: Duration = Duration::from_mins(5);
/// Pause between two times of asking it.
const REQUEUE_PAUSE: Duration = Duration::from_secs(5);

/// How long more is asked of Slurm than what has to be known.
const MORE_BOUND: Duration = Duration::from_secs(2);

/// How often a question is asked again that was ended with the job.
const ASKS: u32 = 5;
/// Pause between two such questions.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Why Slurm is just ending the job: what Slurm says, and which command of herd was the cause.
pub(super) async fn why_ended(
    job: &JobDir,
    id: Id,
    run: &SlurmRun,
) -> Result<Withdrawal, ClusterError> {
    let mut asked = 0;
    // Slurm signals every process of the job, one after the other, and so it may be that of the question.
    let shown = loop {
        asked += 1;
        match show(id).await {
            Err(ClusterError::Command(CommandError::Failed {
                end: ProcessEnd::Signaled(_),
                ..
            })) if asked < ASKS => sleep(ASK_AGAIN).await,
            answer => break answer?,
        }
    };
    // What cannot be read leaves what Slurm says.
    let cancelled = job.cancel_request().unwrap_or_default();
    let requeued = job.requeue_request(Clock::start().now_ms());
    let requeued = requeued.unwrap_or_default();
    Ok(withdrawal(&shown, run, cancelled, requeued))
}

/// Whether Slurm has announced that it preempts the job, and how long is left until it does, where Slurm
/// says that.
pub(super) async fn preemption(id: Id) -> Result<Option<Preemption>, ClusterError> {
    let shown = show(id).await?;
    let mut announced = announced(&shown);
    if let Some(preemption) = &mut announced
        && preemption.seconds.is_none()
    {
        // The ranks are to be told soon, whatever else is known.
        let grace = timeout(MORE_BOUND, grace(&shown)).await;
        preemption.seconds = grace.ok().flatten();
    }
    Ok(announced)
}

/// The grace that is set for the job: Slurm does not say when one without a time limit ends.
async fn grace(shown: &Shown) -> Option<u64> {
    let cluster = Cluster::default();
    let config = Config::parse(&cluster.text(config::call()).await.ok()?);
    let grace = match config.grace_of()? {
        GraceOf::Qos => {
            let all = cluster.text(accounting::qos_call()).await.ok()?;
            let mut all = accounting::parse_qos(&all).into_iter();
            all.find(|qos| Some(&qos.name) == shown.qos.as_ref())?.grace
        }
        GraceOf::Partition => {
            let all = cluster.text(partition::call()).await.ok()?;
            let mut all = partition::parse(&all).into_iter();
            let its = |partition: &Partition| Some(&partition.name) == shown.partition.as_ref();
            all.find(its)?.grace
        }
    };
    Some(grace.ms / 1000).filter(|seconds| *seconds > 0)
}

/// Who cancelled the job, where there is accounting that knows it by now.
pub(super) async fn cancelled_by(id: Id) -> Option<u32> {
    let cluster = Cluster::default();
    let rows = cluster.text(sacct::job_calls(&[id.job]).pop()?);
    let rows = timeout(MORE_BOUND, rows).await.ok()?.ok()?;
    let rows = sacct::parse(&rows);
    sacct::latest(&rows).get(&id)?.cancelled_by
}

/// Whether this run of the job goes on, as far as Slurm is concerned.
pub(super) async fn goes_on(id: Id, run: &SlurmRun) -> bool {
    let shown = show(id).await;
    shown.is_ok_and(|shown| shown.state == State::Running && shown.restarts == run.restarts)
}

/// What Slurm says of the job that this process is in.
async fn show(id: Id) -> Result<Shown, ClusterError> {
    let text = Cluster::default().text(job::show_call(id)).await?;
    job::parse(&text).map_err(|_other| ClusterError::Output {
        command: "scontrol show job",
    })
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
fn withdrawal(
    shown: &Shown,
    run: &SlurmRun,
    cancelled: Option<String>,
    requeued: Option<String>,
) -> Withdrawal {
    let slurm = |why: &str| Cause {
        by: "Slurm".to_owned(),
        why: why.to_owned(),
    };
    if shown.restarts > run.restarts {
        return Withdrawal::Requeued(match requeued {
            _ if shown.preempted.is_some() => slurm("preempted in Slurm"),
            Some(by) => Cause {
                why: format!("requeued by {by}"),
                by,
            },
            // A preemption without grace leaves no other trace.
            None => slurm("requeued in Slurm, by somebody or by a preemption"),
        });
    }
    if shown.reason.code() == "TimeLimit" || shown.state == State::Timeout {
        let limit = shown.limit.and_then(Limit::span);
        let seconds = limit.map_or(0, |span| span.ms / 1000);
        return Withdrawal::TimeLimit { seconds };
    }
    if shown.state == State::Running && shown.preempted.is_some() {
        // Without a signal to the batch script Slurm asks the steps to end when the grace begins.
        return Withdrawal::Requeued(slurm("preempted in Slurm"));
    }
    if shown.state == State::Running {
        return Withdrawal::Nobody;
    }
    Withdrawal::Asked(match cancelled {
        Some(by) => Cause {
            why: format!("asked for by {by}"),
            by,
        },
        None => slurm(CANCELLED_IN_SLURM),
    })
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
        asked(state, restarts, limit, None)
    }

    fn asked(state: &str, restarts: &str, limit: &str, by: Option<&str>) -> Withdrawal {
        let text = format!(
            "JobId=2 JobName=t.sh\n   {state}\n   Requeue=1 {restarts} BatchFlag=1\n   \
             RunTime=00:00:30 {limit} TimeMin=N/A\n   PreemptEligibleTime=17 PreemptTime=None\n"
        );
        let run = SlurmRun {
            job: 2,
            restarts: 0,
        };
        let by = by.map(str::to_owned);
        withdrawal(&job::parse(&text).unwrap(), &run, by.clone(), by)
    }

    fn cause(by: &str, why: &str) -> Cause {
        Cause {
            by: by.to_owned(),
            why: why.to_owned(),
        }
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
        let run = SlurmRun {
            job: 2,
            restarts: 0,
        };
        let text = "JobId=2 JobName=t\n   JobState=RUNNING Reason=None\n   PreemptEligibleTime=1 PreemptTime=9\n";
        let shown = job::parse(text).unwrap();
        let preempted = cause("Slurm", "preempted in Slurm");
        assert_eq!(
            withdrawal(&shown, &run, None, None),
            Withdrawal::Requeued(preempted)
        );
    }

    #[test]
    fn an_end_is_a_requeue_a_limit_or_a_wish() {
        let (one, unlimited) = ("TimeLimit=00:01:00", "TimeLimit=UNLIMITED");
        assert_eq!(
            why("JobState=COMPLETING Reason=TimeLimit", "Restarts=0", one),
            Withdrawal::TimeLimit { seconds: 60 }
        );
        let requeued = "requeued in Slurm, by somebody or by a preemption";
        assert_eq!(
            why("JobState=COMPLETING Reason=None", "Restarts=1", one),
            Withdrawal::Requeued(cause("Slurm", requeued))
        );
        assert_eq!(
            why("JobState=CANCELLED Reason=None", "Restarts=0", unlimited),
            Withdrawal::Asked(cause("Slurm", "cancelled in Slurm"))
        );
        assert_eq!(
            why("JobState=RUNNING Reason=None", "Restarts=0", unlimited),
            Withdrawal::Nobody
        );
    }

    #[test]
    fn a_command_of_herd_is_named_as_the_cause() {
        let (state, limit) = ("JobState=COMPLETING Reason=None", "TimeLimit=UNLIMITED");
        assert_eq!(
            asked(state, "Restarts=1", limit, Some("herd requeue")),
            Withdrawal::Requeued(cause("herd requeue", "requeued by herd requeue"))
        );
        assert_eq!(
            asked(state, "Restarts=0", limit, Some("herd cancel")),
            Withdrawal::Asked(cause("herd cancel", "asked for by herd cancel"))
        );
    }
}
