//! What driver and executors do about their directory where nodes share none with the submitting side.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use herd_core::text::error_line;
use herd_jobdir::{Home, JobDir};
use herd_link::message::ToCoordinator;
use herd_slurm::staging::WORK;
use tokio::time::{Instant, sleep};

use super::left::STAYS;
use crate::local::target;

/// The file by which the driver asks for its records to be given away; it is gone when they are.
pub(super) const ASKED: &str = "asked";
/// What it holds where Slurm is to start the job again.
pub(super) const REQUEUE: &str = "requeue";
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// The driver's directory on its node.
#[derive(Clone, Debug)]
pub struct NodeSide(PathBuf);

impl NodeSide {
    /// The one in which the jobs of this home lie.
    pub(in crate::slurm) fn of(home: &Home) -> Self {
        Self(home.path().to_owned())
    }

    /// The directory, the same on each node.
    pub(in crate::slurm) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes it with all that is in it, but for a directory of work that nobody has: then why.
    pub(in crate::slurm) fn remove(&self) -> io::Result<Option<String>> {
        let Ok(why) = fs::read_to_string(self.0.join(STAYS)) else {
            return fs::remove_dir_all(&self.0).map(|()| None);
        };
        for entry in fs::read_dir(&self.0)?.flatten() {
            if entry.file_name() != WORK {
                let path = entry.path();
                let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
                // What cannot be removed now is in the way of nobody.
                drop(if is_dir {
                    fs::remove_dir_all(path)
                } else {
                    fs::remove_file(path)
                });
            }
        }
        Ok(Some(why))
    }
}

/// Waits until the submitting side has all that stands in the records now, no longer than `bound` from the
/// last part of what the job has left, which may be large. With
/// `requeue` it then has Slurm start the job again, for which nodes may have no command.
pub(in crate::slurm) async fn kept_here(side: &NodeSide, requeue: bool, bound: Duration) -> bool {
    let asked = side.0.join(ASKED);
    let new = side.0.join(".asked");
    let mut until = Instant::now() + bound;
    let text = if requeue { REQUEUE } else { "" };
    if fs::write(&new, text)
        .and_then(|()| fs::rename(&new, &asked))
        .is_err()
    {
        return false;
    }
    let mut touched = None;
    while let Ok(data) = fs::metadata(&asked) {
        let now = data.modified().ok();
        if now != touched {
            touched = now;
            until = Instant::now() + bound;
        }
        if Instant::now() > until {
            return false;
        }
        sleep(LOOK).await;
    }
    true
}

/// Hands a request for the end to the driver on this node.
pub(super) fn pass_on(job: &Path, signal: i32, grace_ms: Option<u64>, by: &str) -> io::Result<()> {
    let Some(job) = open(job) else {
        return Err(io::Error::other("the job's directory has no right name"));
    };
    let request = ToCoordinator::Cancel {
        signal,
        grace_ms,
        by: by.to_owned(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // A driver that has no port, before or after its attempt, is told by Slurm.
    let asked = match target(&job) {
        Ok(target) => runtime
            .block_on(target.ask(&request))
            .map_err(|error| error_line(&error)),
        Err(error) => Err(error_line(&error)),
    };
    if let Err(why) = asked {
        drop(io::Write::write_all(
            &mut io::stderr(),
            format!("herd: {why}\n").as_bytes(),
        ));
    }
    Ok(())
}

fn open(job: &Path) -> Option<JobDir> {
    let id = job.file_name()?.to_str()?.parse().ok()?;
    Home::at(job.parent()?.parent()?).ok()?.open(id).ok()
}
