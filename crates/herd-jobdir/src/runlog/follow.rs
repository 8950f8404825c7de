//! Goes on reading while a job writes, until it has its result.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::filter::Filter;
use super::reader::{Entry, RunLogReader};
use crate::error::JobDirError;

/// Longest wait before looking again: changes made on another host are not announced.
pub(super) const POLL: Duration = Duration::from_millis(250);

/// A reader that waits for more.
#[derive(Debug)]
pub struct Follow {
    job_dir: PathBuf,
    filter: Filter,
    reader: Option<RunLogReader>,
    /// Absent where the system has no watch to give; then only the period wakes.
    watch: Option<Inotify>,
    /// Whether the result was there before the last look at the log.
    settled: bool,
}

/// What following brought.
#[derive(Debug)]
pub enum Followed<'a> {
    /// A wanted piece.
    Entry(Entry<'a>),
    /// Nothing within the time given.
    Idle,
    /// The job has its result and everything was read.
    Ended,
}

impl Follow {
    /// Follows the merged output of a job, whether or not it has begun.
    pub fn new(job_dir: &Path, filter: Filter) -> Self {
        let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
        let watch = watch.filter(|watch| {
            let changes =
                AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
            watch.add_watch(job_dir, changes).is_ok()
        });
        Self {
            job_dir: job_dir.to_path_buf(),
            filter,
            reader: None,
            watch,
            settled: false,
        }
    }

    /// The next piece, waiting at most `timeout` (a quarter of a second where longer: call again).
    pub fn next(&mut self, timeout: Duration) -> Result<Followed<'_>, JobDirError> {
        if !self.advance()? {
            if self.settled {
                return Ok(Followed::Ended);
            }
            self.wait(timeout.min(POLL));
            if !self.advance()? {
                return Ok(Followed::Idle);
            }
        }
        let entry = self.reader.as_ref().and_then(RunLogReader::entry);
        Ok(entry.map_or(Followed::Idle, Followed::Entry))
    }

    fn advance(&mut self) -> Result<bool, JobDirError> {
        if self.read_on()? {
            return Ok(true);
        }
        if self.settled || !self.job_dir.join("result.json").exists() {
            return Ok(false);
        }
        // What was written before the result is there now, though it may not have been before.
        self.settled = true;
        self.read_on()
    }

    fn read_on(&mut self) -> Result<bool, JobDirError> {
        if self.reader.is_none() {
            self.reader = RunLogReader::open(&self.job_dir, self.filter.clone())?;
        }
        match &mut self.reader {
            Some(reader) => reader.advance(),
            None => Ok(false),
        }
    }

    fn wait(&self, timeout: Duration) {
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::ZERO);
        match &self.watch {
            Some(watch) => {
                let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
                // An interrupted wait is a short one; the caller looks and comes again.
                if poll(&mut fds, timeout).is_ok() {
                    // What changed does not matter, only that the queue is empty again.
                    drop(watch.read_events());
                }
            }
            None => drop(poll(&mut [], timeout)),
        }
    }
}
