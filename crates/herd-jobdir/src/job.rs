//! `jobs/<id>/`: the files of one job that outlive its attempts.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use herd_core::JobId;
use herd_core::result::{JobResult, TaskResult};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::attempt::AttemptDir;
use crate::error::JobDirError;
use crate::files::{self, Durability};
use crate::index;
use crate::reserve;
use crate::summary::Summary;
use crate::tasks::{TaskWriter, read_tasks};

/// Task logs per directory: a directory with a hundred thousand entries is slow everywhere.
const TASKS_PER_DIRECTORY: u32 = 1000;

/// A request in `control.jsonl`.
const PASSED_ON: &str = "cancel-passed-on";
const CANCEL: &str = "cancel";
/// A request in `control.jsonl` that is a note of a requeue, and how long it tells of one.
const REQUEUE: &str = "requeue";
const REQUEUE_COUNTS_MS: u64 = 60_000;

/// Requests read from `control.jsonl` at once, bytes.
const CONTROL_READ_BYTES: u64 = 1 << 20;

/// How a job is to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRequest {
    /// Who asks.
    pub by: String,
    /// The signal that ranks get.
    pub signal: i32,
    /// How long they have, where the job's own grace is not to count, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}

/// The directory of one job.
#[derive(Clone, Debug)]
pub struct JobDir {
    path: PathBuf,
    id: JobId,
    /// The job's own directory, which has the key: of a task, the one that all tasks share.
    shared: PathBuf,
}

