//! What a process is to be, and starting it. It sets nothing in the calling process, runs no shell
//! and adds nothing to the environment it is given.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use herd_core::exit;
use rustix::process::Rlimit;
use rustix::thread::CpuSet;

use crate::child::Child;
use crate::sys::{Exec, ExecFailure, Step};

/// Where programs are looked for when the child's environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A process to start.
#[derive(Debug)]
pub struct ProcessSpec {
    /// Program and arguments. A name without a slash is looked up in the PATH of `env`.
    pub argv: Vec<OsString>,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
    /// Directory it starts in.
    pub cwd: PathBuf,
    /// Where it reads from.
    pub stdin: Stdin,
    /// Where its standard output goes.
    pub stdout: Output,
    /// Where its standard error goes.
    pub stderr: Output,
    /// Processors it is bound to.
    pub cpus: Option<Vec<usize>>,
    /// Limit of open files to give it (soft, hard; `u64::MAX` is none), where the caller has raised
    /// its own.
    pub nofile: Option<(u64, u64)>,
    /// Open descriptors that it inherits under their own numbers; all others are closed.
    pub keep_fds: Vec<RawFd>,
}

impl ProcessSpec {
    /// A process with these arguments, environment and directory that reads nothing, writes
    /// nowhere and has no other settings.
    pub fn new(
        argv: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        cwd: impl Into<PathBuf>,
    ) -> Self {
        Self {
            argv,
            env,
            cwd: cwd.into(),
            stdin: Stdin::Null,
            stdout: Output::Null,
            stderr: Output::Null,
            cpus: None,
            nofile: None,
            keep_fds: Vec::new(),
        }
    }
}

/// Where a process reads from.
#[derive(Debug)]
pub enum Stdin {
    /// Nothing.
    Null,
    /// The caller's own standard input.
    Inherit,
    /// A pipe whose other end is [`Child::take_stdin`].
    Pipe,
    /// This descriptor.
    Fd(OwnedFd),
    /// This terminal, which becomes the process's controlling terminal.
    Terminal(OwnedFd),
}

