//! Space that is held back for the last records of an attempt, so that a disk that is full by then
//! still takes them; and the question whether there is room for a job's records at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

use crate::error::JobDirError;

/// Bytes held back: the end of an attempt whose ranks all failed, and the job's result. On a small
/// disk less, which is enough where few ranks have failed.
const BYTES: [i64; 3] = [256 * 1024, 64 * 1024, 16 * 1024];
/// Bytes that must be free for a job to be taken: its records, with little in its logs.
const ROOM: i64 = 64 * 1024;

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
        let file = nameless(directory).ok();
        if let Some(file) = &file {
            let _unpromised = BYTES
                .into_iter()
                .find(|&bytes| allocate(file, bytes).is_ok());
        }
        Self { file }
    }

    /// Gives the space back.
    pub fn release(self) {
        drop(self.file);
    }
}

/// Fails where the disk that `directory` is on has no room for a job's records. File systems that
/// cannot promise space are believed to have it.
pub(crate) fn require_room(directory: &Path) -> Result<(), JobDirError> {
    let allocated = nameless(directory).and_then(|file| match allocate(&file, ROOM) {
        Err(errno @ (Errno::ENOSPC | Errno::EDQUOT)) => Err(errno.into()),
        Ok(()) | Err(_) => Ok(()),
    });
    allocated.map_err(JobDirError::at("keep the records of a job in", directory))
}

/// A new file without a name.
fn nameless(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!(".reserve.{}", std::process::id()));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

fn allocate(file: &File, bytes: i64) -> nix::Result<()> {
    fallocate(file, FallocateFlags::empty(), 0, bytes)
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
        assert!(held.blocks() * 512 >= BYTES[0].unsigned_abs());
        require_room(directory.path()).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
