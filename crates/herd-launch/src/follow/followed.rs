//! What following brings.

use std::io;

/// Largest piece given out.
pub const CHUNK_MAX: usize = 256 * 1024;
/// Bytes of a file's beginning that are kept to know it again.
pub const HEAD: usize = 512;

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
    /// A file has grown, told in place of its bytes by [`super::Follower::of_lengths`], but for the first
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
