//! The attempts of one node.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use herd_core::exit::ProcessEnd;
use tokio::sync::mpsc;

use super::events::{Event, Events};
use super::layout::{Layout, LayoutError, WorkerFiles};
use super::silence::Silence;
use super::tee::{Filters, Screen, Tee};
use super::watch::Watch;
use crate::child::ExitInfo;
use crate::follow::{FileId, Follower};
use crate::group::{Group, SpawnAllError};
use crate::spawn::{Output, ProcessSpec, SpawnError, Stdin};
use crate::world::World;

/// Names the file that a worker may touch to show that it gets on.
const HEARTBEAT_VARIABLE: &str = "HERD_HEARTBEAT_FILE";
/// Has Python write its stacks when it gets SIGABRT.
const FAULTHANDLER_VARIABLE: &str = "PYTHONFAULTHANDLER";

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
    fn has_files(self) -> bool {
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
        settings.events.record(&Event::RendezvousCompleted {
            attempt,
            node_rank: world.node_rank,
            nodes: world.nodes,
            first_rank: world.first_rank,
            world_size: world.world_size,
            master_addr: world.master_addr.clone(),
            master_port: world.master_port,
        });
        let wanted = (0..settings.workers).map(|rank| (settings.streams)(world, rank));
        let wanted: Vec<Streams> = wanted.collect();
        let logs =
            settings.hang_timeout.is_some() || wanted.iter().any(|streams| streams.has_files());
        let files = settings.layout.attempt(attempt, settings.workers, logs)?;
        if settings.hang_timeout.is_some() && settings.layout.run_dir().is_none() {
            return Err(AgentError::NothingToWatch);
        }
        let filters = |wanted: &Vec<String>, name: &str| self.filters(attempt, wanted, name);
        let mut tee = Tee::start(
            filters(&settings.wanted_out, "filtered_stdout.log")?,
            filters(&settings.wanted_err, "filtered_stderr.log")?,
        )
        .map_err(AgentError::Tee)?;
        let mut follower = Follower::new();
        let mut specs = Vec::new();
        for ((rank, own), &wanted) in (0..).zip(&files).zip(&wanted) {
            let worker = Worker {
                world,
                local_rank: rank,
                attempt,
                files: own,
            };
            let mut command = (settings.describe)(&worker).map_err(AgentError::Describe)?;
            let streams = if settings.hang_timeout.is_some() {
                let beats = own.heartbeat.clone().into_os_string();
                set(&mut command.env, HEARTBEAT_VARIABLE, beats, true);
                set(&mut command.env, FAULTHANDLER_VARIABLE, "1".into(), false);
                through_files(wanted)
            } else {
                wanted
            };
            for (shown, as_asked, screen, path) in [
                (streams.tee_out, wanted.tee_out, Screen::Out, &own.stdout),
                (streams.tee_err, wanted.tee_err, Screen::Err, &own.stderr),
            ] {
                if shown && !streams.silent && !path.as_os_str().is_empty() {
                    // What nobody asked to tee looks as if the worker had written it itself.
                    let header = if as_asked {
                        command.header.clone()
                    } else {
                        String::new()
                    };
                    tee.add(screen, rank, header);
                    follower.add(file_id(screen, rank), path);
                }
            }
            specs.push(specification(command, own, streams)?);
        }
        settings.events.record(&Event::AttemptStarted {
            attempt,
            workers: settings.workers,
        });
        let group = Group::spawn_all(specs)?;
        let pids = group.pids();
        let mut silence = settings
            .hang_timeout
            .map(|timeout| Silence::new(timeout, world.node_rank == 0));
        for ((local_rank, &pid), own) in (0..).zip(&pids).zip(&files) {
            let rank = world.first_rank.saturating_add(local_rank);
            if let Some(silence) = &mut silence {
                silence.add(rank, local_rank, pid, own);
            }
            settings.events.record(&Event::WorkerStarted {
                attempt,
                rank,
                local_rank,
                pid,
            });
        }
        let watch = Watch {
            settings,
            world,
            attempt,
            pids,
            files,
            group,
            follower,
            tee,
            silence,
            silent: Vec::new(),
            words: None,
            stopping: None,
            failed: false,
            ends: BTreeMap::new(),
        };
        Ok(watch.run(told).await)
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

/// Sets a variable; one that is there already only where that is asked for.
fn set(env: &mut Vec<(OsString, OsString)>, name: &str, value: OsString, replace: bool) {
    match env.iter_mut().find(|(known, _)| known == name) {
        Some((_, present)) if replace => *present = value,
        Some(_) => {}
        None => env.push((name.into(), value)),
    }
}

/// The same streams by way of files: what a worker writes to the launcher's own streams nobody sees.
fn through_files(streams: Streams) -> Streams {
    Streams {
        tee_out: streams.tee_out || !streams.redirect_out,
        tee_err: streams.tee_err || !streams.redirect_err,
        ..streams
    }
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
    let cwd = std::env::current_dir().map_err(AgentError::Directory)?;
    Ok(ProcessSpec {
        stdin: Stdin::Inherit,
        stdout: stdout.map_err(AgentError::Tee)?,
        stderr: stderr.map_err(AgentError::Tee)?,
        cpus: command.cpus,
        ..ProcessSpec::new(command.argv, command.env, cwd)
    })
}

/// The exit code as torchrun has it: minus the signal's number for one that died of it.
pub fn exit_code(end: ProcessEnd) -> i32 {
    match end {
        ProcessEnd::Exited(code) => i32::from(code),
        ProcessEnd::Signaled(signal) => -i32::from(signal),
    }
}
