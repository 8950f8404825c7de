//! What a local job waits for before it runs: other jobs, and the CPUs and GPUs that it asks for.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::after::in_vain;
use herd_core::event::{Event, EventKind};
use herd_core::plan::Plan;
use herd_core::state::JobState;
use herd_jobdir::status::finish_lost;
use herd_jobdir::{AttemptDir, DriverInfo, Home, listing};
use herd_launch::{cgroup, cpus};
use herd_runtime::clock::Clock;
use herd_runtime::driver::NodePlan;
use herd_runtime::signals::Signals;
use tokio::time::timeout;

use super::announce::Announcer;
use super::leases::{DIRECTORY_VARIABLE, Lease, Leases, Need, Stock, Ticket};
use super::machine;
use crate::drive_error::DriveError;

/// How often a waiting job looks whether it may start.
const QUEUE_POLL: Duration = Duration::from_millis(200);

/// Names the job that a command runs in.
const JOB_VARIABLE: &str = "HERD_JOB_ID";

/// How waiting ended.
pub(super) enum Waited<T> {
    /// Go on.
    Ready(T),
    /// A signal asked for the job's end.
    Cancelled(i32),
    /// What was waited for can not come any more, and why.
    InVain(String),
}

/// What the job waits for, as its records and its user are told.
pub(super) struct Waits<'a> {
    clock: &'a Clock,
    noted: String,
    announcer: Announcer,
    tell: Option<fn(&str)>,
}

impl<'a> Waits<'a> {
    pub(super) fn new(clock: &'a Clock, tell: Option<fn(&str)>) -> Self {
        Self {
            clock,
            noted: String::new(),
            announcer: Announcer::new(Instant::now()),
            tell,
        }
    }

    /// To be called as long as the job waits.
    fn note(&mut self, dir: &AttemptDir, why: &str) -> Result<(), DriveError> {
        if why != self.noted {
            note_queued(dir, self.clock, why)?;
            why.clone_into(&mut self.noted);
        }
        if let Some(tell) = self.tell
            && self.announcer.is_news(why, Instant::now())
        {
            tell(why);
        }
        Ok(())
    }
}

/// Waits until the jobs of `after` have ended as they must.
pub(super) async fn wait_for_others(
    home: &Home,
    plan: &Plan,
    dir: &AttemptDir,
    signals: &mut Signals,
    waits: &mut Waits<'_>,
) -> Result<Waited<()>, DriveError> {
    for after in &plan.after {
        let Ok(id) = listing::select(home, &after.job) else {
            return Err(DriveError::Missing {
                job: after.job.clone(),
                what: "record",
            });
        };
        let other = home.open(id)?;
        let why = format!("waits for job {}", id.short());
        let result = loop {
            if let Some(result) = other.read_result()? {
                break result;
            }
            if !other.path().is_dir() {
                let why = format!("job {}, which it was to run after, was removed", id.short());
                let ended = EventKind::Job {
                    state: JobState::Cancelled,
                    why: Some(why.clone()),
                };
                note(dir, waits.clock, ended)?;
                return Ok(Waited::InVain(why));
            }
            // One whose driver died has ended, too, and nobody else may be there to say so.
            if let Some(result) = finish_lost(&other, waits.clock.now_ms())? {
                break result;
            }
            waits.note(dir, &why)?;
            if let Ok(signal) = timeout(QUEUE_POLL, signals.next()).await {
                return Ok(Waited::Cancelled(signal));
            }
        };
        if !after.when.is_met_by(result.state) {
            let why = in_vain(id, result.state, after.when);
            let ended = EventKind::Job {
                state: JobState::Cancelled,
                why: Some(why.clone()),
            };
            note(dir, waits.clock, ended)?;
            return Ok(Waited::InVain(why));
        }
    }
    Ok(Waited::Ready(()))
}

