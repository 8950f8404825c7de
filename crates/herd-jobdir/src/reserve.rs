//! Space that is held back for the last records of an attempt, so that a disk that is full by then
//! still takes them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{FallocateFlags, fallocate};

/// Bytes held back: the end of an attempt whose ranks all failed, and the job's result.
const BYTES: i64 = 256 * 1024;

/// A file without a name that takes the space. Dropped, or when its process ends in any way, the
/// space is free again.
#[derive(Debug)]
pub struct Reserve {
    file: Option<File>,
}

impl Reserve {
    /// Holds space back in `directory`. A disk that has none left, or a file system that cannot
    /// promise any, is no reason to fail: then nothing is held back.
    pub(crate) fn hold(directory: &Path) -> Self {
        let path = directory.join(format!(".reserve.{}", std::process::id()));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .ok();
        if let Some(file) = &file {
            drop(fs::remove_file(&path));
            let _unpromised = fallocate(file, FallocateFlags::empty(), 0, BYTES);
        }
        Self { file }
    }

    /// Gives the space back.
    pub fn release(self) {
        drop(self.file);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn space_is_held_without_a_name() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::hold(directory.path());
        let held = reserve.file.as_ref().unwrap().metadata().unwrap();
        assert!(held.blocks() * 512 >= BYTES.unsigned_abs());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
