//! One command of Slurm, run to its end with a bound on its time and on what it may say.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use herd_core::exit::ProcessEnd;
use herd_launch::{Output, ProcessSpec, SpawnError, Stdin, spawn, sys};
use herd_slurm::sbatch;
use thiserror::Error;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

/// Most bytes of one stream that are read; 5,000 jobs are 500 kB.
const MOST: usize = 64 * 1024 * 1024;
/// Bytes read or written at once.
const CHUNK: usize = 64 * 1024;

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// What it wrote to its standard output.
    pub(super) out: String,
    /// What it wrote to its standard error.
    pub(super) err: String,
    /// How it ended.
    pub(super) end: ProcessEnd,
}

/// Why a command gave no answer.
#[derive(Debug, Error)]
pub enum CommandError {
    /// It could not be started.
    #[error("could not start {program}")]
    Start {
        /// Which.
        program: String,
        /// Why.
        #[source]
        source: SpawnError,
    },
    /// It did not end in time, and was killed.
    #[error("{program} has not answered for {seconds} s")]
    TimedOut {
        /// Which.
        program: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The cluster was not asked, for it had not answered a moment ago.
    #[error("it was asked a moment ago")]
    Silent,
    /// What it said could not be read.
    #[error("could not read what {program} says")]
    Read {
        /// Which.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ended badly.
    #[error("{program} {end}{}", said(.text))]
    Failed {
        /// Which, with its arguments.
        program: String,
        /// How it ended.
        end: ProcessEnd,
        /// What it said.
        text: String,
    },
}

impl CommandError {
    /// Whether the cluster's controller was not there, or did not answer.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Silent => true,
            Self::Failed { text, .. } => sbatch::is_unavailable(text),
            Self::Start { .. } | Self::Read { .. } => false,
        }
    }
}

fn said(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}

impl Answer {
    /// Its standard output, where it ended well.
    pub(super) fn success(self, program: &str) -> Result<String, CommandError> {
        if self.end.is_success() {
            return Ok(self.out);
        }
        Err(CommandError::Failed {
            program: program.to_owned(),
            end: self.end,
            text: self.err.trim().to_owned(),
        })
    }
}

/// Runs a command with this environment and input, for at most `bound`; after that it is killed with
/// all that it has started.
pub(super) async fn run(
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    input: Vec<u8>,
    bound: Duration,
) -> Result<Answer, CommandError> {
    let program = argv.first().cloned().unwrap_or_default();
    let program = program.to_string_lossy().into_owned();
    let spec = ProcessSpec {
        stdin: if input.is_empty() {
            Stdin::Null
        } else {
            Stdin::Pipe
        },
        stdout: Output::Pipe,
        stderr: Output::Pipe,
        ..ProcessSpec::new(argv, env, "/")
    };
    let mut child = spawn(spec).map_err(|source| CommandError::Start {
        program: program.clone(),
        source,
    })?;
    let (stdin, out, err) = (child.take_stdin(), child.take_stdout(), child.take_stderr());
    let talk = async {
        let (written, out, err) = tokio::join!(write(stdin, &input), read(out), read(err));
        // One that reads no more has its reason, and says it.
        drop(written);
        Ok::<_, io::Error>((out?, err?, child.wait().await.end))
    };
    let talked = timeout(bound, talk).await;
    match talked {
        Ok(Ok((out, err, end))) => Ok(Answer { out, err, end }),
        Ok(Err(source)) => Err(CommandError::Read { program, source }),
        // The child is killed with its group when it is dropped.
        Err(_elapsed) => Err(CommandError::TimedOut {
            program,
            seconds: bound.as_secs(),
        }),
    }
}

fn watched(fd: Option<OwnedFd>) -> io::Result<Option<AsyncFd<OwnedFd>>> {
    let Some(fd) = fd else {
        return Ok(None);
    };
    rustix::io::ioctl_fionbio(&fd, true)?;
    sys::watch_stream(fd).map(Some)
}

async fn read(fd: Option<OwnedFd>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(fd) = watched(fd)? {
        let mut buffer = vec![0; CHUNK];
        loop {
            let mut ready = fd.readable().await?;
            match ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut buffer)?)) {
                Ok(Ok(0)) => break,
                Ok(Ok(length)) => bytes.extend_from_slice(&buffer[..length]),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
            if bytes.len() > MOST {
                return Err(io::Error::other("it says too much"));
            }
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn write(fd: Option<OwnedFd>, mut bytes: &[u8]) -> io::Result<()> {
    let Some(fd) = watched(fd)? else {
        return Ok(());
    };
    while !bytes.is_empty() {
        let mut ready = fd.writable().await?;
        match ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), bytes)?)) {
            Ok(Ok(length)) => bytes = &bytes[length..],
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sh(script: &str, input: &[u8], bound: Duration) -> Result<Answer, CommandError> {
        let argv = ["sh", "-c", script].map(OsString::from).to_vec();
        run(argv, std::env::vars_os().collect(), input.to_vec(), bound).await
    }

    #[tokio::test]
    async fn both_streams_the_input_and_the_end_come_through() {
        let long = vec![b'x'; 300_000];
        let script = "cat; echo no >&2; exit 3";
        let answer = sh(script, &long, Duration::from_mins(1)).await.unwrap();
        assert_eq!(answer.out.len(), long.len());
        assert_eq!(answer.end, ProcessEnd::Exited(3));
        let error = answer.success("sh").unwrap_err().to_string();
        assert_eq!(error, "sh exited with code 3: no");
        // One that does not read its input.
        let deaf = sh("exit 0", &long, Duration::from_mins(1)).await.unwrap();
        assert!(deaf.end.is_success());
    }

    #[tokio::test]
    async fn i6_one_that_does_not_end_is_killed() {
        let started = std::time::Instant::now();
        let error = sh("sleep 600", b"", Duration::from_millis(50)).await;
        assert!(matches!(error, Err(CommandError::TimedOut { .. })));
        assert!(started.elapsed() < Duration::from_mins(1));
    }

    #[tokio::test]
    async fn one_that_is_not_there_is_named() {
        let argv = vec![OsString::from("no-such-program")];
        let env = std::env::vars_os().collect();
        let error = run(argv, env, Vec::new(), Duration::from_mins(1)).await;
        assert!(error.unwrap_err().to_string().contains("no-such-program"));
    }
}
