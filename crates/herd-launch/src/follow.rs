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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::future::{Future as _, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep, sleep};

/// Largest piece given out.
pub const CHUNK_MAX: usize = 256 * 1024;
/// Bytes of a file's beginning that are kept to know it again.
pub const HEAD: usize = 512;
/// How soon a file that had bytes is looked at again; each look without any doubles the pause.
const WARM: Duration = Duration::from_millis(2);
/// Longest pause before a warm file is looked at again.
const WARM_MAX: Duration = Duration::from_millis(16);
/// A file that was quiet for so long gets a watch.
const QUIET: Duration = Duration::from_millis(100);
/// A file that looks truncated by its time alone is taken to be so when it still does after this:
/// far longer than one write takes.
const CONFIRMED: Duration = Duration::from_millis(20);
/// How often files without a reliable watch are looked at.
const POLL: Duration = Duration::from_millis(100);
/// After so many turns events and the clock are looked at although files are ready, so that one with
/// a long backlog does not keep the quiet ones waiting.
const LOOK_AFTER: u32 = 16;
/// Files with a watch on a local file system are looked at once in so many polls.
const POLLS_WHEN_ARMED: u32 = 10;

/// The caller's name for a followed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// What following has brought.
#[derive(Debug)]
pub enum Followed {
    /// The next bytes of a file.
    Chunk {
        /// Which file.
        id: FileId,
        /// Where in the file they begin.
        offset: u64,
        /// At least one, at most [`CHUNK_MAX`].
        bytes: Vec<u8>,
    },
    /// A file has grown, told in place of its bytes by [`Follower::of_lengths`], but for the first
    /// [`HEAD`] bytes.
    Grown {
        /// Which file.
        id: FileId,
        /// What it had grown to when it was told last.
        offset: u64,
        /// What it has grown to, at most [`CHUNK_MAX`] more.
        length: u64,
    },
    /// Its writer has truncated a file: what comes next comes from its beginning.
    Truncated {
        /// Which file.
        id: FileId,
        /// Up to where it was read before.
        offset: u64,
    },
    /// A file that was finished is at its end and no longer followed.
    Finished {
        /// Which file.
        id: FileId,
        /// Its length; where it started if it never existed.
        final_offset: u64,
    },
    /// A file cannot be read and is no longer followed.
    Failed {
        /// Which file.
        id: FileId,
        /// Up to where it was read.
        offset: u64,
        /// Why.
        error: io::Error,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Ready,
    /// Looked at again at this time.
    Warm(Instant),
    Armed,
    Polled,
}

#[derive(Debug)]
struct Tail {
    path: PathBuf,
    file: Option<File>,
    offset: u64,
    phase: Phase,
    watch: Option<i32>,
    finishing: bool,
    /// Whether writers on other machines may exist, of which inotify does not tell.
    remote: bool,
    /// Pause before the next look.
    pause: Duration,
    /// When the file is quiet enough for a watch; not known before the first look without bytes.
    arm_at: Option<Instant>,
    head: Head,
    /// When it was last written to, as seen at its end.
    written: Option<SystemTime>,
    /// Since when it looks truncated, which a later look is to confirm.
    suspected: Option<Instant>,
}

/// The first bytes of a file, at most [`HEAD`], by which it is known again.
#[derive(Clone, Debug, Default)]
pub struct Head(Vec<u8>);

impl Head {
    /// Takes what was read of the file at this offset, where that continues what is known.
    pub fn extend(&mut self, offset: u64, bytes: &[u8]) {
        if offset == self.0.len() as u64 {
            let room = bytes.len().min(HEAD - self.0.len());
            self.0
                .extend_from_slice(bytes.get(..room).unwrap_or_default());
        }
    }

