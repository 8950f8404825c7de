//! The end of a run (§8): where Slurm ends a task's processes with its first one (`proctrack/cgroup`), a
//! node that is ready early waits for the others, since they may use what it has left running.
//!
//! Files in a shared home, as SkyPilot has them. It never fails a run.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::signal_files::{is_there, touch};

/// Pause between two looks for the directory.
const POLL: Duration = Duration::from_millis(100);
/// Pause between two looks at the others.
const SWEEP: Duration = Duration::from_millis(500);
/// How long the file system may fail without a break. It is longer than what a network file system may
/// keep in its caches (NFS: a minute).
const ERRORS: Duration = Duration::from_mins(5);
/// How long rank 0 waits for the others to have seen the end, before it removes the directory.
const LEAVING: Duration = Duration::from_secs(10);
/// File in which SkyPilot notes how Slurm tracks processes.
const PROCTRACK: &str = ".sky_proctrack_type";

/// One node's side of the barrier of a step.
#[derive(Clone, Debug)]
pub(super) struct Barrier {
    directory: PathBuf,
    rank: u32,
    ranks: u32,
    errors: Duration,
}

impl Barrier {
    /// The barrier of a run on several nodes; none where processes outlive their task anyway. Where it is
    /// not known how Slurm tracks them, they are taken to die.
    pub(super) fn needed(home: &Path, step: &str, rank: u32, ranks: u32) -> Option<Self> {
        let kind = fs::read_to_string(home.join(PROCTRACK)).unwrap_or_default();
        let survive = !matches!(kind.trim(), "" | "cgroup" | "unknown");
        (ranks > 1 && !survive).then(|| Self {
            directory: home.join(format!(".sky_run_done_{step}")),
            rank,
            ranks,
            errors: ERRORS,
        })
    }

    /// At rank 0, before any node starts: nothing that an earlier step of this number left counts (row 16).
    pub(super) fn prepare(&self) {
        if self.rank == 0 {
            self.remove();
        }
    }

    /// Says that this node is ready and waits until all are; those that are missing where the file system
    /// failed for too long. There is no bound on honest waiting: a node that fails ends the step.
    pub(super) async fn await_release(&self) -> Result<(), Vec<u32>> {
        let mut erring: Option<Instant> = None;
        let mut missing: Vec<u32> = (0..self.ranks).collect();
        let mut pause = POLL;
        if self.rank == 0 {
            // Only once: where somebody removes it, the wait has an end. Where it cannot be made, too.
            drop(fs::create_dir(&self.directory));
        }
        while self.rank > 0 && !self.directory.is_dir() {
            sleep(POLL).await;
        }
        loop {
            match self.sweep(&mut missing) {
                Ok(()) if missing.is_empty() => return Ok(()),
                Ok(()) => {
                    erring = None;
                    pause = SWEEP;
                }
                Err(()) => {
                    let since = *erring.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.errors {
                        return Err(missing);
                    }
                }
            }
            sleep(pause).await;
        }
    }

    /// Looks at each missing node by name. Its own file is made again where somebody removed it.
    fn sweep(&self, missing: &mut Vec<u32>) -> Result<(), ()> {
        touch(&self.file(self.rank)).map_err(|_error| ())?;
        let mut failed = false;
        missing.retain(|&rank| match File::open(self.file(rank)) {
            Ok(_) => false,
            Err(error) => {
                failed |= error.kind() != ErrorKind::NotFound;
                true
            }
        });
        if failed { Err(()) } else { Ok(()) }
    }

    /// After the release: rank 0 removes the directory once the others have seen that all are ready.
    pub(super) async fn leave(&self) {
        if self.rank > 0 {
            drop(touch(&self.left(self.rank)));
            return;
        }
        let until = Instant::now() + LEAVING;
        let all = || (1..self.ranks).all(|rank| is_there(&self.left(rank)));
        while !all() && Instant::now() < until {
            sleep(POLL).await;
        }
        self.remove();
    }

    /// At rank 0, where the run has failed.
    pub(super) fn withdraw(&self) {
        if self.rank == 0 {
            self.remove();
        }
    }

    fn remove(&self) {
        drop(fs::remove_dir_all(&self.directory));
    }

    fn file(&self, rank: u32) -> PathBuf {
        self.directory.join(rank.to_string())
    }

    fn left(&self, rank: u32) -> PathBuf {
        self.directory.join(format!("left-{rank}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn barrier(home: &Path, rank: u32) -> Barrier {
        Barrier::needed(home, "7_1", rank, 2).unwrap()
    }

    #[test]
    fn row_18_how_slurm_tracks_processes_decides() {
        let home = tempfile::tempdir().unwrap();
        let needed = |kind: &str| {
            fs::write(home.path().join(PROCTRACK), kind).unwrap();
            Barrier::needed(home.path(), "7_1", 0, 2).is_some()
        };
        assert!(needed("cgroup\n") && needed("unknown") && needed(""));
        assert!(!needed("linuxproc\n") && !needed("pgid"));
        let home = tempfile::tempdir().unwrap();
        assert!(Barrier::needed(home.path(), "7_1", 0, 2).is_some());
        assert!(Barrier::needed(home.path(), "7_1", 0, 1).is_none());
    }

    #[tokio::test]
    async fn row_16_files_of_before_release_nobody_and_none_are_left() {
        let home = tempfile::tempdir().unwrap();
        let (first, second) = (barrier(home.path(), 0), barrier(home.path(), 1));
        fs::create_dir(&first.directory).unwrap();
        touch(&first.file(0)).unwrap();
        touch(&first.file(1)).unwrap();
        first.prepare();
        let early = tokio::time::timeout(Duration::from_millis(700), first.await_release()).await;
        assert!(early.is_err());
        let (one, two) = tokio::join!(first.await_release(), second.await_release());
        assert!(one.is_ok() && two.is_ok());
        tokio::join!(first.leave(), second.leave());
        assert!(!first.directory.exists());
    }

    #[tokio::test]
    async fn row_17_a_directory_that_is_gone_ends_the_wait_with_the_names() {
        let home = tempfile::tempdir().unwrap();
        let first = Barrier {
            errors: Duration::from_millis(300),
            ..barrier(home.path(), 0)
        };
        let remove = async {
            while fs::remove_dir_all(&first.directory).is_err() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let (released, ()) = tokio::join!(first.await_release(), remove);
        assert_eq!(released, Err(vec![1]));
    }
}
