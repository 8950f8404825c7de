//! Where the workers' logs are: a directory for the run, in it one for each attempt and in that one
//! for each local rank (launcher specification §3).
//!
//! `<root>/<run id>_<random>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json,heartbeat}`
//!
//! Below a root that nobody named, workers without logs have no directories, only error files side by
//! side: `attempt_<n>/<local rank>.error.json`. To make and remove a directory for each of 64 workers
//! takes longer than to start them.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The root that means "no files at all".
const NOWHERE: &str = "/dev/null";
/// Begins the names of roots that nobody has named.
const IMPLICIT: &str = "torchelastic_";
/// Where else temporary files may be, where the directory for them is none: on a node that has not the one
/// of the machine on which the job was handed in. Python's `tempfile`, and so torchrun, looks there too.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
/// Tries for a name that is free.
const TRIES: u32 = 16;

/// Why there is no directory for logs.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The root is a file.
    #[error("the log directory {} is not a directory\nhint: give another one with --log-dir", .0.display())]
    NotADirectory(PathBuf),
    /// A directory could not be made.
    #[error(
        "cannot make the log directory {}\nhint: --log-dir or TMPDIR names another place; --log-dir=/dev/null keeps no logs",
        path.display()
    )]
    Make {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The earlier logs of this attempt could not be removed.
    #[error("cannot remove {}\nhint: give another directory with --log-dir", path.display())]
    Remove {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

/// The directory of one run.
#[derive(Debug)]
pub struct Layout {
    /// Absent where nothing is kept.
    run: Option<PathBuf>,
    /// The root, where it was made for this run because nobody has named one.
    implicit_root: Option<PathBuf>,
}

/// The files of one worker; empty paths where nothing is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerFiles {
    /// What it writes to its standard output, where that is redirected.
    pub stdout: PathBuf,
    /// What it writes to its standard error, where that is redirected.
    pub stderr: PathBuf,
    /// Where it may say why it failed.
    pub error: PathBuf,
    /// What it may touch to show that it gets on.
    pub heartbeat: PathBuf,
}

impl Layout {
    /// Makes the run's own directory below `root`, or below a new private one in `temporary`.
    pub fn make(root: Option<&Path>, temporary: &Path, run_id: &str) -> Result<Self, LayoutError> {
        if root == Some(Path::new(NOWHERE)) {
            return Ok(Self {
                run: None,
                implicit_root: None,
            });
        }
        let (root, implicit_root) = if let Some(root) = root {
            make_named(root)?;
            (root.to_owned(), None)
        } else {
            let made = unique(temporary, IMPLICIT).or_else(|error| {
                let others = TEMPORARY.iter().map(Path::new);
                let made = others
                    .map(|other| unique(other, IMPLICIT))
                    .find_map(Result::ok);
                made.ok_or(error)
            })?;
            (made.clone(), Some(made))
        };
        // An id may hold what a directory's name may not.
        let prefix = format!("{}_", run_id.replace('/', "_"));
        let run = unique(&root, &prefix)?;
        Ok(Self {
            run: Some(run),
            implicit_root,
        })
    }

    /// The run's directory.
    pub fn run_dir(&self) -> Option<&Path> {
        self.run.as_deref()
    }

    /// Makes the directories of an attempt anew and returns the files of each worker. `logs` says
    /// whether any worker has other files than the one for its error.
    pub fn attempt(
        &self,
        attempt: u32,
        workers: u32,
        logs: bool,
    ) -> Result<Vec<WorkerFiles>, LayoutError> {
        let Some(directory) = self.attempt_dir(attempt) else {
            return Ok(vec![WorkerFiles::default(); workers as usize]);
        };
        if let Err(source) = fs::remove_dir_all(&directory) {
            if source.kind() != io::ErrorKind::NotFound {
                let path = directory;
                return Err(LayoutError::Remove { path, source });
            }
        }
        private(&directory)?;
        if self.implicit_root.is_some() && !logs {
            return Ok((0..workers)
                .map(|rank| WorkerFiles {
                    error: directory.join(format!("{rank}.error.json")),
                    ..WorkerFiles::default()
                })
                .collect());
        }
        (0..workers)
            .map(|rank| {
                let own = directory.join(rank.to_string());
                private(&own)?;
                Ok(WorkerFiles {
                    stdout: own.join("stdout.log"),
                    stderr: own.join("stderr.log"),
                    error: own.join("error.json"),
                    heartbeat: own.join("heartbeat"),
                })
            })
            .collect()
    }

    /// The attempt's directory, where files are kept.
    pub fn attempt_dir(&self, attempt: u32) -> Option<PathBuf> {
        Some(self.run.as_ref()?.join(format!("attempt_{attempt}")))
    }

    /// Removes what was made only for this run (D3): a directory that somebody has named stays. What
    /// cannot be removed is litter in the directory for temporary files.
    pub fn remove_implicit(&self) {
        if let Some(root) = &self.implicit_root {
            drop(fs::remove_dir_all(root));
        }
    }
}

fn make_named(root: &Path) -> Result<(), LayoutError> {
    match fs::metadata(root) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(LayoutError::NotADirectory(root.to_owned())),
        Err(_) => DirBuilder::new()
            .recursive(true)
            .create(root)
            .map_err(|source| LayoutError::Make {
                path: root.to_owned(),
                source,
            }),
    }
}

