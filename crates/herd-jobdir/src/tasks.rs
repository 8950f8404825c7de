//! Results of array tasks: `tasks.jsonl`, appended in groups.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use herd_core::result::{TaskCounts, TaskResult};

use crate::error::JobDirError;
use crate::files;

/// Results gathered before they are written without being asked: about 300 tasks.
const GROUP_BYTES: usize = 64 * 1024;

/// Appends task results, many per `write`.
///
/// What was pushed and not flushed is lost with the process, and the tasks run again: flush before
/// anybody is told of an end.
#[derive(Debug)]
pub struct TaskWriter {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
}

impl TaskWriter {
    /// Opens the file for appending.
    pub(crate) fn open(path: &Path) -> Result<Self, JobDirError> {
        let file = files::open_append(path)?;
        Ok(Self {
            file,
            path: path.to_path_buf(),
            buffer: Vec::new(),
        })
    }

    /// Takes one result; writes when a group is full.
    pub fn push(&mut self, result: &TaskResult) -> Result<(), JobDirError> {
        if self.buffer.len() >= GROUP_BYTES {
            self.flush()?;
        }
        self.buffer.extend(files::json_line(&self.path, result)?);
        Ok(())
    }

    /// Whether results wait to be written.
    pub fn is_dirty(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Writes what was gathered. After a failure the rest is kept and tried again.
    pub fn flush(&mut self) -> Result<(), JobDirError> {
        while !self.buffer.is_empty() {
            let written = self
                .file
                .write(&self.buffer)
                .map_err(JobDirError::at("append to", &self.path))?;
            self.buffer.drain(..written);
        }
        Ok(())
    }
}

impl Drop for TaskWriter {
    fn drop(&mut self) {
        // An error has nowhere to go here; callers that care have flushed.
        drop(self.flush());
    }
}

/// Tasks by outcome, of `total` in all; the last attempt of a task counts.
///
/// `over`: the job has ended, so nothing is run again.
pub fn count(results: &[TaskResult], total: u32, over: bool) -> TaskCounts {
    let latest: BTreeMap<u32, &TaskResult> =
        results.iter().map(|task| (task.index, task)).collect();
    let mut counts = TaskCounts {
        total,
        ..TaskCounts::default()
    };
    for task in latest.values() {
        if task.is_success() {
            counts.succeeded += 1;
        } else if task.again && !over {
            counts.retrying += 1;
        } else if task.stopped {
            // Where the job goes on, its next attempt runs it.
            counts.stopped += u32::from(over);
        } else {
            counts.failed += 1;
        }
    }
    counts
}

/// All results of a file; none where it does not exist. Lines that cannot be read are skipped.
pub fn read_tasks(path: &Path) -> Result<Vec<TaskResult>, JobDirError> {
    files::read_lines(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use herd_core::exit::ProcessEnd;

    fn result(index: u32) -> TaskResult {
        TaskResult {
            index,
            attempt: 1,
            node: 0,
            end: ProcessEnd::Exited(0),
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
    fn the_last_attempt_of_a_task_counts() {
        let failed = |index, attempt, again| TaskResult {
            attempt,
            end: ProcessEnd::Exited(3),
            again,
            ..result(index)
        };
        let recovered = TaskResult {
            attempt: 2,
            ..result(1)
        };
        let all = [
            result(0),
            failed(1, 1, true),
            recovered,
            failed(2, 1, true),
            failed(3, 1, true),
            failed(3, 2, false),
            TaskResult {
                stopped: true,
                ..failed(4, 1, false)
            },
        ];
        let counts = |retrying, failed, stopped| TaskCounts {
            total: 9,
            succeeded: 2,
            failed,
            retrying,
            stopped,
        };
        assert_eq!(count(&all, 9, false), counts(1, 1, 0));
        assert_eq!(count(&all, 9, true), counts(0, 2, 1));
    }

    #[test]
    fn lines_of_a_release_that_knew_no_retries_are_read() {
        let line =
            r#"{"index":4,"attempt":1,"node":0,"end":{"exited":0},"started_ms":1,"ended_ms":2}"#;
        let ours = serde_json::to_string(&result(4)).unwrap();
        assert_eq!(ours, line);
        assert!(serde_json::from_str::<TaskResult>(line).unwrap().is_final());
    }

    #[test]
    fn results_wait_for_the_flush_and_come_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tasks.jsonl");
        let mut writer = TaskWriter::open(&path).unwrap();
        for index in 0..3 {
            writer.push(&result(index)).unwrap();
        }
        assert!(read_tasks(&path).unwrap().is_empty());
        assert!(writer.is_dirty());
        writer.flush().unwrap();
        assert!(!writer.is_dirty());
        assert_eq!(
            read_tasks(&path).unwrap(),
            [result(0), result(1), result(2)]
        );
    }

    #[test]
    fn a_full_group_is_written_without_being_asked_and_the_rest_on_drop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tasks.jsonl");
        let mut writer = TaskWriter::open(&path).unwrap();
        for index in 0..2000 {
            writer.push(&result(index)).unwrap();
        }
        let early = read_tasks(&path).unwrap().len();
        assert!(early > 0 && early < 2000, "{early}");
        drop(writer);
        assert_eq!(read_tasks(&path).unwrap().len(), 2000);
    }
}
