//! How the driver and the nodes tell each other that the allocation is there and that setup is done (§7):
//! files in a shared home.
//!
//! The driver removes them when a run has ended well, and leaves them behind otherwise (row 26). Here they
//! are gone as soon as every node has seen them: each says so by a mark beside them, which rank 0 takes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Pause between two looks.
const POLL: Duration = Duration::from_millis(100);
/// How long the mark of a node that has nothing more to do is left for rank 0 to take.
const MARK_BOUND: Duration = Duration::from_secs(1);

/// The files of one step, as one of its nodes uses them.
#[derive(Clone, Debug)]
pub(super) struct SignalFiles {
    pub(super) alloc: Option<PathBuf>,
    pub(super) setup_done: Option<PathBuf>,
    pub(super) rank: u32,
    pub(super) nodes: u32,
}

impl SignalFiles {
    /// Tells the driver that the allocation is there: rank 0 does.
    pub(super) fn announce(&self) -> io::Result<()> {
        match &self.alloc {
            Some(path) if self.rank == 0 => touch(path),
            _ => Ok(()),
        }
    }

    /// Waits until setup is done. A driver that is gone has taken its `srun` along, and that this process;
    /// so this wait ends with the step. Cancel-safe.
    pub(super) async fn await_start(&self) {
        let Some(path) = &self.setup_done else { return };
        while !is_there(path) {
            sleep(POLL).await;
        }
        if self.rank > 0 {
            // Without it the files stay until the driver removes them.
            drop(touch(&mark(path, self.rank)));
        }
    }

    /// At rank 0, after the start: removes the files once every node has seen them. Cancel-safe.
    pub(super) async fn collect(&self) {
        let Some(path) = &self.setup_done else { return };
        if self.rank > 0 {
            return;
        }
        let mut missing: Vec<u32> = (1..self.nodes).collect();
        loop {
            missing.retain(|&rank| fs::remove_file(mark(path, rank)).is_err());
            if missing.is_empty() {
                break;
            }
            sleep(POLL).await;
        }
        self.withdraw();
    }

    /// When this node's part has ended well: its mark does not stay.
    pub(super) async fn leave(&self) {
        let Some(path) = &self.setup_done else { return };
        if self.rank == 0 {
            return;
        }
        let own = mark(path, self.rank);
        let until = Instant::now() + MARK_BOUND;
        while is_there(&own) && Instant::now() < until {
            sleep(POLL).await;
        }
        drop(fs::remove_file(own));
    }

    /// Removes what the job no longer needs, in whatever state it is.
    pub(super) fn withdraw(&self) {
        let own_mark = |path: &PathBuf| drop(fs::remove_file(mark(path, self.rank)));
        self.setup_done.iter().for_each(own_mark);
        if self.rank == 0 {
            for path in self.alloc.iter().chain(&self.setup_done) {
                drop(fs::remove_file(path));
            }
        }
    }
}

/// The file by which a node says that it has seen another.
fn mark(path: &Path, rank: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{rank}"));
    PathBuf::from(name)
}

/// Makes an empty file, or finds that it is there.
pub(super) fn touch(path: &Path) -> io::Result<()> {
    let made = OpenOptions::new().create(true).append(true).open(path);
    made.map(drop)
}

/// Whether a file is there. It is opened rather than asked for, which network file systems answer anew.
pub(super) fn is_there(path: &Path) -> bool {
    File::open(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(home: &Path, rank: u32) -> SignalFiles {
        SignalFiles {
            alloc: Some(home.join("alloc")),
            setup_done: Some(home.join("done")),
            rank,
            nodes: 2,
        }
    }

    #[tokio::test]
    async fn row_26_nothing_is_left_once_all_have_seen_the_files() {
        let home = tempfile::tempdir().unwrap();
        let (first, second) = (files(home.path(), 0), files(home.path(), 1));
        second.announce().unwrap();
        assert!(!is_there(&home.path().join("alloc")));
        first.announce().unwrap();
        assert!(is_there(&home.path().join("alloc")));
        touch(&home.path().join("done")).unwrap();
        let other = async {
            second.await_start().await;
            second.leave().await;
        };
        let own = async {
            first.await_start().await;
            first.collect().await;
        };
        tokio::join!(own, other);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn row_26_a_node_that_fails_takes_its_files_along() {
        let home = tempfile::tempdir().unwrap();
        let (first, second) = (files(home.path(), 0), files(home.path(), 1));
        first.announce().unwrap();
        touch(&home.path().join("done")).unwrap();
        second.await_start().await;
        second.withdraw();
        first.withdraw();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
