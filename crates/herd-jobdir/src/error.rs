//! What can go wrong with the files of a job.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A file or directory of a job could not be used.
#[derive(Debug, Error)]
pub enum JobDirError {
    /// The disk or the quota is full.
    #[error("no space left to {action} {}", path.display())]
    DiskFull {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file's content cannot be understood.
    #[error("cannot understand {}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// The file is written once, and was.
    #[error("{} was written before", _0.display())]
    AlreadyWritten(PathBuf),
    /// Another driver owns the attempt; the text is its backend id.
    #[error("the attempt belongs to {0}")]
    AlreadyOwned(String),
    /// The directory cannot serve as home.
    #[error("refused to use {} as home: {reason}", path.display())]
    HomeRefused {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// The environment names no place for a home.
    #[error("none of HERD_HOME, XDG_STATE_HOME and HOME names a place for job directories")]
    NoHome,
    /// No directory for this job.
    #[error("no job {0}")]
    NoSuchJob(herd_core::JobId),
    /// A name that cannot be a file name.
    #[error("refused the name {0:?} for a file")]
    BadName(String),
}

impl JobDirError {
    /// Names the path and tells a full disk from everything else.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull {
                action,
                path,
                source,
            },
            _ => Self::Io {
                action,
                path,
                source,
            },
        }
    }

    /// For use with `map_err`.
    pub(crate) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::io(action, path, source)
    }
}
