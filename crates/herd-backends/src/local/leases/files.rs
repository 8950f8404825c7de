//! The locked files themselves: made by one user, opened by all, trusted with care.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use nix::libc;

use super::{Entry, LeaseError};

/// Longest entry that is read: entries come from other users.
const ENTRY_BYTES: u64 = 4096;
/// A job that has not looked for this long while it waits goes last.
const STANDS_STILL: Duration = Duration::from_secs(15);
/// An entry that was never finished is removed after this long.
const UNFINISHED_SECONDS: u64 = 60;

/// A locked entry that says who waits or holds.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// Keeps the lock.
    file: File,
}

impl Place {
    /// Makes an entry under its final name only once it is locked: another process would take an
    /// unlocked one for stale.
    pub(super) fn take(directory: &Path, name: &str, entry: &Entry) -> Result<Self, LeaseError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(name);
        let unfinished = directory.join(format!(".{name}.{}.{number}", std::process::id()));
        let mut file = create_readable(&unfinished).map_err(failed("create", &unfinished))?;
        let filled = serde_json::to_vec(entry)
            .map_err(io::Error::from)
            .and_then(|text| file.write_all(&text))
            .and_then(|()| file.try_lock().map_err(io::Error::from))
            .and_then(|()| fs::rename(&unfinished, &path));
        if let Err(source) = filled {
            drop(fs::remove_file(&unfinished));
            return Err(LeaseError::Io {
                action: "create",
                path,
                source,
            });
        }
        Ok(Self { path, file })
    }
}

impl Place {
    /// Says that its process still looks. Where that fails, others go first after a while.
    pub(super) fn refresh(&self) {
        let _stands_still = self.file.set_modified(SystemTime::now());
    }
}

/// Whether an entry's process has looked not long ago. One that was stopped (SIGSTOP) keeps its lock;
/// until it goes on, those behind it must not wait for it.
pub(super) fn is_fresh(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .and_then(|metadata| metadata.modified())
        // A time that is still to come is one before the clock was set back.
        .is_ok_and(|at| at.elapsed().unwrap_or_default() < STANDS_STILL)
}

impl Drop for Place {
    fn drop(&mut self) {
        // Before the lock goes, so that only our own entry is ever removed here. One that stays
        // behind is stale and does no harm.
        drop(fs::remove_file(&self.path));
    }
}

/// The entry, where somebody holds its lock. A stale one is removed where the system permits.
pub(super) fn live_entry(path: &Path) -> Option<Entry> {
    let mut file = open_plain(path).ok()?;
    let unfinished = path.file_name()?.to_string_lossy().starts_with('.');
    match file.try_lock_shared() {
        Ok(()) => {
            let age = file
                .metadata()
                .ok()?
                .modified()
                .ok()?
                .elapsed()
                .unwrap_or_default();
            // Between its creation and its lock an entry looks stale.
            if !unfinished || age.as_secs() > UNFINISHED_SECONDS {
                drop(fs::remove_file(path));
            }
            None
        }
        Err(TryLockError::WouldBlock) if unfinished => None,
        Err(TryLockError::WouldBlock) => {
            let mut text = Vec::new();
            (&mut file).take(ENTRY_BYTES).read_to_end(&mut text).ok()?;
            serde_json::from_slice(&text).ok()
        }
        Err(TryLockError::Error(_)) => None,
    }
}

/// Locks a description of its own, so that the lock lives as long as what is returned.
pub(super) fn lock(file: &File, path: &Path) -> Result<Option<File>, LeaseError> {
    match file.try_lock() {
        Ok(()) => file.try_clone().map(Some).map_err(failed("lock", path)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(LeaseError::Io {
            action: "lock",
            path: path.to_path_buf(),
            source,
        }),
    }
}

/// Opens a lock's file, made where it is absent; it is never removed, so all lock the same one.
pub(super) fn open_lock(path: &Path) -> Result<File, LeaseError> {
    // Without O_CREAT first: the kernel forbids that on another's file in a sticky directory.
    match open_plain(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => match create_readable(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => open_plain(path),
            other => other,
        },
        other => other,
    }
    .map_err(failed("open", path))
}

/// Opens a regular file for reading; follows no link and waits for no pipe. Reading is all that
/// locking takes, so that other users' files serve as well.
fn open_plain(path: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(ErrorKind::InvalidInput.into())
    }
}

fn create_readable(path: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)?;
    // Whatever the umask said: other users must be able to open it.
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    Ok(file)
}

/// Makes a directory that everybody may write to and nobody may delete another's file from.
pub(super) fn make_shared(path: &Path) -> Result<(), LeaseError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o1777))
            .map_err(failed("open to all", path))?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(source) => {
            return Err(LeaseError::Io {
                action: "create",
                path: path.to_path_buf(),
                source,
            });
        }
    }
    let meta = fs::symlink_metadata(path).map_err(failed("look at", path))?;
    let own = meta.uid() == nix::unistd::geteuid().as_raw();
    let reason = if !meta.is_dir() {
        "it is not a directory"
    } else if own && meta.mode() & 0o1777 == 0o1777 {
        return Ok(());
    } else if own && meta.mode() & 0o022 == 0 {
        // Private: nobody else can meddle, and nobody else takes part.
        return Ok(());
    } else if meta.mode() & 0o1777 != 0o1777 {
        "it is not shared with the sticky bit"
    } else {
        // Another user made it, or root. Its owner could remove locks, and so use a GPU that is
        // leased; but no lock keeps that user from the GPU anyway.
        return Ok(());
    };
    Err(LeaseError::Refused {
        path: path.to_path_buf(),
        reason,
    })
}

pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LeaseError {
    move |source| LeaseError::Io {
        action,
        path: path.to_path_buf(),
        source,
    }
}
