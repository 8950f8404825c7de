//! `index.jsonl`: a cache of summaries and final states, so that a listing opens few files.
//!
//! The directories are the truth. A line that is missing, torn or wrong costs time, never an
//! answer: [`crate::listing`] reads such jobs from their directories and notes them again.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use herd_core::JobId;
use serde::{Deserialize, Serialize};

use crate::error::JobDirError;
use crate::files::{self, Durability};
use crate::status::shown::Brief;
use crate::summary::Summary;

/// One job in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The job.
    pub(crate) id: JobId,
    /// Its summary.
    pub(crate) summary: Summary,
    /// Its final state, once it is settled: a terminal job never changes (I1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) settled: Option<Brief>,
}

/// What the index of a home knows.
pub(crate) struct Known {
    /// By job, whether or not it still exists.
    pub(crate) entries: BTreeMap<JobId, Entry>,
    /// How many lines told it.
    pub(crate) lines: usize,
}

/// Reads the index of a home.
pub(crate) fn read(home: &Path) -> Result<Known, JobDirError> {
    let read: Vec<Entry> = files::read_lines(&path(home))?;
    let lines = read.len();
    let mut entries: BTreeMap<JobId, Entry> = BTreeMap::new();
    for line in read {
        // The later line wins, except that a final state is never taken back.
        let earlier = entries.get(&line.id);
        let settled = earlier.and_then(|earlier| earlier.settled.clone());
        let merged = Entry {
            settled: line.settled.clone().or(settled),
            ..line
        };
        entries.insert(merged.id, merged);
    }
    Ok(Known { entries, lines })
}

/// Appends in one `write`: several processes do so at once. A failure is nobody's concern: the cache
/// heals itself.
pub(crate) fn note(home: &Path, entries: &[Entry]) {
    if entries.is_empty() {
        return;
    }
    let path = path(home);
    if let Ok(mut file) = files::open_append(&path) {
        drop(file.write_all(&lines(&path, entries)));
    }
}

/// Writes the index anew, without what no longer counts; a failure is nobody's concern either.
pub(crate) fn rewrite(home: &Path, entries: &[Entry]) {
    let path = path(home);
    let bytes = lines(&path, entries);
    drop(files::write_atomic(&path, &bytes, Durability::Process));
}

pub(crate) fn path(home: &Path) -> PathBuf {
    home.join("index.jsonl")
}

fn lines(path: &Path, entries: &[Entry]) -> Vec<u8> {
    let lines = entries.iter();
    lines
        .filter_map(|entry| files::json_line(path, entry).ok())
        .flatten()
        .collect()
}
