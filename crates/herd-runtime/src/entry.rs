//! `herd executor`: from its arguments to its exit code. Both binaries start executors this way.
//!
//! What no argument says, a step of Slurm tells each of its tasks by the environment: the node's name,
//! and the job's key, which is in no file that all nodes see and on no command line.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use herd_core::JobId;
use herd_core::exit;
use herd_launch::sys;
use herd_link::Key;
use thiserror::Error;
use zeroize::Zeroize;

use crate::executor::{self, ExecutorError, Options};

/// Variable with the job's key, for executors that are given no file.
pub const KEY_VARIABLE: &str = "HERD_KEY";
/// Variable of executors whose ranks get the batch system's signals from it itself.
pub const SIGNALLED_VARIABLE: &str = "HERD_RANKS_SIGNALLED";
/// Variable that names the node, in each task of a Slurm step.
pub(crate) const NODE_VARIABLE: &str = "SLURMD_NODENAME";
/// A key file holds 64 hex digits; more than this is none.
const KEY_FILE_MAX: u64 = 256;

/// Why an executor did not do its duty.
#[derive(Debug, Error)]
pub enum EntryError {
    /// An argument is missing, unknown or wrong.
    #[error("{0}")]
    Usage(String),
    /// The key file cannot be read.
    #[error("could not read the key file {path}")]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The key file holds no key.
    #[error("no key in {path}")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: herd_link::LinkError,
    },
    /// There is no key, neither in a file nor in the environment.
    #[error("no key: neither --key-file nor {KEY_VARIABLE} is given")]
    NoKey,
    /// The environment holds something else than a key.
    #[error("no key in {KEY_VARIABLE}")]
    WrongKey(#[source] herd_link::LinkError),
    /// This process could not be prepared.
    #[error("could not {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The executor itself.
    #[error("the executor ended early")]
    Executor(#[from] ExecutorError),
}

impl EntryError {
    /// The code to exit with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => exit::USAGE,
            Self::KeyFile { .. }
            | Self::Key { .. }
            | Self::NoKey
            | Self::WrongKey(_)
            | Self::System { .. }
            | Self::Executor(_) => exit::HERD_FAILED,
        }
    }
}

/// Runs `herd executor ARGS` in this process, which must have no other thread yet.
pub fn executor(args: impl IntoIterator<Item = OsString>) -> Result<(), EntryError> {
    let options = parse(args)?;
    let system = |what| move |source| EntryError::System { what, source };
    // What ranks leave behind comes to this process, which ends it.
    sys::set_subreaper().map_err(system("become the parent of orphans"))?;
    sys::survive_file_size_limit().map_err(system("ignore the limit of file sizes"))?;
    sys::raise_nofile().map_err(system("raise the limit of open files"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the event loop"))?;
    runtime.block_on(executor::run(options))?;
    Ok(())
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Options, EntryError> {
    let mut args = args.into_iter();
    let (mut coordinator, mut job, mut attempt) = (None, None, None);
    let (mut node, mut address, mut key_file, mut staged) = (None, None, None, None);
    while let Some(flag) = args.next() {
        let flag = flag.to_string_lossy().into_owned();
        let value = args
            .next()
            .ok_or_else(|| EntryError::Usage(format!("{flag} needs a value")))?;
        let slot = match flag.as_str() {
            "--coordinator" => &mut coordinator,
            "--job" => &mut job,
            "--attempt" => &mut attempt,
            "--node" => &mut node,
            "--address" => &mut address,
            "--key-file" => &mut key_file,
            "--staged" => &mut staged,
            _ => return Err(EntryError::Usage(format!("unknown option {flag}"))),
        };
        *slot = Some(value);
    }
    let text = |name: &str, value: Option<OsString>| {
        let value = value.ok_or_else(|| EntryError::Usage(format!("{name} is required")))?;
        value
            .into_string()
            .map_err(|_bad| EntryError::Usage(format!("{name} is not UTF-8")))
    };
    let wrong = |name: &str| EntryError::Usage(format!("{name} has a wrong value"));
    let in_step = key_file.is_none();
    let key = match key_file {
        Some(path) => read_key(Path::new(&path))?,
        None => key_of_environment()?,
    };
    let node = node
        .or_else(|| std::env::var_os(NODE_VARIABLE))
        .or_else(host_name);
    Ok(Options {
        coordinator: text("--coordinator", coordinator)?
            .parse::<SocketAddr>()
            .map_err(|_bad| wrong("--coordinator"))?,
        job: text("--job", job)?
            .parse::<JobId>()
            .map_err(|_bad| wrong("--job"))?,
        attempt: text("--attempt", attempt)?
            .parse()
            .map_err(|_bad| wrong("--attempt"))?,
        node: text("--node", node)?,
        address: address
            .map(|value| text("--address", Some(value)))
            .transpose()?,
        key,
        in_step,
        staged: staged.map(PathBuf::from),
    })
}

/// The name of this machine, for containers in which Slurm tells tasks nothing of their own.
fn host_name() -> Option<OsString> {
    let name = nix::unistd::gethostname().ok()?.into_string().ok()?;
    let name = name.split('.').next().filter(|name| !name.is_empty())?;
    Some(name.into())
}

/// The key that the environment holds, which it does not afterwards: neither for programs that this
/// process starts nor for those that read `/proc` (I12).
fn key_of_environment() -> Result<Key, EntryError> {
    let mut text = std::env::var(KEY_VARIABLE).map_err(|_none| EntryError::NoKey)?;
    let forgotten =
        sys::forget_variable(KEY_VARIABLE.as_ref()).map_err(|source| EntryError::System {
            what: "remove the key from the environment",
            source,
        });
    let key = Key::from_hex(text.trim()).map_err(EntryError::WrongKey);
    text.zeroize();
    forgotten?;
    key
}

pub(crate) fn read_key(path: &Path) -> Result<Key, EntryError> {
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(KEY_FILE_MAX).read_to_string(&mut text))
        .map_err(|source| EntryError::KeyFile {
            path: path.to_owned(),
            source,
        })?;
    Key::from_hex(text.trim()).map_err(|source| EntryError::Key {
        path: path.to_owned(),
        source,
    })
}
