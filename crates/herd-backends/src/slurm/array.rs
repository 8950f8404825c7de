//! Jobs whose tasks are those of Slurm's arrays: what Slurm says of each, and their end where no driver
//! is left to write it.

use std::collections::{BTreeMap, BTreeSet};

use herd_core::plan::Plan;
use herd_core::result::JobResult;
use herd_jobdir::{JobDir, JobDirError, apart};
use herd_slurm::control;
use herd_slurm::job::Id;
use herd_slurm::outcome::{Condition, End};

use super::DURABILITY;
use super::allocation::SlurmRun;
use super::cluster::Cluster;
use super::command::CommandError;
use super::observe::{Asked, ObserveError, View, Views, ended, observe};
use super::record::{Part, Record};
use crate::attempts::once;

/// What Slurm says of a job's open tasks, by their indices in the job file.
pub fn tell(asked: &Asked, views: &Views) -> BTreeMap<u32, View> {
    let record = &asked.record;
    let rests: BTreeMap<u32, View> = record
        .parts
        .iter()
        .filter_map(|part| Some((part.job, rest(part, views)?)))
        .collect();
    let of = |index: &u32| {
        let id = record.task(*index)?;
        let view = views.get(&id).or_else(|| rests.get(&id.job))?;
        Some((*index, view.clone()))
    };
    asked.open.iter().filter_map(of).collect()
}

/// The end of an array's waiting rest, where there is one. The array's own number is that of what has not
/// begun, at last of its last task: when that has ended, nothing of the array ever begins any more. Slurm
/// keeps no other trace of tasks that were cancelled while they waited.
fn rest(part: &Part, views: &Views) -> Option<View> {
    let all = views.range(Id::job(part.job)..Id::job(part.job.saturating_add(1)));
    let mut found: Option<&View> = None;
    for (_, view) in all.filter(|(_, view)| view.raw == part.job) {
        if !matches!(view.condition, Condition::Ended(_)) {
            return None;
        }
        found = Some(view);
    }
    found.map(|view| View {
        id: Id::job(part.job),
        condition: Condition::Ended(End::Cancelled),
        ..view.clone()
    })
}

/// Ends tasks that have ended in Slurm and whose drivers have written no result, and the job where that
/// was the last of them. Called when the job directory has been looked at after the answer. Each file is
/// written once, and the first writer's content stands.
pub fn settle(
    job: &JobDir,
    plan: &Plan,
    tasks: &BTreeMap<u32, View>,
    now_ms: u64,
) -> Result<Option<JobResult>, ObserveError> {
    let cancelled = job.cancel_request()?.is_some();
    let mut never = BTreeSet::new();
    for (&index, view) in tasks {
        let Condition::Ended(end) = view.condition else {
            continue;
        };
        let task = job.task(index);
        if task.read_result()?.is_some() {
            continue;
        }
        match owner(&task)? {
            // A driver that was ended before it could look found the request, or would have.
            None if cancelled || end == End::Cancelled => {
                never.insert(index);
                continue;
            }
            // Another run of Slurm has taken the task (I2), or this tells nothing of it.
            Some(run) if run.job != view.raw => continue,
            Some(_) | None => {}
        }
        let result = ended(&task, end, view, now_ms)?;
        task.make()?;
        once(task.write_result(&result, DURABILITY))?;
    }
    Ok(apart::finish(job, plan, &never, now_ms, DURABILITY)?)
}

/// The run that has taken the newest attempt at a task that somebody has.
fn owner(task: &JobDir) -> Result<Option<SlurmRun>, JobDirError> {
    let Some(latest) = task.latest_attempt()? else {
        return Ok(None);
    };
    let owner = match latest.read_owner()? {
        Some(owner) => Some(owner),
        // The next attempt is written down before anybody has it.
        None if latest.number() > 1 => task.attempt(latest.number() - 1).read_owner()?,
        None => None,
    };
    Ok(owner.and_then(|owner| SlurmRun::parse(&owner)))
}

/// Passes the request for the end of all tasks on, however many: what waits is cancelled, and the drivers of
/// those that run are told to look at the request, which gives the ranks their grace.
pub(super) async fn cancel(record: &Record, cluster: &Cluster) -> Result<(), CommandError> {
    let numbers = record.numbers();
    cluster
        .control(control::cancel_waiting_call(&numbers))
        .await?;
    let asked = Asked {
        record: record.clone(),
        open: Vec::new(),
    };
    let views = observe(cluster, &[asked]).await?;
    let running: Vec<Id> = views
        .values()
        .filter(|view| view.condition == Condition::Running)
        .map(|view| view.id)
        .collect();
    for call in control::notice_calls(&running) {
        // One that ended meanwhile makes it fail.
        cluster.ask(call).await?;
    }
    Ok(())
}

/// Numbers and ranges of tasks as Slurm's commands take them: those that these views allow.
pub fn select(tasks: &BTreeMap<u32, View>, wanted: impl Fn(Condition) -> bool) -> Vec<Id> {
    let chosen = tasks.values().filter(|view| wanted(view.condition));
    chosen.map(|view| view.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use herd_core::spec::Array;
    use herd_slurm::reason::Reason;

    fn view(id: Id, raw: u32, condition: Condition) -> View {
        View {
            id,
            raw,
            condition,
            reason: Reason::parse(""),
            start: None,
            node_list: None,
            cancelled_by: None,
        }
    }

    fn asked(open: &[u32]) -> Asked {
        let part = |job, offset, tasks: &str| Part {
            job,
            offset,
            tasks: tasks.parse::<Array>().unwrap(),
        };
        Asked {
            record: Record {
                job: 28,
                cluster: None,
                submitted_ms: 0,
                staged_to: None,
                parts: vec![part(28, 0, "0-9"), part(40, 10, "0-4")],
            },
            open: open.to_vec(),
        }
    }

    fn task(job: u32, task: u32) -> Id {
        Id {
            job,
            task: Some(task),
        }
    }

    #[test]
    fn tasks_are_told_by_the_indices_of_the_job_file() {
        let running = view(task(40, 2), 44, Condition::Running);
        let views = Views::from([(running.id, running.clone())]);
        let told = tell(&asked(&[3, 12]), &views);
        assert_eq!(told, BTreeMap::from([(12, running)]));
    }

    #[test]
    fn i3_a_task_without_a_trace_is_over_only_when_the_rest_of_its_array_is() {
        // Task 5 was cancelled while it waited.
        let pending = Condition::Pending {
            held: false,
            again: false,
        };
        let done = Condition::Ended(End::Completed);
        let open = asked(&[5, 9]);
        let mut views = Views::new();
        views.insert(task(28, 8), view(task(28, 8), 37, done));
        assert!(tell(&open, &views).is_empty());
        views.insert(task(28, 9), view(task(28, 9), 28, pending));
        assert_eq!(tell(&open, &views).keys().collect::<Vec<_>>(), [&9]);
        views.insert(task(28, 9), view(task(28, 9), 28, done));
        let told = tell(&open, &views);
        assert_eq!(told[&5].condition, Condition::Ended(End::Cancelled));
        assert_eq!(told[&9].condition, done);
        // The rest of another part says nothing of it.
        views.clear();
        views.insert(Id::job(40), view(Id::job(40), 40, done));
        assert!(tell(&open, &views).is_empty());
    }
}
