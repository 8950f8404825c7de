//! What a driver asks of Slurm while its job runs. Nothing of it is needed for the job to run: where Slurm
//! does not answer, that is an answer.

use std::time::Duration;

use herd_runtime::driver::Withdrawal;
use herd_slurm::time::Limit;

use super::allocation::SlurmRun;
use super::command::{self, CommandError};

/// Bound on one call; slurmctld may be busy.
const BOUND: Duration = Duration::from_secs(20);

/// Why Slurm is just ending the job.
pub(super) async fn why_ended(run: &SlurmRun) -> Result<Withdrawal, CommandError> {
    let text = scontrol(&["show", "job", &run.job]).await?;
    Ok(withdrawal(&text, run))
}

/// A job that will start again has its next start counted at once; of one that has reached its limit both
/// state and reason tell.
fn withdrawal(text: &str, run: &SlurmRun) -> Withdrawal {
    if restarts(text).is_some_and(|restarts| restarts > run.restarts) {
        return Withdrawal::Requeued;
    }
    if value(text, "Reason") == Some("TimeLimit") || value(text, "JobState") == Some("TIMEOUT") {
        let limit = value(text, "TimeLimit").and_then(Limit::parse);
        let seconds = limit.and_then(Limit::span).map_or(0, |span| span.ms / 1000);
        return Withdrawal::TimeLimit { seconds };
    }
    if value(text, "JobState") == Some("RUNNING") {
        return Withdrawal::Nobody;
    }
    Withdrawal::Asked
}

/// Has the job started again. Slurm ends this process soon after.
pub(super) async fn requeue(run: &SlurmRun) -> Result<(), CommandError> {
    scontrol(&["requeue", &run.job]).await.map(drop)
}

fn restarts(text: &str) -> Option<u32> {
    value(text, "Restarts")?.parse().ok()
}

/// A value of `scontrol show job`. Text of users may stand before it, but of herd's own jobs that is
/// a name without blanks.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let words = text
        .split_whitespace()
        .filter_map(|word| word.split_once('='));
    words
        .into_iter()
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

async fn scontrol(args: &[&str]) -> Result<String, CommandError> {
    let argv = ["scontrol"].iter().chain(args).map(Into::into).collect();
    let env = std::env::vars_os().collect();
    let answer = command::run(argv, env, Vec::new(), BOUND).await?;
    answer.success(&format!("scontrol {}", args.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_found_among_slurms_words() {
        let text = "JobId=2 JobName=t.sh\n   JobState=COMPLETING Reason=None\n   \
                    Requeue=1 Restarts=1 BatchFlag=1\n";
        assert_eq!(restarts(text), Some(1));
        assert_eq!(restarts("JobId=2"), None);
    }

    #[test]
    fn an_end_is_a_requeue_a_limit_or_a_wish() {
        let run = SlurmRun {
            job: "2".to_owned(),
            restarts: 0,
        };
        let why = |text: &str| withdrawal(text, &run);
        let limit = "JobState=COMPLETING Reason=TimeLimit Restarts=0 TimeLimit=00:01:00";
        assert_eq!(why(limit), Withdrawal::TimeLimit { seconds: 60 });
        let again = "JobState=COMPLETING Reason=None Restarts=1 TimeLimit=00:01:00";
        assert_eq!(why(again), Withdrawal::Requeued);
        let wish = "JobState=CANCELLED Reason=None Restarts=0 TimeLimit=UNLIMITED";
        assert_eq!(why(wish), Withdrawal::Asked);
        let nobody = "JobState=RUNNING Reason=None Restarts=0 TimeLimit=UNLIMITED";
        assert_eq!(why(nobody), Withdrawal::Nobody);
    }
}
