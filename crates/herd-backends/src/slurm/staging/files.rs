//! The files of a job's directory, as both sides write and compare them.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// Directories that are looked into, one below the other.
const DEPTH: usize = 6;
/// What stays on its side: the first three come from the submitting side, which has them.
const STAYS: [&str; 4] = ["key", "secrets.json", "control.jsonl", "work.tar"];

/// What a file was like when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) length: u64,
    pub(super) changed: Option<SystemTime>,
}

impl Seen {
    fn of(data: &fs::Metadata) -> Self {
        Self {
            length: data.len(),
            changed: data.modified().ok(),
        }
    }
}

/// What one file is like now.
pub(super) fn list_one(job: &Path, path: &str) -> Option<Seen> {
    let data = fs::symlink_metadata(job.join(path)).ok()?;
    data.is_file().then(|| Seen::of(&data))
}

/// Whether a file only grows. Others are written at once, and travel whole.
pub(super) fn grows(path: &str) -> bool {
    [".log", ".jsonl", ".index", ".out"]
        .iter()
        .any(|end| path.ends_with(end))
}

/// A path of the other side, which leads nowhere but below the job's directory.
pub(super) fn below(job: &Path, path: &str) -> io::Result<PathBuf> {
    let path = Path::new(path);
    let mut parts = path.components().peekable();
    if parts.peek().is_none() || !parts.all(|part| matches!(part, Component::Normal(_))) {
        return Err(io::Error::other(format!(
            "{} leads elsewhere",
            path.display()
        )));
    }
    Ok(job.join(path))
}

fn make_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().unwrap_or_else(|| Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(parent)
}

/// Replaces a file, or makes it; the same content is left alone.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    make_parent(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.staged"));
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary);
    file.and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    })?;
    fs::rename(&temporary, path)
}

/// Writes a part of a file that grows. At offset 0 the file begins anew.
pub(super) fn write_part(path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let file = open(path)?;
    if offset == 0 {
        file.set_len(0)?;
    }
    file.write_all_at(bytes, offset)
}

/// Makes a file so long without writing what it holds elsewhere: what is appended has its right offset.
pub(super) fn make_long(path: &Path, length: u64) -> io::Result<()> {
    open(path)?.set_len(length)
}

fn open(path: &Path) -> io::Result<File> {
    make_parent(path)?;
    File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// The files of a job's directory that travel, by their paths below it.
pub(super) fn list(job: &Path) -> BTreeMap<String, Seen> {
    let mut found = BTreeMap::new();
    collect(job, "", DEPTH, &mut found);
    found
}

fn collect(directory: &Path, prefix: &str, depth: usize, found: &mut BTreeMap<String, Seen>) {
    // What vanishes meanwhile was not to stay.
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let stays = prefix.is_empty() && STAYS.contains(&name.as_str());
        let Ok(data) = entry.metadata() else {
            continue;
        };
        let path = format!("{prefix}{name}");
        if data.is_dir() && depth > 0 {
            collect(&entry.path(), &format!("{path}/"), depth - 1, found);
        } else if data.is_file() && !name.starts_with('.') && !stays {
            found.insert(path, Seen::of(&data));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out_of_the_job() {
        let job = Path::new("/j");
        for path in ["", "/etc/passwd", "../x", "a/../../x", "."] {
            assert!(below(job, path).is_err(), "{path}");
        }
        assert_eq!(below(job, "a/b").unwrap(), Path::new("/j/a/b"));
    }

    #[test]
    fn files_are_the_same_on_the_other_side() {
        let there = tempfile::tempdir().unwrap();
        let path = there.path().join("a/run.log");
        write_part(&path, 0, b"one").unwrap();
        write_part(&path, 3, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"onetwo");
        write_part(&path, 0, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let whole = there.path().join("plan.json");
        write_whole(&whole, b"{}").unwrap();
        make_long(&there.path().join("run.index"), 64).unwrap();
        fs::write(there.path().join("key"), "secret").unwrap();
        fs::write(there.path().join(".plan.json.staged"), "").unwrap();
        let listed: Vec<(String, u64)> = list(there.path())
            .into_iter()
            .map(|(path, seen)| (path, seen.length))
            .collect();
        let expected = [("a/run.log", 3), ("plan.json", 2), ("run.index", 64)];
        assert_eq!(
            listed,
            expected.map(|(path, length)| (path.to_owned(), length))
        );
    }
}
