//! The attempts of one node.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use herd_core::exit::ProcessEnd;
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::layout::{Layout, LayoutError, WorkerFiles};
use super::tee::{Filters, Screen, Tee};
use crate::child::ExitInfo;
use crate::follow::{FileId, Followed, Follower};
use crate::group::{Group, SpawnAllError};
use crate::spawn::{Output, ProcessSpec, Stdin};
use crate::world::World;

/// What workers get between TERM and KILL when nobody would end them after the agent.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);

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

/// Hears the local rank and the end of the worker that failed first, before the others are asked to
/// end.
pub type FirstFailure = dyn Fn(u32, ProcessEnd);

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
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("workers", &self.workers)
            .field("max_restarts", &self.max_restarts)
            .finish_non_exhaustive()
    }
}

/// Why an agent could not run its workers.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Logs have no place.
    #[error("cannot keep the workers' logs")]
    Layout(#[from] LayoutError),
    /// A file or the thread for shown lines could not be had.
    #[error("cannot show the workers' output")]
    Tee(#[source] io::Error),
    /// A worker could not be described.
    #[error("{0}")]
    Describe(String),
    /// The workers could not be started.
    #[error("cannot start the workers")]
    Spawn(#[from] SpawnAllError),
}

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

/// One node's agent.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
}

impl Agent {
    /// An agent that has started nothing.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs one attempt to its end. `told` brings signals.
    pub async fn attempt(
        &self,
        world: &World,
        attempt: u32,
        told: &mut mpsc::Receiver<Told>,
    ) -> Result<Outcome, AgentError> {
        let settings = &self.settings;
        let files = settings.layout.attempt(attempt, settings.workers)?;
        let filters = |wanted: &Vec<String>, name: &str| self.filters(attempt, wanted, name);
        let mut tee = Tee::start(
            filters(&settings.wanted_out, "filtered_stdout.log")?,
            filters(&settings.wanted_err, "filtered_stderr.log")?,
        )
        .map_err(AgentError::Tee)?;
        let mut follower = Follower::new();
        let mut specs = Vec::new();
        for rank in 0..settings.workers {
            let own = files.get(rank as usize).cloned().unwrap_or_default();
            let worker = Worker {
                world,
                local_rank: rank,
                attempt,
                files: &own,
            };
            let command = (settings.describe)(&worker).map_err(AgentError::Describe)?;
            let streams = (settings.streams)(world, rank);
            for (shown, screen, path) in [
                (streams.tee_out, Screen::Out, &own.stdout),
                (streams.tee_err, Screen::Err, &own.stderr),
            ] {
                if shown && !streams.silent && !path.as_os_str().is_empty() {
                    tee.add(screen, rank, command.header.clone());
                    follower.add(file_id(screen, rank), path);
                }
            }
            specs.push(specification(command, &own, streams)?);
        }
        let group = Group::spawn_all(specs)?;
        let pids = group.pids();
        let watch = Watch {
            settings,
            group,
            follower,
            tee,
            stopping: None,
            failed: false,
            ends: BTreeMap::new(),
        };
        let (stopping, failed, ends) = watch.run(told).await;
        let workers = ends
            .into_iter()
            .map(|(index, exit)| WorkerEnd {
                local_rank: u32::try_from(index).unwrap_or(u32::MAX),
                pid: pids.get(index).copied().unwrap_or_default(),
                exit,
                error_file: files
                    .get(index)
                    .map(|f| f.error.clone())
                    .unwrap_or_default(),
            })
            .collect();
        Ok(match (stopping, failed) {
            (Some(signal), _) => Outcome::Signalled { signal, workers },
            (None, true) => Outcome::Failed(workers),
            (None, false) => Outcome::Succeeded(workers),
        })
    }

    fn filters(&self, attempt: u32, wanted: &[String], name: &str) -> Result<Filters, AgentError> {
        if wanted.is_empty() {
            return Ok(Filters::default());
        }
        let path = match self.settings.layout.attempt_dir(attempt) {
            Some(directory) => directory.join(name),
            None => Path::new("/dev/null").join(name),
        };
        let file = create(&path).map_err(AgentError::Tee)?;
        Ok(Filters {
            wanted: wanted.to_vec(),
            file: Some(file),
        })
    }
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)
}

fn file_id(screen: Screen, rank: u32) -> FileId {
    FileId(u64::from(rank) << 1 | u64::from(screen == Screen::Err))
}

fn of_file(id: FileId) -> (Screen, u32) {
    let screen = if id.0 & 1 == 1 {
        Screen::Err
    } else {
        Screen::Out
    };
    (screen, u32::try_from(id.0 >> 1).unwrap_or(u32::MAX))
}

