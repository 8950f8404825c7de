//! Follows many growing files with one inotify and no thread. It only reads, keeps at most one
//! descriptor a file, and treats a file as bytes: offsets go on from where the caller started.
//! Where somebody else reads the files, it tells how far they have grown, and gives out their first
//! [`HEAD`] bytes, by which the reader knows a file again.
//!
//! A file that its writer truncates (`> /dev/stdout` in a shell opens it anew) is read again from its
//! beginning. It is known by being shorter than what was read, or by another beginning, or, where
//! all of it is the same, by being written to without having grown.
//!
//! A file is in one of four phases. *Ready*: it may have bytes and waits for its turn. *Warm*: it
//! is new or had bytes a moment ago and is looked at again soon, so that a busy writer costs one
//! read each few milliseconds instead of one event a write, and what is over before it was quiet
//! needs no watch: the system takes many milliseconds to take one down. *Armed*: at its end, with a
//! one-shot watch. *Polled*: absent, or where a watch cannot be had or trusted.

mod followed;
mod tail;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{Future as _, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::fs::inotify;
use tokio::time::{Instant, Sleep, sleep};

pub use self::followed::{CHUNK_MAX, FileId, Followed, HEAD};
pub use self::tail::{Head, open_log};
use self::tail::{Phase, Tail, Telling, open, take};
use self::watch::Inotify;

/// How soon a file that had bytes is looked at again; each look without any doubles the pause.
const WARM: Duration = Duration::from_millis(2);
/// Longest pause before a warm file is looked at again.
const WARM_MAX: Duration = Duration::from_millis(16);
/// A file that was quiet for so long gets a watch.
const QUIET: Duration = Duration::from_millis(100);
/// How often files without a reliable watch are looked at.
const POLL: Duration = Duration::from_millis(100);
/// After so many turns events and the clock are looked at although files are ready, so that one with
/// a long backlog does not keep the quiet ones waiting.
const LOOK_AFTER: u32 = 16;
/// Files with a watch on a local file system are looked at once in so many polls.
const POLLS_WHEN_ARMED: u32 = 10;

/// Follows files until they are finished or removed.
#[derive(Debug)]
pub struct Follower {
    tails: BTreeMap<FileId, Tail>,
    ready: VecDeque<FileId>,
    warm: BTreeSet<(Instant, FileId)>,
    watches: BTreeMap<i32, Vec<FileId>>,
    inotify: Inotify,
    timer: Option<Pin<Box<Sleep>>>,
    next_poll: Option<Instant>,
    polls: u32,
    turns: u32,
    telling: Telling,
    buffer: Vec<u8>,
}

impl Default for Follower {
    fn default() -> Self {
        Self::new()
    }
}

impl Follower {
    /// Follows nothing yet.
    pub fn new() -> Self {
        Self::telling(Telling::Bytes)
    }

    /// Follows nothing yet, and will tell lengths only ([`Followed::Grown`]) after the first
    /// [`HEAD`] bytes: for files that whoever is told has at hand, so that their bytes need not
    /// travel.
    pub fn of_lengths() -> Self {
        Self::telling(Telling::Lengths)
    }

    fn telling(telling: Telling) -> Self {
        Self {
            tails: BTreeMap::new(),
            ready: VecDeque::new(),
            warm: BTreeSet::new(),
            watches: BTreeMap::new(),
            inotify: Inotify::Unopened,
            timer: None,
            next_poll: None,
            polls: 0,
            turns: 0,
            telling,
            buffer: Vec::new(),
        }
    }

    /// How many files are followed.
    pub fn len(&self) -> usize {
        self.tails.len()
    }

    /// Whether none is followed; [`Follower::next`] would then wait for ever.
    pub fn is_empty(&self) -> bool {
        self.tails.is_empty()
    }

    /// Follows a file from its beginning. It need not exist yet. An id in use is replaced.
    pub fn add(&mut self, id: FileId, path: impl Into<PathBuf>) {
        self.add_at(id, path, 0);
    }

    /// Follows a file from this offset on.
    pub fn add_at(&mut self, id: FileId, path: impl Into<PathBuf>, offset: u64) {
        self.remove(id);
        self.tails.insert(
            id,
            Tail {
                path: path.into(),
                file: None,
                offset,
                phase: Phase::Ready,
                watch: None,
                finishing: false,
                remote: false,
                pause: WARM,
                arm_at: None,
                head: Head::default(),
                written: None,
                suspected: None,
            },
        );
        self.ready.push_back(id);
    }

