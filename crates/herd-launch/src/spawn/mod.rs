//! What a process is to be, and starting it. It sets nothing in the calling process, runs no shell
//! and adds nothing to the environment it is given.

mod error;
mod look;
mod spec;
mod streams;

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use rustix::process::Rlimit;
use rustix::thread::CpuSet;

use crate::child::Child;
use crate::sys::{Exec, ExecFailure, Step, nofile_before};
pub use error::SpawnError;
pub use look::look_for_program;
pub use spec::{Output, ProcessSpec, Stdin};
use streams::{open_output, open_stdin};

/// Where programs are looked for when the child's environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Starts a process in a session of its own (pid = process group = session), with default signals
/// and an empty mask, that the kernel kills when the calling *thread* ends: call it from the main
/// thread.
pub fn spawn(spec: ProcessSpec) -> Result<Child, SpawnError> {
    start(spec, true)
}

/// As [`spawn`], in the caller's session and a process group of its own (pid = process group): for
/// a caller without a terminal that starts many short processes. A session is a scheduling group to
/// the kernel (autogroup), which costs every one of them time to make, to enter and to remove.
pub fn spawn_in_group(spec: ProcessSpec) -> Result<Child, SpawnError> {
    start(spec, false)
}

fn start(spec: ProcessSpec, session: bool) -> Result<Child, SpawnError> {
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
        on_parent_death,
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
        on_parent_death,
        cpus: cpu_set,
        nofile: nofile.or_else(nofile_before).map(|(soft, hard)| Rlimit {
            current: Some(soft).filter(|&n| n != u64::MAX),
            maximum: Some(hard).filter(|&n| n != u64::MAX),
        }),
        session,
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
