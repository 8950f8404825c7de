//! The supervisor's side: starts workers, tells of their ends, and ends all of them when the host has
//! gone. It decides nothing about success or failure.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::protocol::{Decoder, ProtocolError, Report, Request, Text, Worker, encode};
use super::watched::Watched;
use crate::agent::exit_code;
use crate::child::ExitInfo;
use crate::group::Group;
use crate::spawn::{Output, ProcessSpec, SpawnError, Stdin};
use crate::sys;

/// What workers get between TERM and KILL when the host is gone (I5).
const ORPHAN_GRACE: Duration = Duration::from_secs(1);
/// How long the host may take to read a report before it counts as gone.
const WRITE_BOUND: Duration = Duration::from_secs(30);
/// Bytes read at once.
const READ: usize = 64 * 1024;

/// Why a supervisor had to give up.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket.
    #[error("cannot talk with the program that started this supervisor")]
    Channel(#[from] io::Error),
    /// What came over it.
    #[error("the program that started this supervisor was not understood")]
    Protocol(#[from] ProtocolError),
}

/// Serves one host until nothing is left of its workers. `host` is its process; `told` completes when
/// the supervisor itself is asked to end. Ranks are started from the calling thread, which has to live
/// as long as the program.
pub async fn serve(
    channel: std::os::unix::net::UnixStream,
    host: Option<Pid>,
    told: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    channel.set_nonblocking(true)?;
    // The host may have more holders of its end than itself (children that it forked).
    let host = host
        .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok())
        .and_then(|pidfd| sys::watch_readable(pidfd).ok());
    let (reader, writer) = UnixStream::from_std(channel)?.into_split();
    let mut requests = Requests {
        reader,
        decoder: Decoder::default(),
        fault: None,
    };
    let mut serving = Serving {
        writer,
        group: Group::from_children(Vec::new()),
        watched: None,
        host_left: false,
    };
    let gone = gone(host.as_ref());
    tokio::pin!(gone, told);
    let first = tokio::select! {
        first = requests.next() => first,
        () = &mut told => None,
    };
    if let Some(first) = first {
        serving.start(first).await?;
    }
    let mut programs_left = true;
    while programs_left || serving.watches() {
        tokio::select! {
            biased;
            exit = serving.group.next_exit(), if programs_left => match exit {
                Some((index, exit)) => serving.tell(&exited(index, exit)).await,
                None => programs_left = false,
            },
            request = requests.next(), if !serving.host_left => serving.take(request.as_ref()),
            () = &mut gone, if !serving.host_left => serving.host_is_gone(),
            () = &mut told, if !serving.host_left => serving.host_is_gone(),
        }
    }
    if let Some(watched) = serving.watched {
        watched.end();
    }
    requests.fault.map_or(Ok(()), |fault| Err(fault.into()))
}

async fn gone(host: Option<&AsyncFd<OwnedFd>>) {
    match host {
        // The only thing a pidfd becomes readable for.
        Some(host) => drop(host.readable().await),
        None => std::future::pending().await,
    }
}

struct Requests {
    reader: OwnedReadHalf,
    decoder: Decoder,
    fault: Option<ProtocolError>,
}

impl Requests {
    /// The next request; none when the host has let go of its end, or cannot be understood, which
    /// ends its workers all the same. Cancel-safe.
    async fn next(&mut self) -> Option<Request> {
        loop {
            match self.decoder.take() {
                Ok(Some(request)) => return Some(request),
                Ok(None) => {}
                Err(fault) => {
                    self.fault.get_or_insert(fault);
                    return None;
                }
            }
            let mut bytes = vec![0; READ];
            match self.reader.read(&mut bytes).await {
                Ok(0) | Err(_) => return None,
                Ok(length) => self.decoder.feed(bytes.get(..length).unwrap_or_default()),
            }
        }
    }
}

struct Serving {
    writer: OwnedWriteHalf,
    group: Group,
    /// Workers of the host's own, until it has seen to them.
    watched: Option<Watched>,
    host_left: bool,
}

