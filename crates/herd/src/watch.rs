//! Waiting for files to change, with a bound: inotify where it works, the bound alone elsewhere
//! (network file systems announce nothing).

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// Longest wait when nothing is announced.
pub(crate) const BOUND: Duration = Duration::from_millis(200);

/// A set of directories and files whose changes end a wait.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: Option<Inotify>,
}

impl Watch {
    /// A watch over nothing.
    pub(crate) fn new() -> Self {
        Self {
            inotify: Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok(),
        }
    }

    /// Adds a path; one that does not exist, or a limit that is reached, leaves the bound.
    pub(crate) fn add(&self, path: &Path) {
        let flags = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE_SELF;
        if let Some(inotify) = &self.inotify {
            let _added = inotify.add_watch(path, flags);
        }
    }

    /// Adds a directory for its new names alone, not for what is written into its files.
    pub(crate) fn add_names(&self, directory: &Path) {
        if let Some(inotify) = &self.inotify {
            let flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
            let _added = inotify.add_watch(directory, flags);
        }
    }

    /// Returns after a change, or after the bound.
    pub(crate) fn wait(&self, bound: Duration) {
        let timeout = PollTimeout::try_from(bound).unwrap_or(PollTimeout::MAX);
        let Some(inotify) = &self.inotify else {
            let _nothing = poll(&mut [], timeout);
            return;
        };
        // An interrupted wait is an early return, which every caller takes for a change.
        let _changed = poll(
            &mut [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)],
            timeout,
        );
        while inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_change_ends_the_wait_early() {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::new();
        watch.add(dir.path());
        std::fs::write(dir.path().join("x"), "y").unwrap();
        let start = Instant::now();
        watch.wait(Duration::from_secs(30));
        assert!(start.elapsed() < Duration::from_secs(25));
    }

    #[test]
    fn a_missing_path_leaves_the_bound() {
        let watch = Watch::new();
        watch.add(Path::new("/nonexistent/path"));
        let start = Instant::now();
        watch.wait(Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}
