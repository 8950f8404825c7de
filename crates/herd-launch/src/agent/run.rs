//! The attempts of one node.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use herd_core::exit::ProcessEnd;
use tokio::sync::mpsc;

use super::events::Event;
use super::layout::WorkerFiles;
use super::outcome::{AgentError, Outcome};
use super::settings::{Settings, Streams, Told, Worker, WorkerCommand};
use super::silence::Silence;
use super::tee::{Filters, Screen, Tee};
use super::watch::Watch;
use crate::follow::{FileId, Follower};
use crate::group::Group;
use crate::spawn::{Output, ProcessSpec, Stdin};
use crate::world::World;

/// Names the file that a worker may touch to show that it gets on.
const HEARTBEAT_VARIABLE: &str = "HERD_HEARTBEAT_FILE";
/// Has Python write its stacks when it gets SIGABRT.
const FAULTHANDLER_VARIABLE: &str = "PYTHONFAULTHANDLER";

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
