//! Which tasks of an array stand where: what a person needs to run some of them again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use herd_core::result::{Failure, TaskCounts, TaskResult};
use herd_core::spec::Array;

use super::shown::TaskOverview;
use crate::apart;
use crate::error::JobDirError;
use crate::job::JobDir;

/// Where each task stands; nothing for a job that is no array.
pub fn task_overview(job: &JobDir) -> Result<Option<TaskOverview>, JobDirError> {
    let result = job.read_result()?;
    let over = result.is_some();
    // Every task of a job that its driver ended has its line.
    let lost =
        result.is_none_or(|result| matches!(result.failure, Some(Failure::DriverLost { .. })));
    overview(job, over, lost)
}

/// `over`: nothing runs any more. `look`: tasks may have begun without a line of their end.
pub(super) fn overview(
    job: &JobDir,
    over: bool,
    look: bool,
) -> Result<Option<TaskOverview>, JobDirError> {
    let plan = job.attempt(1).read_plan()?;
    let apart = plan.as_ref().is_some_and(|plan| plan.tasks_apart);
    let Some(array) = plan.and_then(|plan| plan.array) else {
        return Ok(None);
    };
    if apart && !over {
        return apart::overview(job, &array).map(Some);
    }
    // The logs first: what ends meanwhile has a line then.
    let begun = if look { begun(job) } else { BTreeSet::new() };
    Ok(Some(sort(&array, &job.read_tasks()?, &begun, over)))
}

/// Tasks whose log exists.
fn begun(job: &JobDir) -> BTreeSet<u32> {
    let groups = fs::read_dir(job.path().join("tasks"));
    let logs = groups
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|group| fs::read_dir(group.path()).ok())
        .flatten()
        .flatten();
    logs.filter_map(|log| {
        let name = log.file_name();
        name.to_str()?.strip_suffix(".log")?.parse().ok()
    })
    .collect()
}

fn sort(array: &Array, results: &[TaskResult], begun: &BTreeSet<u32>, over: bool) -> TaskOverview {
    let latest: BTreeMap<u32, &TaskResult> =
        results.iter().map(|task| (task.index, task)).collect();
    let mut running = 0;
    let (mut failed, mut stopped, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    let mut counts = TaskCounts {
        total: u32::try_from(array.indices.len()).unwrap_or(u32::MAX),
        ..TaskCounts::default()
    };
    for &index in &array.indices {
        match latest.get(&index) {
            Some(task) if task.is_success() => counts.succeeded += 1,
            Some(task) if task.again && !over => counts.retrying += 1,
            Some(task) if !task.stopped => failed.push(index),
            // Where the job goes on, its next attempt runs it.
            Some(_) if over => stopped.push(index),
            None if begun.contains(&index) && over => stopped.push(index),
            None if begun.contains(&index) => running += 1,
            Some(_) | None => waiting.push(index),
        }
    }
    let number = |list: &[u32]| u32::try_from(list.len()).unwrap_or(u32::MAX);
    counts.failed = number(&failed);
    counts.stopped = number(&stopped);
    TaskOverview {
        counts,
        running,
        not_started: number(&waiting),
        failed_tasks: Array::of(failed, None).ok(),
        stopped_tasks: Array::of(stopped, None).ok(),
        not_started_tasks: Array::of(waiting, None).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use herd_core::exit::ProcessEnd;

    fn ended(index: u32, code: u8) -> TaskResult {
        TaskResult {
            index,
            attempt: 1,
            node: 0,
            end: ProcessEnd::Exited(code),
            started_ms: 1,
            ended_ms: 2,
            start_error: None,
            log_offset: 0,
            log_bytes: None,
            stopped: false,
            again: false,
            out_of_memory: false,
            failure: None,
        }
    }

    #[test]
    fn every_task_stands_somewhere() {
        let array: Array = "0-9".parse().unwrap();
        let again = TaskResult {
            again: true,
            ..ended(4, 1)
        };
        let stopped = TaskResult {
            stopped: true,
            ..ended(5, 143)
        };
        let results = [
            ended(0, 0),
            ended(1, 3),
            ended(2, 3),
            ended(3, 3),
            again,
            stopped,
        ];
        let begun = BTreeSet::from([0, 1, 2, 3, 4, 5, 6]);
        let text = |array: Option<Array>| array.map(|array| array.to_string());

        let now = sort(&array, &results, &begun, false);
        assert_eq!((now.running, now.not_started), (1, 4));
        assert_eq!((now.counts.succeeded, now.counts.retrying), (1, 1));
        assert_eq!(text(now.failed_tasks).as_deref(), Some("1-3"));
        assert_eq!(text(now.not_started_tasks).as_deref(), Some("5,7-9"));

        let over = sort(&array, &results, &begun, true);
        assert_eq!((over.running, over.not_started), (0, 3));
        assert_eq!(text(over.failed_tasks).as_deref(), Some("1-4"));
        assert_eq!(text(over.stopped_tasks).as_deref(), Some("5-6"));
        assert_eq!(text(over.not_started_tasks).as_deref(), Some("7-9"));
        let all = over.counts;
        assert_eq!(
            all.succeeded + all.failed + all.stopped + over.not_started,
            all.total
        );
    }
}
