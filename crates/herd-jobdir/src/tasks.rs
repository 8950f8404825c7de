//! Results of array tasks: `tasks.jsonl`, appended in groups.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use herd_core::result::TaskResult;

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
        }
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
