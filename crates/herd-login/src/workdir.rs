//! The directory that a job works in, copied to the login node as it is: an archive in pieces.

use std::io::{self, Read, Write};
use std::path::Path;

use herd_workdir::{Tree, in_parts};

use crate::channel::Channel;
use crate::error::LoginError;

/// How long what comes may pause.
const PAUSE: std::time::Duration = std::time::Duration::from_mins(1);
/// Bytes of one piece.
const PIECE: usize = 256 * 1024;

/// Sends all of it.
pub fn send(tree: &Tree, channel: &mut Channel) -> Result<(), LoginError> {
    let mut failed = None;
    let written = write_pieces(tree, |bytes| {
        channel.write(bytes).map_err(|error| {
            failed = Some(error);
            io::Error::from(io::ErrorKind::BrokenPipe)
        })
    });
    if let Some(error) = failed {
        return Err(error);
    }
    written.map_err(|source| LoginError::here(format!("copy {}", tree.root.display()), source))
}

/// Writes all of it, in pieces.
pub fn write_pieces(tree: &Tree, mut put: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    tree.write(pieces(&mut put))?;
    put(&LAST)
}

/// The same of an archive that is there already.
pub fn copy_pieces(
    archive: &mut impl Read,
    mut put: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = pieces(&mut put);
    io::copy(archive, &mut out)?;
    out.flush()?;
    drop(out);
    put(&LAST)
}

/// The length of the piece after which no other comes.
const LAST: [u8; 4] = 0_u32.to_le_bytes();

/// Each piece has its length before it.
fn pieces(put: &mut impl FnMut(&[u8]) -> io::Result<()>) -> impl Write {
    in_parts(PIECE, |part: &[u8]| {
        let length = u32::try_from(part.len()).unwrap_or(0).to_le_bytes();
        put(&length)?;
        put(part)
    })
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

/// Unpacks what is sent into a directory, which takes its name when all of it is there. One that is there
/// already was sent before, and nobody heard that it had arrived.
pub fn receive(input: impl Read, place: &Path) -> io::Result<()> {
    herd_workdir::unpack(
        Joined {
            input,
            left: 0,
            over: false,
        },
        place,
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use herd_workdir::IGNORE;

    use super::*;

    fn framed(tree: &Tree) -> Vec<u8> {
        let mut bytes = Vec::new();
        let put = |part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok(())
        };
        write_pieces(tree, put).unwrap();
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
        std::fs::write(from.join(IGNORE), "*.ckpt\n").unwrap();
        std::fs::write(from.join("big.ckpt"), "no").unwrap();
        std::fs::write(from.join(".hidden"), "yes").unwrap();
        symlink("run.sh", from.join("link")).unwrap();
        let tree = Tree::survey(&from).unwrap();
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
        assert!(to.join(".hidden").exists() && !to.join("big.ckpt").exists());
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
