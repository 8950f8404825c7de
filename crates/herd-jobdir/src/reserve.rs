//! Space that is held back for the last records of an attempt, so that a disk that is full by then
//! still takes them.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};

/// Bytes held back: the end of an attempt whose ranks all failed, and the job's result.
const BYTES: i64 = 256 * 1024;

/// A file that takes the space. Dropped, it gives the space back.
#[derive(Debug)]
pub struct Reserve {
    path: PathBuf,
}

impl Reserve {
    /// Holds space back in `directory`. A disk that has none left, or a file system that cannot
    /// promise any, is no reason to fail: then nothing is held back.
    pub(crate) fn hold(directory: &Path) -> Self {
        let path = directory.join(".reserve");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        if let Ok(file) = file {
            let _unpromised = fallocate(file, FallocateFlags::empty(), 0, BYTES);
        }
        Self { path }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn space_is_held_and_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::hold(directory.path());
        let held = fs::metadata(directory.path().join(".reserve")).unwrap();
        assert!(held.blocks() * 512 >= BYTES.unsigned_abs());
        drop(reserve);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
