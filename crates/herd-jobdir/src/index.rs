//! `index.jsonl`: a cache of summaries and final states, so that `herd ls` opens few files.
//!
//! The directories are the truth. A line that is missing, torn or wrong costs time, never an
//! answer: such jobs are read from their directories and noted again.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use herd_core::JobId;
use serde::{Deserialize, Serialize};

use crate::error::JobDirError;
use crate::files::{self, Durability};
use crate::home::Home;
use crate::job::JobDir;
use crate::status::{Brief, status};
use crate::summary::Summary;

/// The file is written anew when it has this many times more lines than jobs.
const SLACK: usize = 4;

/// One job in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The job.
    pub id: JobId,
    /// Its summary.
    pub summary: Summary,
    /// Its final state, once it is settled: a terminal job never changes (I1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Brief>,
}

/// One line of `herd ls`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The job.
    pub id: JobId,
    /// Its summary.
    #[serde(flatten)]
    pub summary: Summary,
    /// Where it stands.
    #[serde(flatten)]
    pub brief: Brief,
}

/// All jobs that have a summary, newest first.
pub fn entries(home: &Home) -> Result<Vec<Entry>, JobDirError> {
    let ids = home.jobs()?;
    let path = index_path(home.path());
    let lines: Vec<Entry> = files::read_lines(&path)?;
    let read = lines.len();
    let mut known: BTreeMap<JobId, Entry> = BTreeMap::new();
    for line in lines {
        // The later line wins, except that a final state is never taken back.
        let settled = known
            .get(&line.id)
            .and_then(|earlier| earlier.settled.clone());
        let merged = Entry {
            settled: line.settled.clone().or(settled),
            ..line
        };
        known.insert(merged.id, merged);
    }
    let mut all = Vec::with_capacity(ids.len());
    let mut missing = Vec::new();
    for id in ids {
        if let Some(entry) = known.remove(&id) {
            all.push(entry);
        } else if let Some(summary) = read_summary(home, id) {
            let entry = Entry {
                id,
                summary,
                settled: None,
            };
            missing.push(entry.clone());
            all.push(entry);
        }
    }
    if read > SLACK * all.len().max(16) {
        rewrite(&path, &all);
    } else {
        note(&path, &missing);
    }
    Ok(all)
}

/// The newest `limit` jobs and where they stand. Jobs whose state cannot be read are left out.
pub fn list(home: &Home, limit: usize) -> Result<Vec<Listed>, JobDirError> {
    let mut listed = Vec::new();
    let mut settled = Vec::new();
    for entry in entries(home)?.into_iter().take(limit) {
        let brief = if let Some(brief) = entry.settled.clone() {
            brief
        } else {
            let Ok(now) = home.open(entry.id).and_then(|job| status(&job)) else {
                continue;
            };
            if now.brief.settled {
                settled.push(Entry {
                    settled: Some(now.brief.clone()),
                    ..entry.clone()
                });
            }
            now.brief
        };
        listed.push(Listed {
            id: entry.id,
            summary: entry.summary,
            brief,
        });
    }
    note(&index_path(home.path()), &settled);
    Ok(listed)
}

/// Notes a summary just written. A failure is nobody's concern: the cache heals itself.
pub(crate) fn note_summary(job: &JobDir, summary: &Summary) {
    // jobs/<id> lies two levels below the home.
    if let Some(home) = job.path().parent().and_then(Path::parent) {
        let entry = Entry {
            id: job.id(),
            summary: summary.clone(),
            settled: None,
        };
        note(&index_path(home), &[entry]);
    }
}

fn index_path(home: &Path) -> PathBuf {
    home.join("index.jsonl")
}

fn read_summary(home: &Home, id: JobId) -> Option<Summary> {
    home.open(id).ok()?.read_summary().ok()?
}

fn lines(path: &Path, entries: &[Entry]) -> Vec<u8> {
    entries
        .iter()
        .filter_map(|entry| files::json_line(path, entry).ok())
        .flatten()
        .collect()
}