impl Serving {
    async fn start(&mut self, request: Request) -> Result<(), ServeError> {
        let Request::Start {
            env,
            workers,
            marker,
        } = request
        else {
            return Err(io::Error::other("the first request starts nothing").into());
        };
        self.watched = marker.map(Watched::new);
        let cwd = std::env::current_dir();
        let mut specs = Vec::new();
        for (index, worker) in workers.into_iter().enumerate() {
            let cwd = cwd
                .as_ref()
                .map_or_else(|_gone| Path::new("/"), PathBuf::as_path);
            match specification(worker, &env, cwd) {
                Ok(spec) => specs.push(spec),
                Err((path, error)) => {
                    let failed = Report::Failed {
                        index,
                        errno: error.raw_os_error().unwrap_or(0),
                        subject: Some(path),
                        message: error.to_string(),
                    };
                    self.tell(&failed).await;
                    return Ok(());
                }
            }
        }
        match Group::spawn_all(specs) {
            Ok(group) => {
                let pids = group.pids();
                self.group = group;
                self.tell(&Report::Started { pids }).await;
            }
            Err(error) => self.tell(&failed(error.index, &error.source)).await,
        }
        Ok(())
    }

    /// Whether the host lives and has workers of its own to see to.
    fn watches(&self) -> bool {
        self.watched.is_some() && !self.host_left
    }

    fn take(&mut self, request: Option<&Request>) {
        match request {
            None => self.host_is_gone(),
            Some(&Request::Watch { pid }) => {
                if let Some(watched) = &mut self.watched {
                    watched.add(pid);
                }
            }
            Some(Request::Unwatch) => self.watched = None,
            Some(&Request::Signal {
                index,
                signal,
                group,
            }) => {
                if let (Some(child), Some(signal)) =
                    (self.group.child(index), Signal::from_named_raw(signal))
                {
                    let _gone = if group {
                        child.signal_group(signal)
                    } else {
                        child.signal(signal)
                    };
                }
            }
            Some(&Request::Stop { signal, grace_ms }) => {
                let signal = Signal::from_named_raw(signal).unwrap_or(Signal::TERM);
                self.group.stop(signal, Duration::from_millis(grace_ms));
            }
            // Once is enough; both sides are of one release.
            Some(Request::Start { .. }) => {}
        }
    }

    fn host_is_gone(&mut self) {
        self.host_left = true;
        if !self.group.is_stopping() {
            self.group.stop(Signal::TERM, ORPHAN_GRACE);
        } else {
            // It was asked before: whatever grace that had, two seconds remain.
            self.group.kill();
        }
    }

    /// A host that hears nothing is gone, which is seen elsewhere.
    async fn tell(&mut self, report: &Report) {
        if let Ok(bytes) = encode(report) {
            let _unheard = tokio::time::timeout(WRITE_BOUND, self.writer.write_all(&bytes)).await;
        }
    }
}

fn exited(index: usize, exit: ExitInfo) -> Report {
    Report::Exited {
        index,
        code: exit_code(exit.end),
        at_ms: exit.at_ms(),
        stopped: exit.stopped,
        abandoned: exit.abandoned,
    }
}

fn failed(index: usize, error: &SpawnError) -> Report {
    let (subject, source) = match error {
        SpawnError::NotFound { program, source }
        | SpawnError::NotExecutable { program, source }
        | SpawnError::Resources { program, source } => (Some(program.clone()), Some(source)),
        SpawnError::Cwd { path, source } | SpawnError::LogFile { path, source } => {
            (Some(path.clone().into_os_string()), Some(source))
        }
        SpawnError::Affinity { source, .. } => (None, Some(source)),
        SpawnError::InvalidArgument(_) => (None, None),
    };
    let errno = source.and_then(io::Error::raw_os_error);
    Report::Failed {
        index,
        errno: match error {
            SpawnError::NotExecutable { .. } => {
                errno.unwrap_or(rustix::io::Errno::NOENT.raw_os_error())
            }
            _other => errno.unwrap_or(0),
        },
        subject: subject.map(Text::from),
        message: error.to_string(),
    }
}

fn specification(
    worker: Worker,
    common: &[(Text, Text)],
    cwd: &Path,
) -> Result<ProcessSpec, (Text, io::Error)> {
    let pair = |(name, value): (Text, Text)| (OsString::from(name), OsString::from(value));
    let mut env: std::collections::BTreeMap<OsString, OsString> =
        common.iter().cloned().map(pair).collect();
    env.extend(worker.env.into_iter().map(pair));
    let argv = worker.argv.into_iter().map(OsString::from).collect();
    Ok(ProcessSpec {
        stdin: Stdin::Inherit,
        stdout: output(worker.stdout)?,
        stderr: output(worker.stderr)?,
        ..ProcessSpec::new(argv, env.into_iter().collect(), cwd)
    })
}

fn output(path: Option<Text>) -> Result<Output, (Text, io::Error)> {
    let Some(text) = path else {
        return Ok(Output::Inherit);
    };
    let path = PathBuf::from(OsString::from(text.clone()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    match options.open(&path) {
        Ok(_emptied) => Ok(Output::File(path)),
        Err(error) => Err((text, error)),
    }
}
