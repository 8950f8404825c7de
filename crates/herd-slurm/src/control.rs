//! What is done to a job in the queue: cancel, signal, hold, release, requeue.
//!
//! Slurm's signals are no way to ask the ranks for anything: which processes get one depends on the
//! site, and a cancelled step is killed at once. Only the batch script, which is the driver, is
//! signalled; it asks the ranks.

use crate::call::Call;
use crate::job::Id;

/// Signal by which the driver is told, ahead of a time limit or preemption, and by `herd` where the
/// driver cannot be reached.
pub const NOTICE: &str = "USR1";

/// Cancels jobs: CONT and TERM to everything, KILL after `KillWait`. Says nothing and ends with 0
/// when a number is unknown.
pub fn cancel_call(jobs: &[Id]) -> Call {
    Call::new("scancel", jobs.iter().map(Id::to_string))
}

/// Sends the notice to the batch script alone.
pub fn notice_call(job: Id) -> Call {
    let signal = format!("--signal={NOTICE}");
    Call::new("scancel", ["--batch", &signal, &job.to_string()])
}

fn scontrol(verb: &str, job: Id) -> Call {
    Call::new("scontrol", [verb, &job.to_string()])
}

/// Keeps a waiting job from starting. Ends with 1 when the number is unknown.
pub fn hold_call(job: Id) -> Call {
    scontrol("hold", job)
}

/// Lets a held job go.
pub fn release_call(job: Id) -> Call {
    scontrol("release", job)
}

/// Stops a running job and queues it again under its number. From inside the job it is answered by
/// SIGTERM within 10 ms, so everything has to be written before.
pub fn requeue_call(job: Id) -> Call {
    scontrol("requeue", job)
}

/// The same, held.
pub fn requeue_hold_call(job: Id) -> Call {
    scontrol("requeuehold", job)
}

/// Keeps a waiting job off these nodes (none: off no node), in Slurm's short form.
pub fn exclude_call(job: Id, nodes: &str) -> Call {
    let (job, nodes) = (format!("JobId={job}"), format!("ExcNodeList={nodes}"));
    Call::new("scontrol", ["update", &job, &nodes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_batch_script_is_signalled() {
        let task = Id {
            job: 7,
            task: Some(3),
        };
        assert_eq!(notice_call(task).args, ["--batch", "--signal=USR1", "7_3"]);
        assert_eq!(cancel_call(&[Id::job(7), task]).args, ["7", "7_3"]);
        assert_eq!(requeue_call(task).args, ["requeue", "7_3"]);
        let exclude = exclude_call(Id::job(7), "n[1-2]");
        assert_eq!(exclude.args, ["update", "JobId=7", "ExcNodeList=n[1-2]"]);
    }
}