    /// Whether the file still begins like this. Compared after something was read from it, it
    /// tells that this came from the same file and not from what was written after a truncation.
    pub fn begins(&self, file: &File) -> io::Result<bool> {
        let mut now = [0; HEAD];
        let now = now.get_mut(..self.0.len()).unwrap_or_default();
        match file.read_exact_at(now, 0) {
            Ok(()) => Ok(*now == *self.0),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Tail {
    /// Whether the file was truncated, as seen after a look for `more`.
    fn is_truncated(&mut self, file: &File, more: bool) -> io::Result<bool> {
        if self.offset == 0 {
            return Ok(false);
        }
        let other = !self.head.begins(file)?;
        if other || more {
            self.suspected = None;
            self.written = None;
            return Ok(other);
        }
        let now = file.metadata()?;
        let written = now.modified()?;
        let before = self.written.replace(written);
        let suspicious = if now.len() < self.offset {
            // Elsewhere a length may lag behind.
            if !self.remote {
                return Ok(true);
            }
            true
        } else {
            // All of it was compared, and it is the same: only the time tells that it was written
            // again. A write under way has changed the time and not yet the length, and elsewhere
            // times change later than what was written.
            now.len() == self.offset
                && self.offset == self.head.0.len() as u64
                && !self.remote
                && (self.suspected.is_some() || before.is_some_and(|before| before != written))
        };
        if !suspicious {
            self.suspected = None;
            return Ok(false);
        }
        let since = *self.suspected.get_or_insert_with(Instant::now);
        Ok(self.finishing || since.elapsed() >= CONFIRMED)
    }

    fn begin_again(&mut self) {
        self.offset = 0;
        self.head = Head::default();
        self.written = None;
        self.suspected = None;
    }
}

/// What is told of a file that has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    Bytes,
    Lengths,
}

#[derive(Debug)]
enum Inotify {
    Unopened,
    Open(AsyncFd<OwnedFd>),
    Unavailable,
}

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
                // Descriptors may become free again.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
                        && !tail.finishing => {}
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

impl Inotify {
    fn watch(&mut self, file: Option<&File>, path: &Path) -> Option<i32> {
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

/// Opens a log to read it. Anything but a regular file is refused, and does not block.
pub fn open_log(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    Ok(file)
}

/// The file, and whether writers on other machines may exist.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let file = open_log(path)?;
    let remote =
        rustix::fs::fstatfs(&file).map_or(true, |stat| !is_local(stat.f_type.cast_unsigned()));
    Ok((file, remote))
}

/// File systems on which every writer is on this machine. Others are polled besides.
fn is_local(magic: u64) -> bool {
    const EXT: u64 = 0xEF53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683E;
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58F6;
    const OVERLAY: u64 = 0x794C_7630;
    const ZFS: u64 = 0x2FC1_2FC1;
    const F2FS: u64 = 0xF2F5_2010;
    matches!(
        magic & 0xFFFF_FFFF,
        EXT | XFS | BTRFS | TMPFS | RAMFS | OVERLAY | ZFS | F2FS
    )
}

/// The next bytes or how many there are, that the file was truncated, or `None` at the end for now.
fn take(
    id: FileId,
    tail: &mut Tail,
    telling: Telling,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Followed>> {
    // Taken out meanwhile: what is found is noted in the tail.
    let Some(file) = tail.file.take() else {
        return Ok(None);
    };
    let taken = take_from(&file, id, tail, telling, buffer);
    tail.file = Some(file);
    taken
}

fn take_from(
    file: &File,
    id: FileId,
    tail: &mut Tail,
    telling: Telling,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Followed>> {
    let offset = tail.offset;
    let more = match telling {
        Telling::Bytes => read_piece(file, id, offset, buffer)?,
        Telling::Lengths if offset < HEAD as u64 => read_head(file, id, offset)?,
        Telling::Lengths => {
            let length = file.metadata()?.len().min(offset + CHUNK_MAX as u64);
            (length > offset).then_some(Followed::Grown { id, offset, length })
        }
    };
    // In this order: where the file still begins as before, what was read is no other file's.
    if tail.is_truncated(file, more.is_some())? {
        tail.begin_again();
        return Ok(Some(Followed::Truncated { id, offset }));
    }
    match &more {
        Some(Followed::Chunk { bytes, .. }) => {
            tail.head.extend(offset, bytes);
            tail.offset += bytes.len() as u64;
        }
        Some(Followed::Grown { length, .. }) => tail.offset = *length,
        _ => {}
    }
    Ok(more)
}

fn read_head(file: &File, id: FileId, offset: u64) -> io::Result<Option<Followed>> {
    let mut bytes = vec![0; HEAD.saturating_sub(usize::try_from(offset).unwrap_or(HEAD))];
    let count = loop {
        match file.read_at(&mut bytes, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    bytes.truncate(count);
    Ok((count > 0).then_some(Followed::Chunk { id, offset, bytes }))
}

fn read_piece(
    file: &File,
    id: FileId,
    offset: u64,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Followed>> {
    buffer.clear();
    buffer.reserve_exact(CHUNK_MAX);
    let count = loop {
        match rustix::io::pread(file, rustix::buffer::spare_capacity(buffer), offset) {
            Ok(count) => break count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    };
    if count == 0 {
        return Ok(None);
    }
    // A large piece is given away whole; a small one would hold a large buffer.
    let mut bytes = if count > CHUNK_MAX / 2 {
        std::mem::take(buffer)
    } else {
        buffer.clone()
    };
    bytes.truncate(CHUNK_MAX);
    Ok(Some(Followed::Chunk { id, offset, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_was_not_quiet_for_long_has_no_watch() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "").unwrap();
        let mut follower = Follower::new();
        follower.add(FileId(1), &path);
        tokio::select! {
            biased;
            followed = follower.next() => panic!("{followed:?}"),
            () = std::future::ready(()) => {}
        }
        assert!(matches!(follower.inotify, Inotify::Unopened));
        // Quiet for long enough, as far as the follower can tell.
        let tail = follower.tails.get_mut(&FileId(1)).unwrap();
        assert!(tail.arm_at.is_some());
        tail.arm_at = Some(Instant::now());
        follower.make_ready(FileId(1));
        tokio::select! {
            biased;
            followed = follower.next() => panic!("{followed:?}"),
            () = std::future::ready(()) => {}
        }
        assert!(!matches!(follower.inotify, Inotify::Unopened));
        std::fs::write(&path, "text").unwrap();
        let Followed::Chunk { bytes, .. } = follower.next().await else {
            panic!("bytes were written")
        };
        assert_eq!(bytes, b"text");
    }
}
