//! What the login node has of a job, kept here: the files that commands read, and when it was last heard
//! of. The files are the job's own and only grow; writing the same piece twice changes nothing.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use herd_jobdir::status::Brief;
use herd_jobdir::{JobDir, JobDirError};
use serde::{Deserialize, Serialize};

use crate::protocol::{Held, Part};
use crate::target::Target;

const RECORD: &str = "login.json";
const FACTS: &str = "login-facts.json";

/// Attempts of a job that are mirrored; more are no use to anybody.
const MOST_ATTEMPTS: u32 = 100_000;

/// A job that a login node has, or may have; `login.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The backend's name when it was handed over.
    pub backend: String,
    /// The login node then, with the directory for jobs that it was handed to.
    pub target: Target,
    /// When it was handed over, milliseconds since the Unix epoch.
    pub submitted_ms: u64,
    /// Slurm's number; nothing as long as it is not known whether it has arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
}

impl Record {
    /// Writes it.
    pub fn write(&self, job: &JobDir) -> Result<(), JobDirError> {
        job.write_backend(RECORD, self)
    }

    /// Reads it; nothing for any other job.
    pub fn read(job: &JobDir) -> Result<Option<Self>, JobDirError> {
        job.read_backend(RECORD)
    }
}

/// What was heard of a job last; `login-facts.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// When, milliseconds since the Unix epoch.
    pub asked_ms: u64,
    /// Where it stood; nothing where there was no such job.
    pub brief: Option<Brief>,
}

impl Facts {
    /// Writes them. What cannot be written is asked for again.
    pub fn write(&self, job: &JobDir) {
        drop(job.write_backend(FACTS, self));
    }

    /// Reads them.
    pub fn read(job: &JobDir) -> Option<Self> {
        job.read_backend(FACTS).ok().flatten()
    }
}

/// How a mirrored file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Written once, as a whole.
    Whole,
    /// Appended to.
    Growing,
    /// Appended to, and large: what the job prints.
    Log,
}

/// Files of a job that are mirrored. Neither its key nor its secrets are, nor who drives it, which could
/// be judged there alone.
pub(crate) const FILES: &[(&str, Kind)] = &[
    ("job.yaml", Kind::Whole),
    ("summary.json", Kind::Whole),
    ("submit.sh", Kind::Whole),
    // The text before the index, which tells what of it is there.
    ("run.log", Kind::Log),
    ("run.index", Kind::Log),
    ("tasks.jsonl", Kind::Growing),
];
/// Those of an attempt.
pub(crate) const ATTEMPT_FILES: &[(&str, Kind)] = &[
    ("plan.json", Kind::Whole),
    ("events.jsonl", Kind::Growing),
    ("end", Kind::Whole),
];
const TASKS: &str = "tasks/";
const OWNER: &str = "owner";
/// The last one of all: whoever sees it finds all others complete.
pub(crate) const RESULT: &str = "result.json";