fn specification(
    command: WorkerCommand,
    files: &WorkerFiles,
    streams: Streams,
) -> Result<ProcessSpec, AgentError> {
    let output = |redirected: bool, path: &Path| {
        if redirected && !path.as_os_str().is_empty() {
            // Truncated now: it is there for whoever follows it, and appended to by the worker.
            create(path)?;
            Ok(Output::File(path.to_owned()))
        } else if streams.silent {
            Ok(Output::Null)
        } else {
            Ok(Output::Inherit)
        }
    };
    let stdout = output(streams.redirect_out || streams.tee_out, &files.stdout);
    let stderr = output(streams.redirect_err || streams.tee_err, &files.stderr);
    let cwd = std::env::current_dir().map_err(AgentError::Tee)?;
    Ok(ProcessSpec {
        stdin: Stdin::Inherit,
        stdout: stdout.map_err(AgentError::Tee)?,
        stderr: stderr.map_err(AgentError::Tee)?,
        cpus: command.cpus,
        ..ProcessSpec::new(command.argv, command.env, cwd)
    })
}

/// One attempt while it runs.
struct Watch<'a> {
    settings: &'a Settings,
    group: Group,
    follower: Follower,
    tee: Tee,
    /// The signal that asked for the end.
    stopping: Option<i32>,
    failed: bool,
    ends: BTreeMap<usize, ExitInfo>,
}

impl Watch<'_> {
    async fn run(
        mut self,
        told: &mut mpsc::Receiver<Told>,
    ) -> (Option<i32>, bool, BTreeMap<usize, ExitInfo>) {
        loop {
            let due = self.tee.due();
            tokio::select! {
                // Ends first: a failing worker stops its peers however much they write.
                biased;
                exit = self.group.next_exit() => match exit {
                    Some((index, exit)) => self.ended(index, exit),
                    None => break,
                },
                Some(told) = told.recv() => self.hear(told),
                shown = next_shown(&self.tee, &mut self.follower) => self.show(shown),
                room = held(&self.tee, due) => self.tee.show_held(room),
            }
        }
        // Nobody writes any more: what the files still have is shown.
        self.follower.finish_all();
        while !self.follower.is_empty() {
            let shown = next_shown(&self.tee, &mut self.follower).await;
            self.show(shown);
        }
        self.tee.finish();
        (self.stopping, self.failed, self.ends)
    }

    fn ended(&mut self, index: usize, exit: ExitInfo) {
        if !exit.end.is_success() && !exit.stopped {
            if !std::mem::replace(&mut self.failed, true) {
                let rank = u32::try_from(index).unwrap_or(u32::MAX);
                (self.settings.first_failure)(rank, exit.end);
            }
            if !self.group.is_stopping() {
                self.group
                    .stop(Signal::TERM, self.settings.shutdown_timeout);
            }
        }
        self.ends.insert(index, exit);
    }

    fn hear(&mut self, told: Told) {
        match told {
            Told::End(number) => {
                self.stopping.get_or_insert(number);
                let signal = Signal::from_named_raw(number).unwrap_or(Signal::TERM);
                // Asked again, the group kills (D14).
                self.group.stop(signal, self.settings.shutdown_timeout);
            }
            Told::Orphaned => {
                self.stopping.get_or_insert(Signal::TERM.as_raw());
                self.group.stop(Signal::TERM, ORPHAN_GRACE);
            }
            Told::Forward(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.group.signal_each(signal);
                }
            }
        }
    }

    fn show(&mut self, (room, followed): (super::tee::Room, Followed)) {
        match followed {
            Followed::Chunk { id, bytes, .. } => {
                let (screen, rank) = of_file(id);
                self.tee.feed(room, screen, rank, &bytes);
            }
            Followed::Finished { id, .. } | Followed::Failed { id, .. } => {
                let (screen, rank) = of_file(id);
                self.tee.end(room, screen, rank);
            }
            // What comes after a truncation is shown like everything else.
            Followed::Grown { .. } | Followed::Truncated { .. } => {}
        }
    }
}

/// The next piece of a worker's output, once there is room for it.
async fn next_shown(tee: &Tee, follower: &mut Follower) -> (super::tee::Room, Followed) {
    if follower.is_empty() {
        std::future::pending::<()>().await;
    }
    let room = tee.room().await;
    (room, follower.next().await)
}

async fn held(tee: &Tee, due: Option<std::time::Instant>) -> super::tee::Room {
    match due {
        Some(due) => {
            sleep_until(due.into()).await;
            tee.room().await
        }
        None => std::future::pending().await,
    }
}

/// The exit code as torchrun has it: minus the signal's number for one that died of it.
pub fn exit_code(end: ProcessEnd) -> i32 {
    match end {
        ProcessEnd::Exited(code) => i32::from(code),
        ProcessEnd::Signaled(signal) => -i32::from(signal),
    }
}