    /// Says that nothing more is written: it is read to its end and then reported as finished.
    pub fn finish(&mut self, id: FileId) {
        if let Some(tail) = self.tails.get_mut(&id) {
            tail.finishing = true;
            self.make_ready(id);
        }
    }

    /// Says that nothing more is written to any.
    pub fn finish_all(&mut self) {
        for id in self.tails.keys().copied().collect::<Vec<_>>() {
            self.finish(id);
        }
    }

    /// No longer follows a file; nothing more is reported of it.
    pub fn remove(&mut self, id: FileId) {
        if let Some(tail) = self.tails.remove(&id) {
            self.unwatch(id, tail.watch);
            // A new file under the same id must not take over its place in a queue.
            self.ready.retain(|&queued| queued != id);
            if let Phase::Warm(at) = tail.phase {
                self.warm.remove(&(at, id));
            }
        }
    }

    /// The next bytes or end. Files take turns. Cancel-safe: bytes are taken only when returned.
    /// Waits for ever while no file is followed.
    pub async fn next(&mut self) -> Followed {
        // Files are always readable: without this a busy follower would starve its thread.
        tokio::task::coop::consume_budget().await;
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Followed> {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(LOOK_AFTER) {
            self.poll_inotify(cx);
            self.poll_time(cx);
        }
        loop {
            while let Some(id) = self.ready.pop_front() {
                if let Some(followed) = self.read(id) {
                    return Poll::Ready(followed);
                }
            }
            let woken = self.poll_inotify(cx) | self.poll_time(cx);
            if !woken {
                return Poll::Pending;
            }
        }
    }

    fn make_ready(&mut self, id: FileId) {
        if let Some(tail) = self.tails.get_mut(&id) {
            if let Phase::Warm(at) = tail.phase {
                self.warm.remove(&(at, id));
            }
            if tail.phase != Phase::Ready {
                tail.phase = Phase::Ready;
                self.ready.push_back(id);
            }
        }
    }

    /// One turn of one file, which is in no queue meanwhile.
    fn read(&mut self, id: FileId) -> Option<Followed> {
        let tail = self.tails.get_mut(&id)?;
        if tail.file.is_none() {
            match open(&tail.path) {
                Ok((file, remote)) => {
                    tail.file = Some(file);
                    tail.remote = remote;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Descriptors become free as other files come to their ends.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
                        && (!tail.finishing || self.holds_files()) =>
                {
                    if let Some(tail) = self.tails.get_mut(&id) {
                        tail.phase = Phase::Polled;
                    }
                    return None;
                }
                Err(error) => return Some(self.fail(id, error)),
            }
        }
        if tail.file.is_some() {
            match take(id, tail, self.telling, &mut self.buffer) {
                Ok(Some(more)) => {
                    tail.pause = WARM;
                    tail.arm_at = None;
                    // It goes to the end of the queue, with more to read or not.
                    tail.phase = Phase::Ready;
                    self.ready.push_back(id);
                    return Some(more);
                }
                Ok(None) => {}
                Err(error) => return Some(self.fail(id, error)),
            }
        }
        if tail.finishing {
            let final_offset = tail.offset;
            self.forget(id);
            return Some(Followed::Finished { id, final_offset });
        }
        if tail.file.is_none() {
            tail.phase = Phase::Polled;
            return None;
        }
        if tail.suspected.is_some() {
            self.look_soon(id);
            return None;
        }
        if tail.watch.is_some() {
            // Woken by the slow poll: the watch still stands.
            tail.phase = Phase::Armed;
            return None;
        }
        let now = Instant::now();
        if *tail.arm_at.get_or_insert(now + QUIET) <= now {
            return self.arm(id);
        }
        self.look_soon(id);
        None
    }

    /// Whether any file is open.
    fn holds_files(&self) -> bool {
        self.tails.values().any(|tail| tail.file.is_some())
    }

    /// Looks at a file that is in no queue again after its pause.
    fn look_soon(&mut self, id: FileId) {
        if let Some(tail) = self.tails.get_mut(&id) {
            let at = Instant::now() + tail.pause;
            tail.pause = (tail.pause * 2).min(WARM_MAX);
            tail.phase = Phase::Warm(at);
            self.warm.insert((at, id));
        }
    }

    /// Sets the watch and looks once more, since bytes may have come before it was set.
    fn arm(&mut self, id: FileId) -> Option<Followed> {
        let watch = {
            let tail = self.tails.get(&id)?;
            self.inotify.watch(tail.file.as_ref(), &tail.path)
        };
        let tail = self.tails.get_mut(&id)?;
        tail.watch = watch;
        tail.phase = if watch.is_some() {
            Phase::Armed
        } else {
            Phase::Polled
        };
        if let Some(watch) = watch {
            self.watches.entry(watch).or_default().push(id);
        }
        match take(id, tail, self.telling, &mut self.buffer) {
            Ok(Some(more)) => {
                tail.pause = WARM;
                tail.arm_at = None;
                tail.phase = Phase::Ready;
                self.ready.push_back(id);
                Some(more)
            }
            Ok(None) => {
                if tail.suspected.is_some() {
                    self.look_soon(id);
                }
                None
            }
            Err(error) => Some(self.fail(id, error)),
        }
    }

    fn fail(&mut self, id: FileId, error: io::Error) -> Followed {
        let offset = self.tails.get(&id).map_or(0, |tail| tail.offset);
        self.forget(id);
        Followed::Failed { id, offset, error }
    }

    /// Removes a file that is in no queue, at a cost that does not depend on how many there are.
    fn forget(&mut self, id: FileId) {
        if let Some(tail) = self.tails.remove(&id) {
            self.unwatch(id, tail.watch);
        }
    }

    fn unwatch(&mut self, id: FileId, watch: Option<i32>) {
        let Some(watch) = watch else { return };
        if let Some(ids) = self.watches.get_mut(&watch) {
            ids.retain(|&watched| watched != id);
            if ids.is_empty() {
                self.watches.remove(&watch);
                if let Inotify::Open(fd) = &self.inotify {
                    // One that has fired is gone already.
                    let _gone = inotify::remove_watch(fd.get_ref(), watch);
                }
            }
        }
    }

    /// Takes the events that have come. Whether any file became ready.
    fn poll_inotify(&mut self, cx: &mut Context<'_>) -> bool {
        let mut fired = Vec::new();
        let mut overflowed = false;
        if let Inotify::Open(fd) = &self.inotify {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            while let Poll::Ready(Ok(mut ready)) = fd.poll_read_ready(cx) {
                let mut reader = inotify::Reader::new(fd.get_ref(), &mut buffer);
                loop {
                    match reader.next() {
                        Ok(event) => {
                            overflowed |= event.wd() == -1;
                            fired.push(event.wd());
                        }
                        Err(rustix::io::Errno::INTR) => {}
                        Err(_) => break,
                    }
                }
                ready.clear_ready();
            }
        }
        let mut woken = false;
        for watch in fired {
            // A one-shot watch is gone with its first event.
            for id in self.watches.remove(&watch).unwrap_or_default() {
                if let Some(tail) = self.tails.get_mut(&id) {
                    tail.watch = None;
                }
                self.make_ready(id);
                woken = true;
            }
        }
        if overflowed {
            self.wake_all(true);
            woken = true;
        }
        woken
    }

    /// Looks at the clock and sets the timer for the next moment. Whether any file became ready.
    fn poll_time(&mut self, cx: &mut Context<'_>) -> bool {
        let now = Instant::now();
        while let Some(&(at, id)) = self.warm.first() {
            if at > now {
                break;
            }
            self.warm.pop_first();
            self.make_ready(id);
        }
        if self.tails.is_empty() {
            self.next_poll = None;
        } else if self.next_poll.is_some_and(|at| at <= now) {
            self.polls = self.polls.wrapping_add(1);
            self.next_poll = Some(now + POLL);
            self.wake_all(self.polls.is_multiple_of(POLLS_WHEN_ARMED));
        } else if self.next_poll.is_none() {
            self.next_poll = Some(now + POLL);
        }
        if !self.ready.is_empty() {
            return true;
        }
        let warm = self.warm.first().map(|&(at, _)| at);
        let Some(at) = warm.into_iter().chain(self.next_poll).min() else {
            return false;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(POLL)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx).is_ready()
    }

    fn wake_all(&mut self, armed_too: bool) {
        for (&id, tail) in &mut self.tails {
            let due = match tail.phase {
                Phase::Polled => true,
                Phase::Armed => armed_too || tail.remote,
                Phase::Ready | Phase::Warm(_) => false,
            };
            if due {
                tail.phase = Phase::Ready;
                self.ready.push_back(id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
