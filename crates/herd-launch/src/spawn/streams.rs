//! The descriptors of a process's standard streams.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use super::{Output, SpawnError, Stdin};

/// The descriptor for the child, and the caller's end of a pipe.
pub(super) type Opened = (Option<OwnedFd>, Option<OwnedFd>);

/// Opens what a process reads from.
pub(super) fn open_stdin(stdin: Stdin) -> io::Result<Opened> {
    Ok(match stdin {
        Stdin::Inherit => (None, None),
        Stdin::Null => (Some(above_stdio(File::open("/dev/null")?.into())?), None),
        Stdin::Fd(fd) | Stdin::Terminal(fd) => (Some(above_stdio(fd)?), None),
        Stdin::Pipe => {
            let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            (Some(above_stdio(read)?), Some(above_stdio(write)?))
        }
    })
}

/// Opens what a process writes to.
pub(super) fn open_output(output: Output, program: &OsStr) -> Result<Opened, SpawnError> {
    let opened = match output {
        Output::Inherit => return Ok((None, None)),
        Output::File(path) => {
            return OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&path)
                .and_then(|file| above_stdio(file.into()))
                .map(|fd| (Some(fd), None))
                .map_err(|source| SpawnError::LogFile { path, source });
        }
        Output::Null | Output::SameAsStdout => OpenOptions::new()
            .write(true)
            .open("/dev/null")
            .and_then(|file| above_stdio(file.into()))
            .map(|fd| (Some(fd), None)),
        Output::Fd(fd) => above_stdio(fd).map(|fd| (Some(fd), None)),
        Output::Pipe => rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(io::Error::from)
            .and_then(|(read, write)| Ok((Some(above_stdio(write)?), Some(above_stdio(read)?)))),
    };
    opened.map_err(|source| SpawnError::Resources {
        program: program.to_owned(),
        source,
    })
}

/// A caller whose own streams are closed gets descriptors 0 to 2 for its files; the child's `dup2`
/// would then overwrite one that is still needed.
fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > 2 {
        return Ok(fd);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&fd, 3)?)
}
