//! Small files written whole, written once or appended to; modes 0600 and 0700 throughout.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::JobDirError;

/// Names tried for a temporary file before giving up.
const TEMPORARY_NAMES: u32 = 16;

/// Whether a write outlives a crash of the machine, or only of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// File and directory are synced before the call returns.
    Machine,
    /// Left to the kernel: survives the process, not a power cut.
    Process,
}

/// Replaces `path` in one step: a reader sees the old content or the new one.
pub(crate) fn write_atomic(
    path: &Path,
    bytes: &[u8],
    durability: Durability,
) -> Result<(), JobDirError> {
    let temporary = write_temporary(path, bytes, durability)?;
    if let Err(error) = fs::rename(&temporary, path) {
        discard(&temporary);
        return Err(JobDirError::io("replace", path, error));
    }
    sync_parent(path, durability)
}

/// Creates `path` with this content, or fails with [`JobDirError::AlreadyWritten`].
///
/// A hard link of a complete temporary file: as exclusive as `O_EXCL`, but no crash can leave the
/// file present and empty.
pub(crate) fn write_once(
    path: &Path,
    bytes: &[u8],
    durability: Durability,
) -> Result<(), JobDirError> {
    let temporary = write_temporary(path, bytes, durability)?;
    let linked = match fs::hard_link(&temporary, path) {
        Ok(()) => Ok(()),
        // A network file system may repeat a request whose answer was lost: the count of links
        // tells whether the one that exists is ours.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            match fs::symlink_metadata(&temporary) {
                Ok(meta) if meta.nlink() == 2 => Ok(()),
                Ok(_) | Err(_) => Err(JobDirError::AlreadyWritten(path.to_path_buf())),
            }
        }
        Err(error) if is_without_links(&error) => write_exclusive(path, bytes, durability),
        Err(error) => Err(JobDirError::io("create", path, error)),
    };
    discard(&temporary);
    linked?;
    sync_parent(path, durability)
}

/// The whole file, or nothing where it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, JobDirError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(JobDirError::io("read", path, error)),
    }
}

/// As [`read`], decoded.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, JobDirError> {
    let Some(bytes) = read(path)? else {
        return Ok(None);
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|source| JobDirError::Malformed {
            path: path.to_path_buf(),
            source,
        })
}

/// JSON on one line, with its newline.
pub(crate) fn json_line<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, JobDirError> {
    let mut bytes = serde_json::to_vec(value).map_err(|source| JobDirError::Malformed {
        path: path.to_path_buf(),
        source,
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Makes a directory 0700, with its parents; one that exists is left alone.
pub(crate) fn create_dir(path: &Path) -> Result<(), JobDirError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(JobDirError::at("create directory", path))
}

/// Opens for appending, 0600. A last line that a crash left without its end is ended first, so
/// that it cannot swallow the next one.
pub(crate) fn open_append(path: &Path) -> Result<File, JobDirError> {
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(JobDirError::at("open", path))?;
    end_torn_line(&mut file).map_err(JobDirError::at("repair", path))?;
    Ok(file)
}

/// Parses a file of JSON lines and skips what it cannot parse: a torn end, or a newer release's.
pub(crate) fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, JobDirError> {
    let bytes = read(path)?.unwrap_or_default();
    Ok(bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect())
}

/// Parses the complete JSON lines after `offset`; the second value is the offset to go on from.
///
/// A last line without its end is left for the next call, lines that cannot be parsed are skipped.
/// At most `most` bytes are read; a single line longer than that is skipped too.
pub(crate) fn read_lines_after<T: DeserializeOwned>(
    path: &Path,
    offset: u64,
    most: u64,
) -> Result<(Vec<T>, u64), JobDirError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), offset)),
        Err(error) => return Err(JobDirError::io("open", path, error)),
    };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset))
        .and_then(|_| file.take(most).read_to_end(&mut bytes))
        .map_err(JobDirError::at("read", path))?;
    let complete = match memchr::memrchr(b'\n', &bytes) {
        Some(end) => end + 1,
        None if bytes.len() as u64 == most => bytes.len(),
        None => 0,
    };
    let lines = bytes[..complete]
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    Ok((lines, offset + complete as u64))
}

fn end_torn_line(file: &mut File) -> io::Result<()> {
    if file.metadata()?.len() == 0 {
        return Ok(());
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last == *b"\n" {
        Ok(())
    } else {
        file.write_all(b"\n")
    }
}

fn write_temporary(
    path: &Path,
    bytes: &[u8],
    durability: Durability,
) -> Result<PathBuf, JobDirError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut tries = 0;
    let (temporary, file) = loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".{name}.{}.{number}", std::process::id()));
        tries += 1;
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
        {
            Ok(file) => break (temporary, file),
            // Left by a crashed process with the same id, or in use on another host.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < TEMPORARY_NAMES => {}
            Err(error) => return Err(JobDirError::io("create", &temporary, error)),
        }
    };
    if let Err(error) = fill(file, bytes, durability) {
        discard(&temporary);
        return Err(JobDirError::io("write", path, error));
    }
    Ok(temporary)
}

fn write_exclusive(path: &Path, bytes: &[u8], durability: Durability) -> Result<(), JobDirError> {
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
    {
        Ok(file) => fill(file, bytes, durability).map_err(JobDirError::at("write", path)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(JobDirError::AlreadyWritten(path.to_path_buf()))
        }
        Err(error) => Err(JobDirError::io("create", path, error)),
    }
}

fn fill(mut file: File, bytes: &[u8], durability: Durability) -> io::Result<()> {
    file.write_all(bytes)?;
    match durability {
        Durability::Machine => file.sync_all(),
        Durability::Process => Ok(()),
    }
}

fn sync_parent(path: &Path, durability: Durability) -> Result<(), JobDirError> {
    match (durability, path.parent()) {
        (Durability::Machine, Some(parent)) => File::open(parent)
            .and_then(|directory| directory.sync_all())
            .map_err(JobDirError::at("sync", parent)),
        (Durability::Machine | Durability::Process, _) => Ok(()),
    }
}

fn is_without_links(error: &io::Error) -> bool {
    // EPERM is what Linux says where the file system knows no hard links.
    matches!(
        error.kind(),
        ErrorKind::Unsupported | ErrorKind::PermissionDenied
    )
}

/// Removes a temporary file of ours. What stays behind does no harm: its name starts with a dot.
fn discard(path: &Path) {
    drop(fs::remove_file(path));
}
