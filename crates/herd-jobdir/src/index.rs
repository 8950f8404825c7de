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
        let brief = match entry.settled.clone() {
            Some(brief) => brief,
            None => {
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
            }
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
