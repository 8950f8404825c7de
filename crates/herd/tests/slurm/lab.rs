//! A real Slurm cluster that tests share.

use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use herd_testing::SlurmLab;

/// A cluster. Tests that disturb none of the others share it.
pub(crate) struct Lab {
    whole: RwLock<()>,
    cluster: SlurmLab,
}

impl Lab {
    /// Brings it up with these options of `lab/slurm up`.
    pub(crate) fn up(options: &[&str]) -> Self {
        Self {
            whole: RwLock::default(),
            cluster: SlurmLab::up(options),
        }
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

impl Deref for Lab {
    type Target = SlurmLab;

    fn deref(&self) -> &SlurmLab {
        &self.cluster
    }
}
