//! What a job has left in its directory of work on its first node: the node sends it as one archive before it
//! sends the job's result, and the submitting side keeps it beside the job's records, where `herd get`
//! unpacks it. It is bounded; what does not come stays on the node, and that is said.

use std::fs::{self, File};
use std::io::{self, Stdout};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use herd_core::text::error_line;
use herd_jobdir::JobDir;
use herd_slurm::staging::WORK;
use herd_workdir::{MOST_BYTES, Tree, in_parts};
use serde::{Deserialize, Serialize};

use super::link::Conversation;
use super::wire::{Head, PART};

/// The archive, in the job's directory on the submitting side.
pub(super) const ARCHIVE: &str = "left.tar";
/// The same while it comes.
pub(super) const COMING: &str = ".left.tar.new";
/// Why there is none.
pub(super) const REFUSED: &str = "left.json";
/// In the directory on the node: the directory of work stays there, for the reason that this file holds.
pub(super) const STAYS: &str = "stays";
/// What an archive may have besides the bytes of its files: headers, of many small ones most of it.
const MOST_HEADERS: u64 = 1 << 30;

/// What became of a directory of work that is not on the submitting side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// It is here, in this archive.
    Here(PathBuf),
    /// It has not come, for this reason.
    Not(String),
    /// Nothing has been said of it.
    Unsaid,
}

#[derive(Debug, Serialize, Deserialize)]
struct Reason {
    why: String,
}

/// What a job that was staged has left, as far as it has come.
pub fn of(job: &JobDir) -> Left {
    let archive = job.path().join(ARCHIVE);
    if archive.is_file() {
        return Left::Here(archive);
    }
    match job.read_backend::<Reason>(REFUSED) {
        Ok(Some(reason)) => Left::Not(reason.why),
        Ok(None) | Err(_) => Left::Unsaid,
    }
}

/// On the node: sends all of it, or the reason why not. An error is one of the conversation, after which
/// all of it is sent again. `asked` is what the driver waits by, and is touched with each part.
pub(super) fn send(
    to: &mut Conversation<Stdout>,
    directory: &Path,
    asked: &Path,
) -> io::Result<()> {
    let (mut offset, mut broken) = (0, None);
    let put = |bytes: &[u8]| {
        let head = Head::Part {
            path: COMING.to_owned(),
            offset,
            length: bytes.len() as u64,
        };
        if let Err(error) = to.say(&head, bytes) {
            broken = Some(error);
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        offset += bytes.len() as u64;
        // Where it is not there yet, the driver waits for nothing.
        drop(File::open(asked).and_then(|asked| asked.set_modified(SystemTime::now())));
        Ok(())
    };
    let problem = pack(&directory.join(WORK), put).err();
    if let Some(error) = broken {
        return Err(error);
    }
    let why = problem.map(|problem| {
        let node = std::env::var("SLURMD_NODENAME").unwrap_or_else(|_| "its first node".to_owned());
        let place = directory.join(WORK);
        format!("{problem}; it stays in {} on {node}", place.display())
    });
    if let Some(why) = &why {
        fs::write(directory.join(STAYS), why)?;
    }
    to.say(&Head::Left { why }, b"")
}

fn pack(work: &Path, put: impl FnMut(&[u8]) -> io::Result<()>) -> Result<(), String> {
    let tree = Tree::all(work).map_err(|error| error_line(&error))?;
    if tree.bytes > MOST_BYTES {
        let mib = tree.bytes >> 20;
        return Err(format!("it holds {mib} MiB, and at most 1 GiB comes back"));
    }
    let most = usize::try_from(PART).unwrap_or(1 << 16);
    tree.write(in_parts(most, put))
        .map(drop)
        .map_err(|error| error_line(&error))
}

/// On the submitting side: whether a part is one of the archive, which has a bound.
pub(super) fn takes(path: &str, offset: u64) -> io::Result<()> {
    if path == COMING && offset > MOST_BYTES + MOST_HEADERS {
        return Err(io::Error::other("the directory of work is too large"));
    }
    Ok(())
}

/// On the submitting side: all of it has come, or does not come.
pub(super) fn keep(job: &JobDir, why: Option<String>) -> io::Result<()> {
    let coming = job.path().join(COMING);
    let Some(why) = why else {
        return fs::rename(coming, job.path().join(ARCHIVE));
    };
    drop(fs::remove_file(coming));
    job.write_backend(REFUSED, &Reason { why })
        .map_err(io::Error::other)
}
