//! The one inotify of a follower, opened with its first watch.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub(super) enum Inotify {
    Unopened,
    Open(AsyncFd<OwnedFd>),
    Unavailable,
}

impl Inotify {
    pub(super) fn watch(&mut self, file: Option<&File>, path: &Path) -> Option<i32> {
        if matches!(self, Self::Unopened) {
            *self = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
                .map_err(io::Error::from)
                .and_then(crate::sys::watch_readable)
                .map_or(Self::Unavailable, Self::Open);
        }
        let Self::Open(inotify) = self else {
            return None;
        };
        let flags = WatchFlags::MODIFY | WatchFlags::ONESHOT;
        // By descriptor first: the path may name another file by now.
        let by_descriptor = format!("/proc/self/fd/{}", file?.as_raw_fd());
        inotify::add_watch(inotify.get_ref(), by_descriptor, flags)
            .or_else(|_no_proc| inotify::add_watch(inotify.get_ref(), path, flags))
            .ok()
    }
}
