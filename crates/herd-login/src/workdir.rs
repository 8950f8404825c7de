//! The directory that a job works in, copied to the login node as it is: an archive in pieces.
//!
//! Version control and what `.herdignore` files name is left out, by the rules of `.gitignore`. Links stay links; what is
//! neither file, directory nor link is left out, and said.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use crate::channel::Channel;
use crate::error::LoginError;

/// Names what is left out.
pub const IGNORE: &str = ".herdignore";
/// Directories of version control, which stay behind.
const VERSION_CONTROL: [&str; 3] = [".git", ".hg", ".svn"];
/// Most bytes that are copied.
pub const MOST_BYTES: u64 = 1 << 30;
/// Most files that are copied.
pub const MOST_FILES: usize = 100_000;
/// How long what comes may pause.
const PAUSE: std::time::Duration = std::time::Duration::from_mins(1);
/// Bytes of one piece.
const PIECE: usize = 256 * 1024;

/// What is to be copied.
#[derive(Debug, Default)]
pub struct Tree {
    root: PathBuf,
    paths: Vec<PathBuf>,
    /// Bytes of all files.
    pub bytes: u64,
    /// What is left out, since it is no file.
    pub left_out: Vec<PathBuf>,
}

/// Why a directory is not copied.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Something in it cannot be read.
    #[error("cannot read it: {0}")]
    Unreadable(#[from] ignore::Error),
    /// It is too large to be copied with each job.
    #[error("is too large to be copied with a job: more than {what}")]
    TooLarge {
        /// Which bound.
        what: &'static str,
    },
}

impl Tree {
    /// Looks at a directory that is to go along with a job.
    pub fn survey(root: &Path) -> Result<Self, TreeError> {
        let mut walk = WalkBuilder::new(root);
        walk.standard_filters(false)
            .add_custom_ignore_filename(IGNORE)
            .filter_entry(|entry| {
                !VERSION_CONTROL
                    .iter()
                    .any(|name| entry.file_name() == *name)
            });
        Self::walk(root, &walk, (MOST_BYTES, MOST_FILES))
    }

    /// Looks at all of a directory that comes back from a job.
    pub fn all(root: &Path) -> Result<Self, TreeError> {
        let mut walk = WalkBuilder::new(root);
        walk.standard_filters(false);
        Self::walk(root, &walk, (u64::MAX, usize::MAX))
    }

    fn walk(
        root: &Path,
        walk: &WalkBuilder,
        (most_bytes, most_files): (u64, usize),
    ) -> Result<Self, TreeError> {
        let mut tree = Self {
            root: root.to_owned(),
            ..Self::default()
        };
        for entry in walk.build() {
            let entry = entry?;
            let Some(path) = entry
                .path()
                .strip_prefix(root)
                .ok()
                .filter(|p| !p.as_os_str().is_empty())
            else {
                continue;
            };
            let kind = entry.file_type();
            if kind.is_none_or(|kind| !(kind.is_file() || kind.is_dir() || kind.is_symlink())) {
                tree.left_out.push(path.to_owned());
                continue;
            }
            if kind.is_some_and(|kind| kind.is_file()) {
                tree.bytes = tree.bytes.saturating_add(entry.metadata()?.len());
            }
            tree.paths.push(path.to_owned());
            if tree.bytes > most_bytes {
                return Err(TreeError::TooLarge { what: "1 GiB" });
            }
            if tree.paths.len() > most_files {
                return Err(TreeError::TooLarge {
                    what: "100,000 files",
                });
            }
        }
        Ok(tree)
    }

    /// Number of files and directories.
    pub fn files(&self) -> usize {
        self.paths.len()
    }

    /// Sends all of it.
    pub fn send(&self, channel: &mut Channel) -> Result<(), LoginError> {
        let mut failed = None;
        let written = self.write_pieces(|bytes| {
            channel.write(bytes).map_err(|error| {
                failed = Some(error);
                io::Error::from(io::ErrorKind::BrokenPipe)
            })
        });
        if let Some(error) = failed {
            return Err(error);
        }
        written.map_err(|source| LoginError::here(format!("copy {}", self.root.display()), source))
    }

    /// Writes all of it, in pieces.
    pub fn write_pieces(&self, mut put: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.write(BufWriter::with_capacity(PIECE, Pieces(&mut put)))?;
        put(&0_u32.to_le_bytes())
    }

    fn write(&self, out: impl Write) -> io::Result<()> {
        let mut archive = tar::Builder::new(out);
        archive.follow_symlinks(false);
        for path in &self.paths {
            let place = self.root.join(path);
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", place.display()))
            };
            let meta = std::fs::symlink_metadata(&place).map_err(named)?;
            let mut header = tar::Header::new_gnu();
            header.set_metadata(&meta);
            header.set_uid(0);
            header.set_gid(0);
            if meta.is_symlink() {
                let to = std::fs::read_link(&place).map_err(named)?;
                archive.append_link(&mut header, path, to).map_err(named)?;
            } else if meta.is_dir() {
                archive
                    .append_data(&mut header, path, io::empty())
                    .map_err(named)?;
            } else {
                let file = File::open(&place).map_err(named)?;
                // One that shrinks meanwhile must not shift what comes after it.
                let content = file.chain(io::repeat(0)).take(meta.size());
                archive
                    .append_data(&mut header, path, content)
                    .map_err(named)?;
            }
        }
        archive.into_inner()?.flush()
    }
}

struct Pieces<'a, F>(&'a mut F);

