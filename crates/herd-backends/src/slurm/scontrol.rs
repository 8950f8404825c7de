//! What a driver asks of Slurm while its job runs. Nothing of it is needed for the job to run: where Slurm
//! does not answer, that is an answer.

use std::time::Duration;

use super::allocation::SlurmRun;
use super::command::{self, CommandError};

/// Bound on one call; slurmctld may be busy.
const BOUND: Duration = Duration::from_secs(20);

/// Whether Slurm will start the job again that it is just ending: it counts the next start at once.
pub(super) async fn is_requeued(run: &SlurmRun) -> Result<bool, CommandError> {
    let text = scontrol(&["show", "job", &run.job]).await?;
    Ok(restarts(&text).is_some_and(|restarts| restarts > run.restarts))
}

/// Has the job started again. Slurm ends this process soon after.
pub(super) async fn requeue(run: &SlurmRun) -> Result<(), CommandError> {
    scontrol(&["requeue", &run.job]).await.map(drop)
}

/// `Restarts=` of `scontrol show job`. Text of users may stand before it, but of herd's own jobs that is
/// a name without blanks.
fn restarts(text: &str) -> Option<u32> {
    let words = text.split_whitespace();
    let mut found = words.filter_map(|word| word.strip_prefix("Restarts="));
    found.next()?.parse().ok()
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
}