/// Appends in one `write`: several processes do so at once.
fn note(path: &Path, entries: &[Entry]) {
    if !entries.is_empty() {
        if let Ok(mut file) = files::open_append(path) {
            drop(file.write_all(&lines(path, entries)));
        }
    }
}

fn rewrite(path: &Path, entries: &[Entry]) {
    drop(files::write_atomic(
        path,
        &lines(path, entries),
        Durability::Process,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use herd_core::result::JobResult;
    use herd_core::spec::JobType;
    use herd_core::state::JobState;

    fn home(dir: &tempfile::TempDir) -> Home {
        Home::at(dir.path().join("home")).unwrap()
    }

    fn summary(name: &str) -> Summary {
        Summary {
            name: name.to_owned(),
            job_type: JobType::Pytorch,
            nodes: 2,
            created_ms: 7,
            backend: String::from("local"),
            command: String::from("python train.py"),
        }
    }

    fn add(home: &Home, name: &str) -> JobDir {
        let job = home.create(JobId::generate()).unwrap();
        job.write_summary(&summary(name)).unwrap();
        job
    }

    fn succeed(job: &JobDir) {
        let result = JobResult {
            state: JobState::Succeeded,
            rejection: None,
            reason: None,
            failure: None,
            exit_code: 0,
            attempts: 1,
            ended_ms: 5,
            tasks: None,
        };
        job.write_result(&result, Durability::Process).unwrap();
    }

    #[test]
    fn a_missing_or_spoilt_index_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(&dir);
        let (a, b) = (add(&home, "a"), add(&home, "b"));
        let want = entries(&home).unwrap();
        assert_eq!(
            want.iter().map(|e| e.id).collect::<Vec<_>>(),
            [b.id(), a.id()]
        );
        let path = index_path(home.path());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(entries(&home).unwrap(), want);
        assert!(path.exists());
        std::fs::write(&path, b"\0garbage\n{\"id\":1}\n{\"id\":\"0").unwrap();
        assert_eq!(entries(&home).unwrap(), want);
        std::fs::remove_dir_all(a.path()).unwrap();
        assert_eq!(entries(&home).unwrap().len(), 1);
    }

    #[test]
    fn a_final_state_is_noted_and_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(&dir);
        let (done, open) = (add(&home, "done"), add(&home, "open"));
        succeed(&done);
        let listed = list(&home, 10).unwrap();
        assert_eq!(listed[0].brief.state, "ACCEPTED");
        assert_eq!(listed[1].brief.state, "SUCCEEDED");
        // The note alone answers now.
        std::fs::remove_file(done.path().join("result.json")).unwrap();
        assert_eq!(list(&home, 10).unwrap()[1].brief.state, "SUCCEEDED");
        // A later summary does not take it back.
        done.write_summary(&summary("done")).unwrap();
        assert_eq!(list(&home, 10).unwrap()[1].brief.state, "SUCCEEDED");
        assert_eq!(list(&home, 1).unwrap()[0].id, open.id());
        let json = serde_json::to_value(&listed[1]).unwrap();
        assert_eq!(
            (&json["type"], &json["state"]),
            (&"pytorch".into(), &"SUCCEEDED".into())
        );
    }

    #[test]
    fn an_index_that_outgrew_its_jobs_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(&dir);
        let job = add(&home, "a");
        for _ in 0..100 {
            note_summary(&job, &summary("a"));
        }
        entries(&home).unwrap();
        let text = std::fs::read_to_string(index_path(home.path())).unwrap();
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn a_thousand_jobs_are_listed_within_the_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(&dir);
        for _ in 0..1000 {
            succeed(&add(&home, "many"));
        }
        list(&home, 1000).unwrap();
        let began = std::time::Instant::now();
        assert_eq!(list(&home, 1000).unwrap().len(), 1000);
        let took = began.elapsed();
        assert!(took.as_millis() < 500, "{took:?}");
    }
}
