//! What an agent is given: its workers, where their output goes, and its bounds.

use std::ffi::OsString;
use std::time::Duration;

use super::events::Events;
use super::layout::{Layout, WorkerFiles};
use crate::world::World;

/// What each worker's streams are to become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Standard output goes into a file.
    pub redirect_out: bool,
    /// Standard error goes into a file.
    pub redirect_err: bool,
    /// Standard output goes into a file and is shown.
    pub tee_out: bool,
    /// Standard error goes into a file and is shown.
    pub tee_err: bool,
    /// What is not redirected is not shown either: the rank is filtered out.
    pub silent: bool,
}

impl Streams {
    pub(super) fn has_files(self) -> bool {
        self.redirect_out || self.redirect_err || self.tee_out || self.tee_err
    }
}

/// What one worker is.
#[derive(Debug)]
pub struct WorkerCommand {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
    /// Begins each line that is shown of it.
    pub header: String,
    /// Processors it is bound to.
    pub cpus: Option<Vec<usize>>,
}

/// One worker of one attempt.
#[derive(Debug)]
pub struct Worker<'a> {
    /// Where it stands.
    pub world: &'a World,
    /// Its local rank.
    pub local_rank: u32,
    /// The attempt, from 0.
    pub attempt: u32,
    /// Its files.
    pub files: &'a WorkerFiles,
}

/// Says what a worker is.
pub type Describe = dyn Fn(&Worker<'_>) -> Result<WorkerCommand, String>;

/// Says what becomes of the streams of the worker with a local rank.
pub type Route = dyn Fn(&World, u32) -> Streams;

/// Hears the local rank of the worker that failed first, and how it ended, before the others are asked
/// to end.
pub type FirstFailure = dyn Fn(u32, String);

/// What an agent is to do.
pub struct Settings {
    /// Workers on this node.
    pub workers: u32,
    /// What each worker is.
    pub describe: Box<Describe>,
    /// What becomes of the streams of the worker with a local rank.
    pub streams: Box<Route>,
    /// Where logs are kept.
    pub layout: Layout,
    /// Lines of standard output that go into `filtered_stdout.log` besides.
    pub wanted_out: Vec<String>,
    /// Lines of standard error that go into `filtered_stderr.log` besides.
    pub wanted_err: Vec<String>,
    /// Attempts after the first.
    pub max_restarts: u32,
    /// What workers get between the signal that asks them to end and SIGKILL.
    pub shutdown_timeout: Duration,
    /// Hears of the first failure of each attempt.
    pub first_failure: Box<FirstFailure>,
    /// How long all workers may give no sign; they may for ever where it is absent.
    pub hang_timeout: Option<Duration>,
    /// Who is told what happens.
    pub events: Events,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("workers", &self.workers)
            .field("max_restarts", &self.max_restarts)
            .finish_non_exhaustive()
    }
}

/// What the program around the agent tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A signal that asks for the end; the second kills.
    End(i32),
    /// A signal for the workers alone.
    Forward(i32),
    /// Whoever would end what is left after the agent has died: two seconds remain (D9).
    Orphaned,
}