impl<F: FnMut(&[u8]) -> io::Result<()>> Write for Pieces<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = bytes.get(..bytes.len().min(PIECE)).unwrap_or_default();
        let length = u32::try_from(part.len()).unwrap_or(0).to_le_bytes();
        (self.0)(&length)?;
        (self.0)(part)?;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What comes over a call, as a stream.
#[derive(Debug)]
pub struct Incoming<'a> {
    channel: &'a mut Channel,
    left: Vec<u8>,
}

impl<'a> Incoming<'a> {
    /// From here on.
    pub fn new(channel: &'a mut Channel) -> Self {
        Self {
            channel,
            left: Vec::new(),
        }
    }
}

impl Read for Incoming<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left.is_empty() {
            self.left = self
                .channel
                .some(Some(PAUSE))
                .map_err(|error| io::Error::other(error.to_string()))?;
        }
        let read = buffer.len().min(self.left.len());
        for (to, from) in buffer.iter_mut().zip(self.left.drain(..read)) {
            *to = from;
        }
        Ok(read)
    }
}

/// Reads pieces as one stream, to the empty one.
#[derive(Debug)]
struct Joined<R> {
    input: R,
    left: usize,
    over: bool,
}

impl<R: Read> Read for Joined<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.over {
            let mut length = [0; 4];
            self.input.read_exact(&mut length)?;
            self.left = u32::from_le_bytes(length) as usize;
            self.over = self.left == 0;
        }
        if self.over {
            return Ok(0);
        }
        let most = buffer.len().min(self.left);
        let read = self
            .input
            .read(buffer.get_mut(..most).unwrap_or_default())?;
        if read == 0 && most > 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        self.left -= read;
        Ok(read)
    }
}

/// Unpacks what is sent into a directory, which takes its name when all of it is there.
pub fn receive(input: impl Read, place: &Path) -> io::Result<()> {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let new = place.with_file_name(format!("new.{name}.{}", std::process::id()));
    if new.exists() {
        std::fs::remove_dir_all(&new)?;
    }
    let unpacked = unpack(input, &new);
    if let Err(error) = unpacked {
        drop(std::fs::remove_dir_all(&new));
        return Err(error);
    }
    if place.exists() {
        // Sent again, since nobody heard that it had arrived.
        return std::fs::remove_dir_all(&new);
    }
    std::fs::rename(&new, place)
}

fn unpack(input: impl Read, new: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(new)?;
    let mut input = Joined {
        input,
        left: 0,
        over: false,
    };
    let mut archive = tar::Archive::new(&mut input);
    archive.set_preserve_ownerships(false);
    archive.set_preserve_permissions(true);
    archive.unpack(new)?;
    // To the end of what belongs to it.
    io::copy(&mut input, &mut io::sink()).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn framed(tree: &Tree) -> Vec<u8> {
        let mut bytes = Vec::new();
        let put = |part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok(())
        };
        tree.write_pieces(put).unwrap();
        bytes
    }

    #[test]
    fn a_directory_arrives_as_it_is_without_what_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        std::fs::create_dir_all(from.join("a/b")).unwrap();
        let long = "x".repeat(180);
        std::fs::write(from.join("a").join(&long), "long").unwrap();
        std::fs::write(from.join("run.sh"), "echo").unwrap();
        std::fs::set_permissions(from.join("run.sh"), std::fs::Permissions::from_mode(0o755))
            .unwrap();
        std::fs::write(from.join(".herdignore"), "*.ckpt\n/data/\n!keep.ckpt\n").unwrap();
        std::fs::write(from.join("big.ckpt"), "no").unwrap();
        std::fs::write(from.join("keep.ckpt"), "yes").unwrap();
        std::fs::create_dir(from.join("data")).unwrap();
        std::fs::write(from.join("data/x"), "no").unwrap();
        std::fs::create_dir(from.join(".git")).unwrap();
        std::fs::write(from.join(".hidden"), "yes").unwrap();
        symlink("run.sh", from.join("link")).unwrap();
        nix::unistd::mkfifo(&from.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let tree = Tree::survey(&from).unwrap();
        assert_eq!(tree.left_out, [PathBuf::from("pipe")]);
        let to = dir.path().join("to");
        let mut bytes = framed(&tree);
        bytes.extend_from_slice(b"rest");
        let mut input = bytes.as_slice();
        receive(&mut input, &to).unwrap();
        assert_eq!(input, b"rest");
        assert_eq!(std::fs::read(to.join("a").join(&long)).unwrap(), b"long");
        assert!(to.join("a/b").is_dir());
        let mode = std::fs::metadata(to.join("run.sh"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(
            std::fs::read_link(to.join("link")).unwrap(),
            Path::new("run.sh")
        );
        assert!(to.join("keep.ckpt").exists() && to.join(".hidden").exists());
        for gone in ["big.ckpt", "data", "pipe", ".git"] {
            assert!(!to.join(gone).exists(), "{gone}");
        }
    }

    #[test]
    fn what_breaks_off_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        std::fs::create_dir(&from).unwrap();
        std::fs::write(from.join("a"), "a".repeat(5000)).unwrap();
        assert_eq!(Tree::all(&from).unwrap().bytes, 5000);
        let bytes = framed(&Tree::survey(&from).unwrap());
        let to = dir.path().join("to");
        assert!(receive(&bytes[..3000], &to).is_err());
        assert!(receive(&bytes[..bytes.len() - 4], &to).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
