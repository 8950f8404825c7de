//! The event log of a launch: one JSON object a line, for programs that watch it. Never a secret: no
//! arguments of the script, no environment, nothing that a worker wrote.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use serde::Serialize;

use super::WorkerEnd;
use super::silence::SilentWorker;
use crate::world::World;
use herd_core::exit::ProcessEnd;

/// What happened. Readers skip kinds and fields they do not know.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// The launcher has read its command line.
    LaunchStarted {
        /// Its process.
        pid: u32,
        /// Name of this machine.
        host: String,
        /// Its version.
        version: &'static str,
        /// Script, module or program, without arguments.
        script: String,
        /// Workers on this node.
        workers: u32,
        /// Least number of nodes.
        min_nodes: u32,
        /// Greatest number of nodes.
        max_nodes: u32,
        /// Restarts that are allowed.
        max_restarts: u32,
    },
    /// The nodes have met.
    RendezvousCompleted {
        /// Restarts so far.
        attempt: u32,
        /// This node.
        node_rank: u32,
        /// Number of nodes.
        nodes: u32,
        /// Global rank of this node's first worker.
        first_rank: u32,
        /// Workers of all nodes.
        world_size: u32,
        /// Where workers meet.
        master_addr: String,
        /// Port of the same.
        master_port: u16,
    },
    /// Workers are about to be started.
    AttemptStarted {
        /// Restarts so far.
        attempt: u32,
        /// Workers on this node.
        workers: u32,
    },
    /// A worker runs.
    WorkerStarted {
        /// Restarts so far.
        attempt: u32,
        /// Its global rank.
        rank: u32,
        /// Its local rank.
        local_rank: u32,
        /// Its process.
        pid: u32,
    },
    /// A worker has ended.
    WorkerEnded {
        /// Restarts so far.
        attempt: u32,
        /// How.
        #[serde(flatten)]
        end: EndOfWorker,
    },
    /// Workers were silent for too long (`--hang-timeout`).
    HangDetected {
        /// Restarts so far.
        attempt: u32,
        /// The bound, milliseconds.
        timeout_ms: u64,
        /// What is known of each worker that had not ended.
        workers: Vec<SilentWorker>,
    },
    /// All workers are started again.
    Restarting {
        /// Restarts with this one.
        attempt: u32,
        /// Whether it is one of those that are allowed: a change of the nodes is not.
        counted: bool,
        /// Restarts that are left after it.
        left: u32,
        /// Why.
        reason: String,
    },
    /// The launcher ends.
    LaunchEnded {
        /// Its exit code.
        code: u8,
        /// Milliseconds since it started.
        wall_ms: u64,
    },
}

/// How a worker ended: a code or a signal.
#[derive(Clone, Debug, Serialize)]
pub struct EndOfWorker {
    rank: u32,
    local_rank: u32,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<u8>,
    /// Whether the launcher had asked for it.
    stopped: bool,
    /// Processor time, milliseconds.
    cpu_ms: u64,
    /// Largest resident memory, KiB.
    peak_kib: u64,
}

impl EndOfWorker {
    pub(super) fn of(world: &World, end: &WorkerEnd) -> Self {
        let (code, signal) = match end.exit.end {
            ProcessEnd::Exited(code) => (Some(code), None),
            ProcessEnd::Signaled(signal) => (None, Some(signal)),
        };
        Self {
            rank: world.first_rank.saturating_add(end.local_rank),
            local_rank: end.local_rank,
            pid: end.pid,
            code,
            signal,
            stopped: end.exit.stopped,
            cpu_ms: end.exit.cpu_ms,
            peak_kib: end.exit.peak_kib,
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    time_ms: u64,
    run_id: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

/// The event log cannot be written to.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the event log {}\nhint: --event-log-handler=file:PATH needs a directory that exists and may be written to, a pipe a reader", path.display())]
pub struct CannotOpen {
    path: PathBuf,
    #[source]
    source: io::Error,
}

#[derive(Debug)]
enum Sink {
    Console,
    File(File),
    /// Told once that it cannot be written.
    Broken,
}

/// Where events go. A copy is the same log.
#[derive(Clone, Debug, Default)]
pub struct Events {
    run_id: String,
    sink: Option<Arc<Mutex<Sink>>>,
}

impl Events {
    /// Events go nowhere.
    pub fn none() -> Self {
        Self::default()
    }

    /// Events go to standard error.
    pub fn console(run_id: &str) -> Self {
        Self::over(run_id, Sink::Console)
    }

    /// Events are appended to a file, which is made for its owner alone.
    pub fn file(run_id: &str, path: &Path) -> Result<Self, CannotOpen> {
        let mut options = OpenOptions::new();
        // A pipe that nobody reads would be waited for, before signals are acted on.
        options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = options.append(true).create(true).mode(0o600).open(path);
        let file = file.map_err(|source| CannotOpen {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self::over(run_id, Sink::File(file)))
    }

    /// The id of the run, once it is known; copies that were made before keep theirs.
    pub fn set_run_id(&mut self, run_id: &str) {
        run_id.clone_into(&mut self.run_id);
    }

    fn over(run_id: &str, sink: Sink) -> Self {
        Self {
            run_id: run_id.to_owned(),
            sink: Some(Arc::new(Mutex::new(sink))),
        }
    }

    /// Writes one event. A log that cannot be written is given up with one line on standard error:
    /// the workers are worth more.
    pub fn record(&self, event: &Event) {
        let Some(sink) = &self.sink else { return };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let line = Line {
            time_ms: since.map_or(0, |since| {
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            }),
            run_id: &self.run_id,
            event,
        };
        let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
        let written = serde_json::to_vec(&line)
            .map_err(io::Error::from)
            .and_then(|mut text| {
                text.push(b'\n');
                // One write, so that lines of several launchers in one file stay whole.
                match &mut *sink {
                    Sink::Console => io::stderr().write_all(&text),
                    Sink::File(file) => file.write_all(&text),
                    Sink::Broken => Ok(()),
                }
            });
        if let Err(error) = written {
            *sink = Sink::Broken;
            drop(writeln!(
                io::stderr(),
                "herd launch: warning: cannot write the event log: {error}; no more events"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_object_with_its_kind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        let events = Events::file("id", &path).unwrap();
        events.record(&Event::Restarting {
            attempt: 1,
            counted: true,
            left: 2,
            reason: "rank 0 ended".to_owned(),
        });
        let text = std::fs::read_to_string(&path).unwrap();
        let value: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(value["event"], "restarting");
        assert_eq!(
            (&value["run_id"], &value["left"]),
            (&"id".into(), &2.into())
        );
        assert!(Events::file("id", &directory.path().join("no/such")).is_err());
        Events::none().record(&Event::LaunchEnded {
            code: 0,
            wall_ms: 1,
        });
    }
}