/// Waits for the CPUs and GPUs that the plan asks for and divides them among its nodes.
pub(super) async fn lease(
    plan: &Plan,
    dir: &AttemptDir,
    gpus: fn() -> Vec<String>,
    signals: &mut Signals,
    waits: &mut Waits<'_>,
) -> Result<Waited<(Vec<NodePlan>, Option<Lease>)>, DriveError> {
    let names = (0..plan.nodes).map(|index| format!("node{index}"));
    // Where no group is writable, memory is accounting only, which `render` and `run` have said.
    let memory = plan.resources.memory.map(|memory| memory.0);
    let memory = memory.filter(|_| cgroup::Parent::find().is_some());
    let need = Need {
        gpus: plan.resources.gpus.unwrap_or(0) * plan.nodes,
        cpus: plan.resources.cpus.unwrap_or(0) * plan.nodes,
    };
    if need.gpus == 0 && need.cpus == 0 {
        // Nothing asked for, nothing leased; zero GPUs asked for are zero GPUs seen.
        let gpus = plan.resources.gpus.map(|_| Vec::new());
        let nodes = names
            .map(|name| NodePlan {
                apart: false,
                name,
                gpus: gpus.clone(),
                cpus: None,
                memory,
            })
            .collect();
        return Ok(Waited::Ready((nodes, None)));
    }
    let directory = std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from);
    let ticket = Ticket {
        job: plan.job,
        user: std::env::var("USER").unwrap_or_default(),
        priority: plan.priority,
        created_ms: plan.job.created_ms().unwrap_or(0),
        inside: std::env::var(JOB_VARIABLE)
            .ok()
            .and_then(|id| id.parse().ok()),
        need,
    };
    let stock = Stock {
        gpus: if need.gpus > 0 { gpus() } else { Vec::new() },
        cpus: machine::cpus(),
    };
    let mut waiting = Leases::open(directory.as_deref())?.enqueue(ticket, stock)?;
    let lease = loop {
        if let Some(lease) = waiting.try_acquire()? {
            break lease;
        }
        waits.note(dir, &waiting.why()?)?;
        if let Ok(signal) = timeout(QUEUE_POLL, signals.next()).await {
            return Ok(Waited::Cancelled(signal));
        }
    };
    // Slots are numbered alike for all who may use the same CPUs.
    let allowed = cpus::allowed();
    let own_cpus: Vec<usize> = lease
        .cpus
        .iter()
        .filter_map(|&slot| allowed.get(slot as usize).copied())
        .collect();
    let nodes = names
        .enumerate()
        .map(|(index, name)| NodePlan {
            apart: false,
            name,
            gpus: plan.resources.gpus.map(|n| share(&lease.gpus, index, n)),
            cpus: plan.resources.cpus.map(|n| share(&own_cpus, index, n)),
            memory,
        })
        .collect();
    Ok(Waited::Ready((nodes, Some(lease))))
}

/// The part of node `index` when each gets `each`.
fn share<T: Clone>(all: &[T], index: usize, each: u32) -> Vec<T> {
    all.iter()
        .skip(index * each as usize)
        .take(each as usize)
        .cloned()
        .collect()
}

/// Says why the job waits, and who is to be told when it need not any more: before there is a port,
/// a signal to this process is how a job is cancelled.
pub(super) fn note_queued(dir: &AttemptDir, clock: &Clock, why: &str) -> Result<(), DriveError> {
    dir.write_driver(&DriverInfo::of_this_process(String::new()))?;
    let queued = EventKind::Job {
        state: JobState::Queued,
        why: Some(why.to_owned()),
    };
    note(dir, clock, queued)
}

/// Writes an event of a time when no attempt is under way.
pub(super) fn note(dir: &AttemptDir, clock: &Clock, kind: EventKind) -> Result<(), DriveError> {
    dir.event_writer()?.write(&Event {
        time_ms: clock.now_ms(),
        kind,
    })?;
    Ok(())
}
