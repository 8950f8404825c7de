//! A real Slurm cluster that tests share.

use std::ops::Deref;
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use herd_testing::SlurmLab;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

/// A cluster. Tests that disturb none of the others share it.
pub(crate) struct Lab {
    whole: RwLock<()>,
    small: TempDir,
    cluster: SlurmLab,
}

impl Lab {
    /// Brings it up with these options of `lab/slurm up`.
    pub(crate) fn up(options: &[&str]) -> Self {
        let small = small_file_system();
        Self {
            small,
            whole: RwLock::default(),
            cluster: SlurmLab::up(options),
        }
    }

    /// A directory on a small file system that all machines of the cluster see.
    pub(crate) fn small(&self) -> &Path {
        self.small.path()
    }

    /// For a test beside others.
    pub(crate) fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.whole.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a test that the others would notice.
    pub(crate) fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.whole.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What jobs left running on the nodes.
    pub(crate) fn left(&self) -> String {
        self.slurm(&["processes"])
    }
}

/// Gives this process mounts of its own, which the clusters see that it brings up. It must have one thread.
pub(crate) fn own_mounts() {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).unwrap();
}

/// It goes with the last process that has these mounts.
fn small_file_system() -> TempDir {
    let directory = tempfile::Builder::new()
        .prefix("herd-small-")
        .tempdir()
        .unwrap();
    let options = Some("size=4m,mode=0700");
    let kind = Some("tmpfs");
    mount(kind, directory.path(), kind, MsFlags::empty(), options).unwrap();
    directory
}

impl Drop for Lab {
    fn drop(&mut self) {
        // The cluster still has it in mounts of its own.
        let _gone = umount2(self.small.path(), MntFlags::MNT_DETACH);
    }
}

impl Deref for Lab {
    type Target = SlurmLab;

    fn deref(&self) -> &SlurmLab {
        &self.cluster
    }
}
