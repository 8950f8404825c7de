//! The directory of a node's Ray. It is outside the job's directory, since Ray puts sockets into it,
//! whose paths must be short. It is locked while it is in use: one that a killed executor has left
//! is known by its lock being free, and removed by whoever comes next.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use herd_core::plan::Plan;
use rustix::fs::{FlockOperation, flock};

/// What the names of all these directories begin with.
const PREFIX: &str = "herd-ray-";
/// Bytes that the path may have: a socket's path has at most 107, and Ray adds a session's name and
/// `/sockets/plasma_store`.
const MAX_PATH: usize = 40;

/// A directory in use.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes it, for this user alone. One that is there already may be somebody else's and is an
    /// error.
    pub(crate) fn make(temporary: &Path, plan: &Plan, node: u32) -> io::Result<Self> {
        let path = path(temporary, plan, node);
        // It gets its name when it is locked: before, it would look like one that was left.
        let unnamed = path.with_extension("new");
        DirBuilder::new().mode(0o700).create(&unnamed)?;
        let lock = File::open(&unnamed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&unnamed, &path)?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it with what Ray has left in it.
    pub(crate) fn remove(&self) {
        // What stays is removed with those that were left.
        drop(fs::remove_dir_all(&self.path));
    }
}

/// Where a node's directory is: in `temporary`, unless its path would be too long.
pub(super) fn path(temporary: &Path, plan: &Plan, node: u32) -> PathBuf {
    let name = format!("{PREFIX}{}-{}-{node}", plan.job.short(), plan.attempt);
    let path = temporary.join(&name);
    if path.as_os_str().len() <= MAX_PATH {
        path
    } else {
        Path::new("/tmp").join(name)
    }
}

/// Removes this user's directories that nobody uses any more. What cannot be removed stays.
pub(crate) fn remove_left(temporary: &Path) {
    for place in [temporary, Path::new("/tmp")] {
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(PREFIX) && !name.ends_with(".new") {
                remove_unlocked(&entry.path());
            }
        }
    }
}

fn remove_unlocked(path: &Path) {
    let own = rustix::process::geteuid().as_raw();
    // Nothing that a stranger has made, and nothing that only points elsewhere.
    let ours = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == own);
    let lock = || -> io::Result<File> {
        let file = File::open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    };
    if ours && lock().is_ok() {
        drop(fs::remove_dir_all(path));
    }
}
