//! One followed file: how far it was read, whether it was truncated meanwhile, and its next piece.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::followed::{CHUNK_MAX, FileId, Followed, HEAD};

/// A file that looks truncated by its time alone is taken to be so when it still does after this:
/// far longer than one write takes.
const CONFIRMED: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Ready,
    /// Looked at again at this time.
    Warm(Instant),
    Armed,
    Polled,
}

#[derive(Debug)]
pub(super) struct Tail {
    pub(super) path: PathBuf,
    pub(super) file: Option<File>,
    pub(super) offset: u64,
    pub(super) phase: Phase,
    pub(super) watch: Option<i32>,
    pub(super) finishing: bool,
    /// Whether writers on other machines may exist, of which inotify does not tell.
    pub(super) remote: bool,
    /// Pause before the next look.
    pub(super) pause: Duration,
    /// When the file is quiet enough for a watch; not known before the first look without bytes.
    pub(super) arm_at: Option<Instant>,
    pub(super) head: Head,
    /// When it was last written to, as seen at its end.
    pub(super) written: Option<SystemTime>,
    /// Since when it looks truncated, which a later look is to confirm.
    pub(super) suspected: Option<Instant>,
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
pub(super) enum Telling {
    Bytes,
    Lengths,
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
pub(super) fn open(path: &Path) -> io::Result<(File, bool)> {
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
pub(super) fn take(
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
