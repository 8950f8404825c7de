//! The directory that a job works in as an archive of tar, for places that do not see it.
//!
//! Version control and what `.herdignore` files name is left out, by the rules of `.gitignore`. Links stay links; what is
//! neither file, directory nor link is left out, and told.

use std::fs::{DirBuilder, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

/// Names what is left out.
pub const IGNORE: &str = ".herdignore";
/// Directories of version control, which stay behind.
const VERSION_CONTROL: [&str; 3] = [".git", ".hg", ".svn"];
/// Most bytes that are copied.
pub const MOST_BYTES: u64 = 1 << 30;
/// Most files that are copied.
pub const MOST_FILES: usize = 100_000;

/// What is to be copied.
#[derive(Debug, Default)]
pub struct Tree {
    /// The directory.
    pub root: PathBuf,
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
    /// The same of a directory that comes back.
    #[error("cannot read {}: {source}", place.display())]
    Closed {
        /// Which part of it.
        place: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is too large to be copied with each job.
    #[error("it is too large to be copied with a job: more than {what}")]
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

    /// Looks at all of a directory that comes back from a job. Nodes do this too, so it needs none of the
    /// rules of what is left out.
    pub fn all(root: &Path) -> Result<Self, TreeError> {
        let mut tree = Self {
            root: root.to_owned(),
            ..Self::default()
        };
        // Below the root, each directory before what is in it.
        let mut waiting = vec![PathBuf::new()];
        while let Some(directory) = waiting.pop() {
            let place = root.join(&directory);
            let closed = |source| TreeError::Closed {
                place: place.clone(),
                source,
            };
            for entry in std::fs::read_dir(&place).map_err(closed)? {
                let entry = entry.map_err(closed)?;
                let path = directory.join(entry.file_name());
                let meta = match entry.metadata() {
                    Ok(meta) => meta,
                    // Something still tidied up.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(closed(error)),
                };
                if meta.is_dir() {
                    waiting.push(path.clone());
                } else if meta.is_file() {
                    tree.bytes = tree.bytes.saturating_add(meta.len());
                } else if !meta.is_symlink() {
                    tree.left_out.push(path);
                    continue;
                }
                tree.paths.push(path);
            }
        }
        Ok(tree)
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

    /// Writes all of it, and returns what it was written into.
    pub fn write<W: Write>(&self, out: W) -> io::Result<W> {
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
        let mut out = archive.into_inner()?;
        out.flush()?;
        Ok(out)
    }
}

/// What is written comes to `put` in parts of at most so many bytes, once it is flushed or enough has come.
pub fn in_parts<F>(most: usize, put: F) -> BufWriter<Parts<F>>
where
    F: FnMut(&[u8]) -> io::Result<()>,
{
    BufWriter::with_capacity(most, Parts { most, put })
}

/// The end of [`in_parts`].
#[derive(Debug)]
pub struct Parts<F> {
    most: usize,
    put: F,
}

impl<F: FnMut(&[u8]) -> io::Result<()>> Write for Parts<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = bytes.get(..bytes.len().min(self.most)).unwrap_or_default();
        (self.put)(part)?;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Unpacks an archive into a directory, which takes its name when all of it is there. One that is there
/// already is left as it is.
pub fn unpack(archive: impl Read, place: &Path) -> io::Result<()> {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let new = place.with_file_name(format!("new.{name}.{}", std::process::id()));
    if new.exists() {
        std::fs::remove_dir_all(&new)?;
    }
    let unpacked = unpack_into(archive, &new);
    if unpacked.is_err() || place.exists() {
        drop(std::fs::remove_dir_all(&new));
        return unpacked;
    }
    std::fs::rename(&new, place)
}

fn unpack_into(archive: impl Read, new: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(new)?;
    let mut archive = tar::Archive::new(archive);
    archive.set_preserve_ownerships(false);
    archive.set_preserve_permissions(true);
    archive.unpack(new)?;
    // To the end of what belongs to it.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(archive: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_goes_along_is_what_a_gitignore_of_the_same_text_would_keep() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::write(root.join(IGNORE), "*.ckpt\n/data/\n!keep.ckpt\n").unwrap();
        for name in ["data", "a", "a/data", ".git"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        for name in [
            "big.ckpt",
            "keep.ckpt",
            "data/x",
            "a/data/y",
            ".git/config",
            ".hidden",
            "a/b.ckpt",
        ] {
            std::fs::write(root.join(name), "text").unwrap();
        }
        symlink("nowhere", root.join("link")).unwrap();
        nix::unistd::mkfifo(&root.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let tree = Tree::survey(root).unwrap();
        assert_eq!(tree.left_out, [PathBuf::from("pipe")]);
        let expected = [
            ".herdignore",
            ".hidden",
            "a",
            "a/data",
            "a/data/y",
            "keep.ckpt",
            "link",
        ];
        assert_eq!(names(&tree.write(Vec::new()).unwrap()), expected);
        assert_eq!(tree.files(), expected.len());
        // What comes back comes back whole.
        let all = Tree::all(root).unwrap();
        assert!(names(&all.write(Vec::new()).unwrap()).contains(&"big.ckpt".to_owned()));
    }
}
