//! The files of one rank in the attempt's directory.

use std::path::{Path, PathBuf};

pub(crate) use herd_jobdir::last_lines;

/// The files of one rank.
pub(crate) struct RankFiles {
    pub(crate) stdout: PathBuf,
    pub(crate) stderr: PathBuf,
    pub(crate) error_file: PathBuf,
}

impl RankFiles {
    pub(crate) fn of(attempt_dir: &Path, rank: u32) -> Self {
        let directory = attempt_dir.join("ranks").join(rank.to_string());
        Self {
            stdout: directory.join("stdout.log"),
            stderr: directory.join("stderr.log"),
            error_file: directory.join("error.json"),
        }
    }
}