/// What kind of file this is; nothing for a path that is not mirrored.
pub(crate) fn kind(path: &str) -> Option<Kind> {
    let of = |files: &[(&str, Kind)], name: &str| {
        let found = files.iter().find(|(known, _)| *known == name);
        found.map(|(_, kind)| *kind)
    };
    if path == RESULT {
        return Some(Kind::Whole);
    }
    if let Some(rest) = path.strip_prefix(TASKS) {
        // tasks/12/12345/…, a directory like a job's.
        let (_, rest) = rest.split_once('/').filter(|(group, _)| is_number(group))?;
        let (_, rest) = rest.split_once('/').filter(|(task, _)| is_number(task))?;
        return match rest.strip_prefix("attempts/") {
            // Whether a task runs is told by this.
            Some(of_attempt) if is_owner(of_attempt) => Some(Kind::Whole),
            _ if rest.starts_with(TASKS) => None,
            _ => kind(rest),
        };
    }
    match path.strip_prefix("attempts/") {
        None => of(FILES, path),
        Some(rest) => {
            let (number, name) = rest.split_once('/')?;
            let plain = number
                .parse::<u32>()
                .ok()
                .filter(|n| n.to_string() == number)?;
            of(ATTEMPT_FILES, name).filter(|_| plain <= MOST_ATTEMPTS)
        }
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<u32>()
        .is_ok_and(|number| number.to_string() == text)
}

fn is_owner(path: &str) -> bool {
    path.split_once('/')
        .is_some_and(|(number, name)| is_number(number) && name == OWNER)
}

/// Directories of tasks that have a driver of their own, by their paths below the job's.
pub(crate) fn task_dirs(job: &JobDir) -> Vec<(String, JobDir)> {
    let begun = herd_jobdir::apart::begun(job);
    begun
        .into_iter()
        .filter_map(|index| {
            let task = job.task(index);
            let path = task.path().strip_prefix(job.path()).ok()?.to_str()?;
            Some((path.to_owned(), task.clone()))
        })
        .collect()
}

/// What this side has of a job.
pub fn held(job: &JobDir) -> Held {
    let mut files = BTreeMap::new();
    note(job, "", &mut files);
    for (place, task) in task_dirs(job) {
        note(&task, &format!("{place}/"), &mut files);
    }
    Held {
        job: job.id(),
        files,
    }
}

fn note(dir: &JobDir, place: &str, files: &mut BTreeMap<String, u64>) {
    let attempts = dir.latest_attempt().ok().flatten();
    let attempts = attempts.map_or(0, |attempt| attempt.number());
    for path in paths(attempts.min(MOST_ATTEMPTS), !place.is_empty()) {
        if let Ok(meta) = std::fs::metadata(dir.path().join(&path)) {
            files.insert(format!("{place}{path}"), meta.len());
        }
    }
}

/// Paths of the files of a job with so many attempts, the result last.
pub(crate) fn paths(attempts: u32, of_task: bool) -> Vec<String> {
    let mut paths: Vec<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    for number in 1..=attempts {
        paths.extend(
            ATTEMPT_FILES
                .iter()
                .map(|(name, _)| format!("attempts/{number}/{name}")),
        );
        paths.extend(of_task.then(|| format!("attempts/{number}/{OWNER}")));
    }
    paths.push(RESULT.to_owned());
    paths
}

/// Puts a piece of a file where it belongs. A path from outside that is none of ours is refused.
pub fn put(job: &JobDir, part: &Part, bytes: &[u8]) -> io::Result<()> {
    let Part::File {
        path,
        offset,
        whole,
        ..
    } = part
    else {
        return Ok(());
    };
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let kind = kind(path).ok_or_else(|| wrong("a file that no job has"))?;
    let place = job.path().join(path);
    if let Some(parent) = place.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
    }
    if *whole || kind == Kind::Whole {
        return replace(&place, bytes);
    }
    let file = open(&place)?;
    if file.metadata()?.len() < *offset {
        // Bytes before it are missing: they are asked for with the next question.
        return Err(wrong("a piece that does not follow what is here"));
    }
    file.write_all_at(bytes, *offset)
}

fn open(place: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(place)
}

fn replace(place: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let unique = format!(
        ".{name}.{}.{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let temporary = place.with_file_name(unique);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    std::fs::rename(&temporary, place)
}

#[cfg(test)]
mod tests {
    use herd_core::JobId;
    use herd_jobdir::Home;

    use super::*;

    fn job(dir: &tempfile::TempDir) -> JobDir {
        let home = Home::at(dir.path()).unwrap();
        home.create(JobId::generate()).unwrap()
    }

    fn piece(job: &JobDir, path: &str, offset: u64, text: &[u8]) -> io::Result<()> {
        let part = Part::File {
            job: job.id(),
            path: path.to_owned(),
            offset,
            length: text.len(),
            whole: false,
        };
        put(job, &part, text)
    }

    #[test]
    fn i7_pieces_that_come_twice_change_nothing_and_gaps_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let job = job(&dir);
        piece(&job, "run.log", 0, b"abc").unwrap();
        piece(&job, "run.log", 2, b"cde").unwrap();
        piece(&job, "run.log", 0, b"abc").unwrap();
        assert!(piece(&job, "run.log", 9, b"x").is_err());
        piece(&job, "attempts/3/events.jsonl", 0, b"{}\n").unwrap();
        piece(&job, "result.json", 0, b"{}").unwrap();
        piece(&job, "tasks/0/7/attempts/1/owner", 0, b"{}").unwrap();
        piece(&job, "tasks/0/7/run.log", 0, b"{}").unwrap();
        assert_eq!(std::fs::read(job.path().join("run.log")).unwrap(), b"abcde");
        let held = held(&job).files;
        assert_eq!(held["run.log"], 5);
        assert_eq!(held["attempts/3/events.jsonl"], 3);
    }

    #[test]
    fn i12_what_is_not_mirrored_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let job = job(&dir);
        for path in [
            "key",
            "secrets.json",
            "login.json",
            "../x",
            "/etc/x",
            "attempts/1/owner",
            "tasks/0/1/key",
            "tasks/0/1/tasks/0/1/end",
            "tasks/../1/end",
            "attempts/01/end",
            "attempts/../end",
            "attempts/999999999/end",
            "",
        ] {
            assert!(piece(&job, path, 0, b"x").is_err(), "{path:?}");
        }
    }
}
