//! What comes of an attempt.

use std::io;
use std::path::PathBuf;

use super::layout::LayoutError;
use crate::child::ExitInfo;
use crate::group::SpawnAllError;
use crate::spawn::SpawnError;

/// How one worker ended.
#[derive(Clone, Debug)]
pub struct WorkerEnd {
    /// Its local rank.
    pub local_rank: u32,
    /// Its process.
    pub pid: u32,
    /// How it ended, and when.
    pub exit: ExitInfo,
    /// Where it may have said why.
    pub error_file: PathBuf,
    /// What its end does not tell.
    pub note: Option<String>,
}

/// How an attempt ended.
#[derive(Debug)]
pub enum Outcome {
    /// All workers ended with 0.
    Succeeded(Vec<WorkerEnd>),
    /// One failed, and the others were ended.
    Failed(Vec<WorkerEnd>),
    /// A signal asked for the end; it is how all workers were asked, too.
    Signalled {
        /// The signal's number.
        signal: i32,
        /// The workers.
        workers: Vec<WorkerEnd>,
    },
}

/// Why an agent could not run its workers.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Logs have no place.
    #[error("cannot keep the workers' logs")]
    Layout(#[from] LayoutError),
    /// A file or the thread for shown lines could not be had.
    #[error(
        "cannot show the workers' output\nhint: give another directory with --log-dir, or leave out --tee"
    )]
    Tee(#[source] io::Error),
    /// There is no directory for workers to run in.
    #[error("cannot tell the working directory\nhint: change into a directory that is there")]
    Directory(#[source] io::Error),
    /// A worker could not be described.
    #[error("{0}")]
    Describe(String),
    /// The workers could not be started.
    #[error("cannot start the workers\nhint: {}", hint(&.0.source))]
    Spawn(#[from] SpawnAllError),
    /// There is nowhere to see whether workers write.
    #[error(
        "--hang-timeout has nothing to watch: no files are kept\nhint: leave out --log-dir=/dev/null; the workers' output goes through files so that it can be seen to grow"
    )]
    NothingToWatch,
}

/// What helps where a worker cannot be started.
fn hint(error: &SpawnError) -> &'static str {
    match error {
        SpawnError::NotFound { .. } => {
            "a program is looked for on PATH, or here as ./NAME; the Python of scripts is $PYTHON_EXEC or that of the active environment"
        }
        SpawnError::NotExecutable { .. } => {
            "`chmod +x` makes a program of it; without --no-python it is run as a Python script"
        }
        SpawnError::LogFile { .. } => "give another directory with --log-dir",
        _ => "the reason below says what is in the way",
    }
}
