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

/// Cancels what waits of these jobs and arrays, and leaves alone what runs.
pub fn cancel_waiting_call(jobs: &[u32]) -> Call {
    let jobs = jobs.iter().map(u32::to_string);
    let fixed = "--state=PENDING".to_owned();
    Call::new("scancel", std::iter::once(fixed).chain(jobs))
}

/// Tasks and jobs in one call: the kernel bounds a command line, and Slurm sends each its own request.
const MAX_NOTICES: usize = 1000;

/// Sends the notice to the batch scripts alone. Of an array of which a part waits, 22.05 sends it and says
/// all the same that this cannot be done now, and `scancel` tries again for half a minute.
pub fn notice_calls(jobs: &[Id]) -> Vec<Call> {
    let calls = jobs.chunks(MAX_NOTICES).map(|jobs| {
        let fixed = ["--batch".to_owned(), format!("--signal={NOTICE}")];
        Call::new(
            "scancel",
            fixed.into_iter().chain(jobs.iter().map(Id::to_string)),
        )
    });
    calls.collect()
}

/// Numbers in one argument: the kernel takes 128 KiB.
const MAX_CONTROLLED: usize = 5000;

fn scontrol(verb: &str, jobs: &[Id]) -> Vec<Call> {
    let call = |jobs: &[Id]| {
        let jobs: Vec<String> = jobs.iter().map(Id::to_string).collect();
        Call::new("scontrol", [verb, &jobs.join(",")])
    };
    jobs.chunks(MAX_CONTROLLED).map(call).collect()
}

/// Keeps waiting jobs from starting. Ends with 1 when a number is unknown.
pub fn hold_calls(jobs: &[Id]) -> Vec<Call> {
    scontrol("hold", jobs)
}

/// Lets held jobs go.
pub fn release_calls(jobs: &[Id]) -> Vec<Call> {
    scontrol("release", jobs)
}

/// [`requeue_calls`] of one.
pub fn requeue_call(job: Id) -> Call {
    Call::new("scontrol", ["requeue", &job.to_string()])
}

/// Stops running jobs and queues them again under their numbers. From inside a job it is answered by
/// SIGTERM within 10 ms, so everything has to be written before. The number of an array would queue again
/// what has ended of it, too.
pub fn requeue_calls(jobs: &[Id]) -> Vec<Call> {
    scontrol("requeue", jobs)
}

/// The same, held.
pub fn requeue_hold_calls(jobs: &[Id]) -> Vec<Call> {
    scontrol("requeuehold", jobs)
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
        let notice = &notice_calls(&[Id::job(7), task])[0];
        assert_eq!(notice.args, ["--batch", "--signal=USR1", "7", "7_3"]);
        assert_eq!(
            cancel_waiting_call(&[7, 8]).args,
            ["--state=PENDING", "7", "8"]
        );
        assert_eq!(
            release_calls(&[Id::job(7), task])[0].args,
            ["release", "7,7_3"]
        );
        assert_eq!(cancel_call(&[Id::job(7), task]).args, ["7", "7_3"]);
        assert_eq!(requeue_calls(&[task])[0].args, ["requeue", "7_3"]);
        let exclude = exclude_call(Id::job(7), "n[1-2]");
        assert_eq!(exclude.args, ["update", "JobId=7", "ExcNodeList=n[1-2]"]);
    }
}
