//! Why a process could not be started, and the code herd ends with then.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use herd_core::exit;

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
