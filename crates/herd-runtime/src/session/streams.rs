//! The ends of a session's pipes or of its terminal, read and written without blocking.

use std::io;
use std::os::fd::OwnedFd;

use herd_launch::sys;
use herd_link::session::CHUNK;
use tokio::io::unix::AsyncFd;

/// What reading says of a terminal that nobody else has open any more (EIO).
const NO_TERMINAL: i32 = rustix::io::Errno::IO.raw_os_error();

/// One end of a pipe or a terminal.
pub(super) struct End(AsyncFd<OwnedFd>);

impl End {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self(sys::watch_stream(fd)?))
    }

    /// Another reference to the same end.
    pub(super) fn duplicate(&self) -> io::Result<Self> {
        Self::new(self.0.get_ref().try_clone()?)
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        self.0.get_ref()
    }

    /// Up to `most` bytes; none at the end. A terminal whose last user is gone has ended, too.
    /// Cancel-safe.
    pub(super) async fn read(&self, most: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; most.min(CHUNK)];
        loop {
            let mut ready = self.0.readable().await?;
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut buffer)?));
            match read {
                Ok(Ok(length)) => {
                    buffer.truncate(length);
                    return Ok(buffer);
                }
                Ok(Err(error)) if error.raw_os_error() == Some(NO_TERMINAL) => {
                    return Ok(Vec::new());
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
    }

    /// Writes some of the bytes and returns how many. Cancel-safe.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.writable().await?;
            match ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), bytes)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(written) => return written,
                Err(_would_block) => {}
            }
        }
    }
}