/// A new directory with this beginning of its name, for its owner alone.
fn unique(within: &Path, prefix: &str) -> Result<PathBuf, LayoutError> {
    let mut last = None;
    for _ in 0..TRIES {
        let path = within.join(format!("{prefix}{}", random_name(within)?));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
                last = Some((path, source));
            }
            Err(source) => return Err(LayoutError::Make { path, source }),
        }
    }
    let (path, source) = last.unwrap_or_else(|| (within.to_owned(), io::ErrorKind::Other.into()));
    Err(LayoutError::Make { path, source })
}

/// Eight characters that nobody can foresee; the directory's creation decides, not they.
fn random_name(within: &Path) -> Result<String, LayoutError> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| LayoutError::Make {
        path: within.to_owned(),
        source: error.into(),
    })?;
    let letter = |byte: u8| char::from(LETTERS[usize::from(byte & 31)]);
    Ok(bytes.map(letter).iter().collect())
}

fn private(path: &Path) -> Result<(), LayoutError> {
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(|source| LayoutError::Make {
            path: path.to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_7_each_rank_has_a_directory_in_its_attempt() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::make(Some(root.path()), Path::new("/nowhere"), "a/b").unwrap();
        let files = layout.attempt(0, 2, true).unwrap();
        let run = layout.run_dir().unwrap();
        let name = run.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.starts_with("a_b_"), "{name}");
        assert_eq!(files[1].stdout, run.join("attempt_0/1/stdout.log"));
        fs::write(&files[0].stdout, "old").unwrap();
        // The same attempt again begins anew.
        layout.attempt(0, 1, true).unwrap();
        assert!(!files[0].stdout.exists() && !run.join("attempt_0/1").exists());
        layout.attempt(1, 1, true).unwrap();
        assert!(run.join("attempt_1/0").is_dir());
    }

    #[test]
    fn row_9_a_file_is_no_log_directory_and_parents_are_made() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = Layout::make(Some(&file), root.path(), "id");
        assert!(matches!(refused, Err(LayoutError::NotADirectory(_))));
        let deep = root.path().join("a/b/c");
        Layout::make(Some(&deep), root.path(), "id").unwrap();
        assert!(deep.is_dir());
    }

    #[test]
    fn row_10_nowhere_keeps_nothing() {
        let layout = Layout::make(Some(Path::new("/dev/null")), Path::new("/x"), "id").unwrap();
        assert_eq!(
            layout.attempt(0, 2, true).unwrap(),
            vec![WorkerFiles::default(); 2]
        );
        assert_eq!(layout.run_dir(), None);
    }

    #[test]
    fn d3_a_root_that_nobody_named_can_be_removed() {
        let temporary = tempfile::tempdir().unwrap();
        let layout = Layout::make(None, temporary.path(), "id").unwrap();
        let files = layout.attempt(0, 64, true).unwrap();
        fs::write(&files[63].error, "{}").unwrap();
        layout.attempt(1, 1, true).unwrap();
        assert!(layout.run_dir().unwrap().exists());
        layout.remove_implicit();
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    }

    #[test]
    fn workers_without_logs_share_a_directory_that_nobody_named() {
        let temporary = tempfile::tempdir().unwrap();
        let layout = Layout::make(None, temporary.path(), "id").unwrap();
        let files = layout.attempt(0, 2, false).unwrap();
        let attempt = layout.attempt_dir(0).unwrap();
        assert_eq!(files[1].error, attempt.join("1.error.json"));
        assert_eq!(files[1].stdout, Path::new(""));
        assert_eq!(fs::read_dir(&attempt).unwrap().count(), 0);
        // Whoever names a directory finds the same in it for every run.
        let named = Layout::make(Some(temporary.path()), Path::new("/nowhere"), "id").unwrap();
        let files = named.attempt(0, 2, false).unwrap();
        assert!(files[1].error.ends_with("attempt_0/1/error.json"));
    }
}