/// Where a process writes to.
#[derive(Debug)]
pub enum Output {
    /// Appended to this file, which is made with mode 0600 where it is absent.
    File(PathBuf),
    /// For standard error: wherever standard output goes. For standard output: nowhere.
    SameAsStdout,
    /// The caller's own stream.
    Inherit,
    /// Nowhere.
    Null,
    /// This descriptor.
    Fd(OwnedFd),
    /// A pipe whose other end is [`Child::take_stdout`] or [`Child::take_stderr`].
    Pipe,
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No such program.
    #[error("program {program:?} not found")]
    NotFound {
        /// Name as given.
        program: OsString,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The program is there but cannot be executed (permission, format, or its interpreter is
    /// missing).
    #[error("program {program:?} cannot be executed")]
    NotExecutable {
        /// Name as given.
        program: OsString,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The directory cannot be entered.
    #[error("cannot change to directory {}", path.display())]
    Cwd {
        /// Directory as given.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A log file cannot be opened.
    #[error("cannot open log file {}", path.display())]
    LogFile {
        /// File as given.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Something given can never work.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// It cannot be bound to the processors.
    #[error("cannot bind to processors {cpus:?}")]
    Affinity {
        /// Processors as given.
        cpus: Vec<usize>,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The system has no room for another process or descriptor, or refused its settings.
    #[error("no resources to start {program:?}")]
    Resources {
        /// Name as given.
        program: OsString,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

impl SpawnError {
    /// The code herd ends with (design §7).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => exit::NOT_FOUND,
            Self::NotExecutable { .. } => exit::NOT_EXECUTABLE,
            Self::InvalidArgument(_) => exit::USAGE,
            Self::Cwd { .. }
            | Self::LogFile { .. }
            | Self::Affinity { .. }
            | Self::Resources { .. } => exit::HERD_FAILED,
        }
    }
}

/// Starts a process in a session of its own (pid = process group = session), with default signals
/// and an empty mask, that the kernel kills when the calling *thread* ends: call it from the main
/// thread.
pub fn spawn(spec: ProcessSpec) -> Result<Child, SpawnError> {
    let ProcessSpec {
        argv,
        env,
        cwd,
        stdin,
        stdout,
        stderr,
        cpus,
        nofile,
        keep_fds,
    } = spec;
    let program = argv
        .first()
        .cloned()
        .ok_or_else(|| SpawnError::InvalidArgument("no program is given".to_owned()))?;
    let resources = |source: io::Error| SpawnError::Resources {
        program: program.clone(),
        source,
    };

    let candidates = candidates(&program, &env)?;
    let cpu_set = cpus.as_deref().map(cpu_set).transpose()?;
    let argv = argv
        .into_iter()
        .map(|a| c_string(a, "an argument"))
        .collect::<Result<_, _>>()?;
    let env = env
        .into_iter()
        .map(environment_entry)
        .collect::<Result<_, _>>()?;
    let c_cwd = c_string(cwd.clone().into_os_string(), "the directory")?;

    let stderr_is_stdout = matches!(stderr, Output::SameAsStdout);
    let controls_terminal = matches!(stdin, Stdin::Terminal(_));
    let (stdin_fd, stdin_pipe) = open_stdin(stdin).map_err(&resources)?;
    let (stdout_fd, stdout_pipe) = open_output(stdout, &program)?;
    let (stderr_fd, stderr_pipe) = if stderr_is_stdout {
        (None, None)
    } else {
        open_output(stderr, &program)?
    };

    let exec = Exec {
        candidates,
        argv,
        env,
        cwd: c_cwd,
        stdio: [&stdin_fd, &stdout_fd, &stderr_fd].map(|fd| fd.as_ref().map(AsRawFd::as_raw_fd)),
        stderr_is_stdout,
        controls_terminal,
        keep: keep_fds,
        cpus: cpu_set,
        nofile: nofile.map(|(soft, hard)| Rlimit {
            current: Some(soft).filter(|&n| n != u64::MAX),
            maximum: Some(hard).filter(|&n| n != u64::MAX),
        }),
        parent: rustix::process::getpid(),
    };
    match exec.start() {
        Ok(pid) => Ok(Child::new(pid, stdin_pipe, stdout_pipe, stderr_pipe)),
        Err(failure) => Err(explain(failure, program, cwd, cpus, &exec)),
    }
}

fn explain(
    ExecFailure { step, errno }: ExecFailure,
    program: OsString,
    cwd: PathBuf,
    cpus: Option<Vec<usize>>,
    exec: &Exec,
) -> SpawnError {
    let source = io::Error::from_raw_os_error(errno);
    match step {
        Step::Clone | Step::Prepare => SpawnError::Resources { program, source },
        Step::Affinity => SpawnError::Affinity {
            cpus: cpus.unwrap_or_default(),
            source,
        },
        Step::Cwd => SpawnError::Cwd { path: cwd, source },
        Step::Exec => match errno {
            // A script whose interpreter is missing is "not found" to the system as well.
            libc::ENOENT if !exec.candidates.iter().any(|path| is_there(&cwd, path)) => {
                SpawnError::NotFound { program, source }
            }
            libc::ENOENT => SpawnError::NotExecutable {
                program,
                source: io::Error::new(source.kind(), "the interpreter it names does not exist"),
            },
            libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP => {
                SpawnError::NotFound { program, source }
            }
            libc::E2BIG => SpawnError::InvalidArgument(
                "arguments and environment together are longer than the system allows".to_owned(),
            ),
            libc::ENOMEM | libc::EAGAIN | libc::EMFILE | libc::ENFILE | libc::EIO => {
                SpawnError::Resources { program, source }
            }
            _ => SpawnError::NotExecutable { program, source },
        },
    }
}

fn is_there(cwd: &std::path::Path, path: &CString) -> bool {
    cwd.join(OsStr::from_bytes(path.to_bytes())).is_file()
}

/// The paths to try, in the order of the *child's* PATH.
fn candidates(program: &OsStr, env: &[(OsString, OsString)]) -> Result<Vec<CString>, SpawnError> {
    let name = program.as_bytes();
    if name.is_empty() {
        return Err(SpawnError::InvalidArgument(
            "the program's name is empty".to_owned(),
        ));
    }
    if name.contains(&b'/') {
        return Ok(vec![c_string(program.to_owned(), "the program's name")?]);
    }
    let path = env
        .iter()
        .rev()
        .find(|(key, _)| key == "PATH")
        .map_or(DEFAULT_PATH.as_bytes(), |(_, value)| value.as_bytes());
    path.split(|&byte| byte == b':')
        .map(|directory| {
            let directory: &[u8] = if directory.is_empty() {
                b"."
            } else {
                directory
            };
            c_string(OsString::from_vec([directory, b"/", name].concat()), "PATH")
        })
        .collect()
}

fn c_string(text: OsString, what: &str) -> Result<CString, SpawnError> {
    CString::new(text.into_vec()).map_err(|error| {
        SpawnError::InvalidArgument(format!(
            "{what} contains a NUL byte: {:?}",
            String::from_utf8_lossy(&error.into_vec())
        ))
    })
}

fn environment_entry((key, value): (OsString, OsString)) -> Result<CString, SpawnError> {
    if key.is_empty() || key.as_bytes().contains(&b'=') {
        return Err(SpawnError::InvalidArgument(format!(
            "{:?} is no name of a variable",
            key.to_string_lossy()
        )));
    }
    // The value may be a secret: the message names the variable only.
    let name = key.to_string_lossy().into_owned();
    CString::new([key.as_bytes(), b"=", value.as_bytes()].concat()).map_err(|_nul| {
        SpawnError::InvalidArgument(format!("variable {name:?} contains a NUL byte"))
    })
}

fn cpu_set(cpus: &[usize]) -> Result<CpuSet, SpawnError> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(SpawnError::InvalidArgument(format!(
                "processor {cpu} is out of range"
            )));
        }
        set.set(cpu);
    }
    Ok(set)
}

/// The descriptor for the child, and the caller's end of a pipe.
type Opened = (Option<OwnedFd>, Option<OwnedFd>);

fn open_stdin(stdin: Stdin) -> io::Result<Opened> {
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

fn open_output(output: Output, program: &OsStr) -> Result<Opened, SpawnError> {
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