impl JobDir {
    pub(crate) fn new(path: PathBuf, id: JobId) -> Self {
        let shared = path.clone();
        Self { path, id, shared }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The job.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Fails where the disk has no room for the records of a job.
    pub fn require_room(&self) -> Result<(), JobDirError> {
        reserve::require_room(&self.path)
    }

    /// Removes the directory of a job that was not taken: nothing has begun, and nobody knows of it.
    pub fn discard(self) -> Result<(), JobDirError> {
        fs::remove_dir_all(&self.path).map_err(JobDirError::at("remove", &self.path))
    }

    /// Writes the job file as it was accepted.
    pub fn write_job_yaml(&self, bytes: &[u8], durability: Durability) -> Result<(), JobDirError> {
        files::write_atomic(&self.path.join("job.yaml"), bytes, durability)
    }

    /// The job file.
    pub fn read_job_yaml(&self) -> Result<Option<Vec<u8>>, JobDirError> {
        files::read(&self.path.join("job.yaml"))
    }

    /// Writes the job's key for the link, in hex.
    pub fn write_key(&self, hex: &str) -> Result<(), JobDirError> {
        files::write_atomic(&self.path.join("key"), hex.as_bytes(), Durability::Process)
    }

    /// The job's key in hex, where there is one.
    pub fn read_key(&self) -> Result<Option<String>, JobDirError> {
        let bytes = files::read(&self.shared.join("key"))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// Writes the values of secret variables, apart from everything else (I12).
    pub fn write_secrets(&self, secrets: &BTreeMap<String, String>) -> Result<(), JobDirError> {
        let path = self.path.join("secrets.json");
        files::write_atomic(
            &path,
            &files::json_line(&path, secrets)?,
            Durability::Process,
        )
    }

    /// The secret variables; none where there is no file.
    pub fn read_secrets(&self) -> Result<BTreeMap<String, String>, JobDirError> {
        Ok(files::read_json(&self.path.join("secrets.json"))?.unwrap_or_default())
    }

    /// Removes the secrets; no error where there are none.
    pub fn delete_secrets(&self) -> Result<(), JobDirError> {
        let path = self.path.join("secrets.json");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(JobDirError::io("delete", &path, error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Writes how the job ended. A terminal job never changes (I1): a second write is
    /// [`JobDirError::AlreadyWritten`].
    pub fn write_result(
        &self,
        result: &JobResult,
        durability: Durability,
    ) -> Result<(), JobDirError> {
        let path = self.path.join("result.json");
        files::write_once(&path, &files::json_line(&path, result)?, durability)
    }

    /// How the job ended, once it did.
    pub fn read_result(&self) -> Result<Option<JobResult>, JobDirError> {
        files::read_json(&self.path.join("result.json"))
    }

    /// Writes the summary, here and into the home's index.
    pub fn write_summary(&self, summary: &Summary) -> Result<(), JobDirError> {
        let path = self.path.join("summary.json");
        files::write_atomic(
            &path,
            &files::json_line(&path, summary)?,
            Durability::Process,
        )?;
        // jobs/<id> lies two levels below the home.
        if let Some(home) = self.path.parent().and_then(Path::parent) {
            let entry = index::Entry {
                id: self.id,
                summary: summary.clone(),
                settled: None,
            };
            index::note(home, &[entry]);
        }
        Ok(())
    }

    /// The summary, where it was written.
    pub fn read_summary(&self) -> Result<Option<Summary>, JobDirError> {
        files::read_json(&self.path.join("summary.json"))
    }

    /// Writes the script that a backend was given, for people.
    pub fn write_script(&self, script: &str) -> Result<(), JobDirError> {
        let path = self.path.join("submit.sh");
        files::write_atomic(&path, script.as_bytes(), Durability::Process)
    }

    /// Writes what the submitting side of a backend has to remember, into a file of this name.
    pub fn write_backend<T: Serialize>(&self, name: &str, record: &T) -> Result<(), JobDirError> {
        let path = self.path.join(name);
        files::write_atomic(
            &path,
            &files::json_line(&path, record)?,
            Durability::Machine,
        )
    }

    /// The same for what a power cut may take.
    pub fn write_backend_mark<T: Serialize>(
        &self,
        name: &str,
        mark: &T,
    ) -> Result<(), JobDirError> {
        let path = self.path.join(name);
        files::write_atomic(&path, &files::json_line(&path, mark)?, Durability::Process)
    }

    /// Removes what was written so.
    pub fn remove_backend(&self, name: &str) -> Result<(), JobDirError> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(JobDirError::io("remove", &path, error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Writes a word that is written once; the word that stands.
    pub fn decide(&self, name: &str, word: &str) -> Result<String, JobDirError> {
        let path = self.path.join(name);
        match files::write_once(&path, &files::json_line(&path, &word)?, Durability::Process) {
            Err(JobDirError::AlreadyWritten(_)) => Ok(files::read_json(&path)?.unwrap_or_default()),
            written => written.map(|()| word.to_owned()),
        }
    }

    /// What was written so; nothing where it was not.
    pub fn read_backend<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, JobDirError> {
        files::read_json(&self.path.join(name))
    }

    /// Appends one request for the driver to `control.jsonl`.
    pub fn append_control(&self, request: &Value) -> Result<(), JobDirError> {
        let path = self.path.join("control.jsonl");
        let line = files::json_line(&path, request)?;
        files::open_append(&path)?
            .write_all(&line)
            .map_err(JobDirError::at("append to", &path))
    }

    /// Requests after `offset` and the offset to go on from. An incomplete last line is left for
    /// the next call; lines that are not JSON are skipped.
    pub fn read_control(&self, offset: u64) -> Result<(Vec<Value>, u64), JobDirError> {
        let path = self.path.join("control.jsonl");
        files::read_lines_after(&path, offset, CONTROL_READ_BYTES)
    }

    /// Asks the driver for the end, for it to find when a signal tells it to look.
    pub fn request_cancel(&self, by: &str) -> Result<(), JobDirError> {
        self.append_control(&json!({"request": CANCEL, "by": by}))
    }

    /// Asks all drivers of the job for the end in this way.
    pub fn request_end(&self, request: &EndRequest) -> Result<(), JobDirError> {
        let mut line = json!(request);
        line["request"] = json!(CANCEL);
        self.append_control(&line)
    }

    /// The newest of such requests.
    pub fn end_request(&self) -> Result<Option<EndRequest>, JobDirError> {
        let (requests, _) = self.read_control(0)?;
        let ends = requests.into_iter().rev();
        let mut ends = ends.filter(|request| request["request"] == CANCEL);
        Ok(ends.find_map(|request| serde_json::from_value(request).ok()))
    }

    /// Who asked for the end through [`Self::request_cancel`], where anybody did.
    pub fn cancel_request(&self) -> Result<Option<String>, JobDirError> {
        let (requests, _) = self.read_control(0)?;
        let cancel = requests.iter().find(|request| request["request"] == CANCEL);
        let by = cancel.map(|request| request["by"].as_str().unwrap_or("a request"));
        Ok(by.map(str::to_owned))
    }

    /// Notes that the request for the end has reached whoever has the job: before that, it may have to be
    /// passed on again.
    pub fn note_passed_on(&self) -> Result<(), JobDirError> {
        self.append_control(&json!({"request": PASSED_ON}))
    }

    /// Whether there is a request for the end that has reached nobody yet.
    pub fn is_cancel_unheard(&self) -> Result<bool, JobDirError> {
        let (requests, _) = self.read_control(0)?;
        let has = |word: &str| requests.iter().any(|request| request["request"] == word);
        Ok(has(CANCEL) && !has(PASSED_ON))
    }

    /// Notes who has the job queued again, before its driver learns of the requeue.
    pub fn note_requeue(&self, by: &str, now_ms: u64) -> Result<(), JobDirError> {
        self.append_control(&json!({"request": REQUEUE, "by": by, "time_ms": now_ms}))
    }

    /// Who has just had the job queued again: during the last minute, for earlier ones were for earlier
    /// attempts.
    pub fn requeue_request(&self, now_ms: u64) -> Result<Option<String>, JobDirError> {
        let (requests, _) = self.read_control(0)?;
        let newest = requests.iter().rev().find(|r| r["request"] == REQUEUE);
        let recent = newest.filter(|request| {
            let at = request["time_ms"].as_u64().unwrap_or(0);
            // The clocks of two machines are not the same.
            now_ms.abs_diff(at) < REQUEUE_COUNTS_MS
        });
        Ok(recent.and_then(|request| request["by"].as_str().map(str::to_owned)))
    }

    /// The directory of attempt `number`, whether or not it exists.
    pub fn attempt(&self, number: u32) -> AttemptDir {
        AttemptDir::new(self.path.join("attempts").join(number.to_string()), number)
    }

    /// The attempt with the highest number, where there is one.
    pub fn latest_attempt(&self) -> Result<Option<AttemptDir>, JobDirError> {
        let directory = self.path.join("attempts");
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(JobDirError::io("list", &directory, error)),
        };
        let latest = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
            .max();
        Ok(latest.map(|number| self.attempt(number)))
    }

    /// The directory of one task of an array whose tasks are driven apart, whether or not it exists:
    /// `tasks/<index / 1000>/<index>`. It is like a job's; what all tasks share is in the job's own.
    #[must_use]
    pub fn task(&self, index: u32) -> Self {
        let directory = task_dir_in(&self.tasks_dir(), index);
        Self {
            path: directory.join(index.to_string()),
            id: self.id,
            shared: self.shared.clone(),
        }
    }

    /// Makes the directory of a task; one that exists is left alone.
    pub fn make(&self) -> Result<(), JobDirError> {
        files::create_dir(&self.path)
    }

    /// `tasks`.
    pub fn tasks_dir(&self) -> PathBuf {
        self.path.join("tasks")
    }

    /// Makes what many drivers look for before anybody has to say anything: a network file system
    /// remembers for a while that a file did not exist.
    pub fn prepare_for_tasks(&self) -> Result<(), JobDirError> {
        files::create_dir(&self.tasks_dir())?;
        files::open_append(&self.path.join("control.jsonl")).map(drop)
    }

    /// Writes the results of all tasks at once, where no driver has appended them. Whoever does it
    /// writes the same.
    pub(crate) fn write_tasks(
        &self,
        results: &[TaskResult],
        durability: Durability,
    ) -> Result<(), JobDirError> {
        let path = self.path.join("tasks.jsonl");
        let mut bytes = Vec::new();
        for result in results {
            bytes.extend(files::json_line(&path, result)?);
        }
        files::write_atomic(&path, &bytes, durability)
    }

    /// `tasks/<index / 1000>/<index>.log`.
    pub fn task_log(&self, index: u32) -> PathBuf {
        task_log_in(&self.tasks_dir(), index)
    }

    /// Makes the directories of these tasks' logs. Where the indices are sorted, each once.
    pub fn create_task_dirs(&self, indices: &[u32]) -> Result<(), JobDirError> {
        let tasks = self.tasks_dir();
        let together =
            |one: &u32, next: &u32| one / TASKS_PER_DIRECTORY == next / TASKS_PER_DIRECTORY;
        for group in indices.chunk_by(together) {
            if let Some(&first) = group.first() {
                files::create_dir(&task_dir_in(&tasks, first))?;
            }
        }
        Ok(())
    }

    /// Opens `tasks.jsonl` for appending.
    pub fn task_writer(&self) -> Result<TaskWriter, JobDirError> {
        TaskWriter::open(&self.path.join("tasks.jsonl"))
    }

    /// Results of the tasks that ended.
    pub fn read_tasks(&self) -> Result<Vec<TaskResult>, JobDirError> {
        read_tasks(&self.path.join("tasks.jsonl"))
    }
}

/// The log of a task beneath the directory of all task logs, for those who know only that.
pub fn task_log_in(tasks: &Path, index: u32) -> PathBuf {
    task_dir_in(tasks, index).join(format!("{index}.log"))
}

fn task_dir_in(tasks: &Path, index: u32) -> PathBuf {
    tasks.join((index / TASKS_PER_DIRECTORY).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;
    use herd_core::state::JobState;
    use std::os::unix::fs::PermissionsExt;

    fn job(dir: &tempfile::TempDir) -> JobDir {
        Home::at(dir.path())
            .unwrap()
            .create(JobId::generate())
            .unwrap()
    }

    fn result(exit_code: u8) -> JobResult {
        JobResult {
            state: JobState::Succeeded,
            rejection: None,
            reason: None,
            failure: None,
            exit_code,
            attempts: 1,
            ended_ms: 5,
            tasks: None,
        }
    }

    #[test]
    fn i1_a_result_is_written_once() {
        let dir = tempfile::tempdir().unwrap();
        let job = job(&dir);
        assert_eq!(job.read_result().unwrap(), None);
        job.write_result(&result(0), Durability::Machine).unwrap();
        let second = job.write_result(&result(1), Durability::Process);
        assert!(matches!(second, Err(JobDirError::AlreadyWritten(_))));
        assert_eq!(job.read_result().unwrap(), Some(result(0)));
        // No temporary file stays behind.
        assert_eq!(fs::read_dir(job.path()).unwrap().count(), 1);
    }

    #[test]
    fn i12_keys_and_secrets_are_private_and_secrets_go() {
        let dir = tempfile::tempdir().unwrap();
        let job = job(&dir);
        job.write_key("ab12").unwrap();
        assert_eq!(job.read_key().unwrap().as_deref(), Some("ab12"));
        let secrets = BTreeMap::from([(String::from("T"), String::from("v"))]);
        job.write_secrets(&secrets).unwrap();
        assert_eq!(job.read_secrets().unwrap(), secrets);
        for name in ["key", "secrets.json"] {
            let mode = fs::metadata(job.path().join(name))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        job.delete_secrets().unwrap();
        job.delete_secrets().unwrap();
        assert!(job.read_secrets().unwrap().is_empty());
    }

    #[test]
    fn requests_are_read_from_where_the_reader_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let job = job(&dir);
        assert_eq!(job.read_control(0).unwrap(), (vec![], 0));
        assert_eq!(job.cancel_request().unwrap(), None);
        job.request_cancel("herd cancel").unwrap();
        assert_eq!(
            job.cancel_request().unwrap().as_deref(),
            Some("herd cancel")
        );
        let (first, offset) = job.read_control(0).unwrap();
        assert_eq!(first.len(), 1);
        let mut file = fs::OpenOptions::new()
            .append(true)
            .open(job.path().join("control.jsonl"))
            .unwrap();
        file.write_all(b"{\"request\":").unwrap();
        assert_eq!(job.read_control(offset).unwrap(), (vec![], offset));
        file.write_all(b"\"hold\"}\n").unwrap();
        assert_eq!(
            job.read_control(offset).unwrap().0,
            [serde_json::json!({"request": "hold"})]
        );
    }

    #[test]
    fn attempts_are_numbers_and_the_highest_is_the_latest() {
        let dir = tempfile::tempdir().unwrap();
        let job = job(&dir);
        assert!(job.latest_attempt().unwrap().is_none());
        for number in [2, 10, 9] {
            job.attempt(number).create().unwrap();
        }
        fs::create_dir(job.path().join("attempts/backup")).unwrap();
        assert_eq!(job.latest_attempt().unwrap().unwrap().number(), 10);
        assert!(job.task_log(12_345).ends_with("tasks/12/12345.log"));
    }
}
