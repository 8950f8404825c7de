//! One node's side of an attempt: says Hello, runs phases on demand, sends logs and results, ends
//! what it started when told to, when its coordinator is gone, or when its own parent is.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use herd_core::JobId;
use herd_launch::pause::Pause;
use herd_launch::{Pid, accelerators};
use herd_link::message::{Assign, FromCoordinator, Hello, Phase, ToCoordinator, VERSION};
use herd_link::{Channel, Frame, Key};
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::environment::Meeting;
use crate::last_resort::{GRACE, LastResort};
use crate::mpi;
use crate::phase::{PhaseEvent, end_leftovers};
use crate::running::Running;
use crate::session::node::{FromSession, Sessions};
use crate::staged;
use crate::tasks::Tasks;
use crate::told::{Stop, Told};
use crate::uplink::{Coordinates, Uplink};

pub use crate::uplink::UplinkError;

/// An executor whose coordinator has been silent for this long ends (the lease of I5).
pub const LEASE: Duration = Duration::from_secs(30);
/// How often both sides say that they live.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
const SIGTERM: i32 = 15;

/// Where an executor belongs.
#[derive(Debug)]
pub struct Options {
    /// The coordinator.
    pub coordinator: SocketAddr,
    /// The job's key.
    pub key: Key,
    /// The job.
    pub job: JobId,
    /// The attempt.
    pub attempt: u32,
    /// This node's name in the allocation.
    pub node: String,
    /// Address at which other nodes reach this one; where absent, that from which it reaches the
    /// coordinator, since the others are where the coordinator is.
    pub address: Option<String>,
    /// Whether a batch system started it. Then a SIGTERM is the batch system's wish and the
    /// coordinator's to decide on, and the end of its own parent is looked for.
    pub in_step: bool,
    /// The job's directory on this node, where nodes share none: removed at the end, unless the driver is
    /// here too.
    pub staged: Option<PathBuf>,
}

/// Why an executor could not do its duty.
#[derive(Debug, Error)]
pub enum ExecutorError {
    /// The link failed.
    #[error("could not talk to the coordinator at {coordinator}")]
    Link {
        /// The coordinator.
        coordinator: SocketAddr,
        /// Why.
        #[source]
        source: UplinkError,
    },
    /// The coordinator did not want this node.
    #[error("the coordinator refused this node: {reason}")]
    Refused {
        /// Its reason.
        reason: String,
    },
    /// This process could not be prepared.
    #[error("could not {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
}

/// Runs one executor to its end. Ranks that still run when this returns have been killed.
pub async fn run(options: Options) -> Result<(), ExecutorError> {
    let coordinator = options.coordinator;
    let link_error = |source| ExecutorError::Link {
        coordinator,
        source,
    };
    let channel = Channel {
        job: options.job.to_string(),
        attempt: options.attempt,
    };
    let mut uplink = Uplink::open(Coordinates {
        address: coordinator,
        key: options.key.clone(),
        channel,
    })
    .await
    .map_err(link_error)?;
    // The port stays bound until ranks start, so that nobody else takes it meanwhile.
    let reserved =
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|source| ExecutorError::System {
            what: "reserve a port",
            source,
        })?;
    let free_port = reserved
        .local_addr()
        .map_err(|source| ExecutorError::System {
            what: "read the reserved port",
            source,
        })?
        .port();
    let address = options.address.or_else(|| {
        let own = uplink.local_address();
        own.map(|address| address.to_string())
    });
    let address = address.ok_or_else(|| ExecutorError::System {
        what: "find out this node's address",
        source: std::io::Error::other("the connection to the coordinator does not say"),
    })?;
    let hello = ToCoordinator::Hello(Hello {
        version: VERSION,
        node: options.node.clone(),
        pid: std::process::id(),
        address,
        free_port,
    });
    uplink.send_json(&hello).await;
    let mut executor = Executor {
        uplink,
        assign: None,
        phase: None,
        tasks: Tasks::new(),
        pause: None,
        sessions: Sessions::new(),
        reserved: Some(reserved),
        own_name: false,
        told: Told::default(),
        in_step: options.in_step,
        key: options.key,
        parent: options.in_step.then(rustix::process::getppid).flatten(),
    };
    let outcome = executor.serve(coordinator).await;
    executor.end_all().await;
    executor.uplink.close().await;
    if let Some(directory) = &options.staged {
        staged::remove(directory);
    }
    outcome
}

struct Executor {
    uplink: Uplink,
    assign: Option<Assign>,
    phase: Option<Running>,
    tasks: Tasks,
    /// What a pause of the job has stopped.
    pause: Option<Pause>,
    sessions: Sessions,
    reserved: Option<TcpListener>,
    /// Whether this node has a host name of its own among emulated ones.
    own_name: bool,
    /// What the batch system has told the ranks itself.
    told: Told,
    key: Key,
    /// Whether a batch system started it.
    in_step: bool,
    /// The batch system's process that started this one, whose end nobody tells it.
    parent: Option<Pid>,
}

/// Whether the executor goes on.
enum Next {
    Continue,
    End,
}

impl Executor {
    async fn serve(&mut self, coordinator: SocketAddr) -> Result<(), ExecutorError> {
        let link_error = |source| ExecutorError::Link {
            coordinator,
            source,
        };
        let mut terminate =
            signal(SignalKind::terminate()).map_err(|source| ExecutorError::System {
                what: "watch for SIGTERM",
                source,
            })?;
        let mut look = interval(HEARTBEAT);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Some(phase) = &mut self.phase {
                phase.spare(self.sessions.pids());
            }
            // Nothing is taken from the ranks that could not be handed on: then this loop never
            // waits for the coordinator.
            let room = self.uplink.has_room();
            let more_room = self.uplink.room();
            // Every branch is cancel-safe: all keep their progress inside.
            tokio::select! {
                frame = self.uplink.recv() => match frame.map_err(link_error)? {
                    Some(Frame::Control(bytes)) => {
                        let message = serde_json::from_slice(&bytes)
                            .unwrap_or(FromCoordinator::Unknown);
                        if message == FromCoordinator::Unknown {
                            self.uplink.send_json(&ToCoordinator::NotUnderstood).await;
                        }
                        if let Next::End = self.obey(message)? {
                            return Ok(());
                        }
                        self.stop_newcomers();
                    }
                    Some(Frame::Stdio(frame)) => self.sessions.input(frame),
                    Some(Frame::Log(_) | Frame::Resume(_) | Frame::Received(_)) => {}
                    // The coordinator is gone: nobody would hear of what follows.
                    None => return Ok(()),
                },
                event = next_event(&mut self.phase), if room => {
                    // Of a signal to all of a step the ranks' ends are what follows, and not the news.
                    let told = self.in_step && !self.is_orphaned() && is_due(&mut terminate).await;
                    if told {
                        self.asked_to_end().await;
                    }
                    self.report(event).await;
                    // What is there with it travels with it: each flush wakes the coordinator.
                    while self.uplink.has_room() {
                        let Some(event) = event_now(&mut self.phase).await else { break };
                        self.report(event).await;
                    }
                }
                said = self.sessions.next(), if room => match said {
                    FromSession::Stdio(frame) => self.uplink.send(Frame::Stdio(frame)).await,
                    FromSession::Message(message) => {
                        self.uplink.send_json(&ToCoordinator::Session(message)).await;
                    }
                },
                told = self.tasks.next(), if room => {
                    for message in told {
                        self.uplink.send_json(&message).await;
                    }
                }
                () = more_room, if !room => {}
                _ = terminate.recv() => {
                    if !self.in_step || self.is_orphaned() {
                        return Ok(());
                    }
                    self.asked_to_end().await;
                }
                stop = self.told.due() => self.stop_all(stop),
                _ = look.tick(), if self.parent.is_some() => if self.is_orphaned() {
                    return Ok(());
                },
            }
        }
    }

    /// The batch system has signalled this process.
    async fn asked_to_end(&mut self) {
        if let Some(stop) = self.told.signalled() {
            self.stop_all(stop);
        }
        let asked = ToCoordinator::AskedToEnd { signal: SIGTERM };
        self.uplink.send_json(&asked).await;
    }

    fn stop_all(&mut self, (signal, grace): Stop) {
        if let Some(phase) = &mut self.phase {
            phase.stop(signal, grace);
        }
        self.tasks.stop(signal, grace);
        // After the signal, so that it is the first thing they act on.
        self.go_on();
    }

    /// Whether the batch system's process that looked after this one is gone. The kernel's own signal for
    /// that is of no use here: it comes when the thread ends that forked.
    fn is_orphaned(&self) -> bool {
        self.parent.is_some() && rustix::process::getppid() != self.parent
    }

    /// Ends all that runs on this node, within the bound of I5.
    async fn end_all(&mut self) {
        let mut last_resort = LastResort::after_grace();
        let kill_at = Instant::now() + GRACE;
        let phase = async {
            if let Some(mut phase) = self.phase.take() {
                phase.end(SIGTERM, GRACE).await;
            }
        };
        let tasks = self.tasks.end(SIGTERM, GRACE);
        let sessions = self.sessions.end();
        let mut ending = pin!(async { tokio::join!(phase, tasks, sessions) });
        loop {
            tokio::select! {
                _all = &mut ending => break,
                () = last_resort.due() => last_resort.kill(&[]),
            }
        }
        end_leftovers(&[], kill_at.saturating_duration_since(Instant::now()));
    }

    fn obey(&mut self, message: FromCoordinator) -> Result<Next, ExecutorError> {
        match message {
            FromCoordinator::Assign(assign) if self.is_older(&assign) => {}
            FromCoordinator::Assign(mut assign) => {
                if self.parent.is_some() && assign.gpus.is_none() {
                    // Those that the batch system gave to this node.
                    assign.gpus = accelerators::named_to_this_process();
                }
                if !assign.plan.shared_home {
                    staged::make_room(&assign, &self.key);
                }
                self.own_name = mpi::place::name_node(&assign);
                self.assign = Some(*assign);
            }
            FromCoordinator::Start {
                phase,
                meeting_address,
                meeting_port,
            } => {
                if let Some(assign) = &self.assign {
                    if phase == Phase::Run {
                        self.reserved = None;
                    }
                    let meeting = Meeting {
                        address: meeting_address,
                        port: meeting_port,
                    };
                    self.told.phase_begins();
                    self.phase = Some(Running::start(assign, phase, &meeting, self.own_name));
                }
            }
            FromCoordinator::Cancel {
                signal,
                grace_ms,
                told,
            } => {
                let grace = Duration::from_millis(grace_ms);
                if let Some(stop) = self.told.stop((signal, grace), told) {
                    self.stop_all(stop);
                }
            }
            FromCoordinator::Pause => self.pause = Some(self.pause.take().unwrap_or_default()),
            FromCoordinator::Resume => self.go_on(),
            FromCoordinator::RunTasks { slots, tasks } => {
                if let Some(assign) = &self.assign {
                    self.tasks.run(assign, slots, tasks);
                }
            }
            FromCoordinator::ServiceReady { address, port } => {
                if let (Some(phase), Some(assign)) = (&mut self.phase, &self.assign) {
                    phase.service_ready(assign, &Meeting { address, port });
                }
            }
            FromCoordinator::ReturnTasks { count } => self.tasks.give_back(count),
            FromCoordinator::Session(message) => {
                if let Some(assign) = &self.assign {
                    self.sessions.obey(assign, message);
                }
            }
            FromCoordinator::Finish => {
                if let Some(phase) = &mut self.phase {
                    phase.finish();
                }
            }
            FromCoordinator::Release => return Ok(Next::End),
            FromCoordinator::Refused { reason } => return Err(ExecutorError::Refused { reason }),
            FromCoordinator::Heartbeat
            | FromCoordinator::Done
            | FromCoordinator::Following { .. }
            | FromCoordinator::Followed
            | FromCoordinator::Unknown => {}
        }
        Ok(Next::Continue)
    }

    /// Whether the plan was replaced by a newer one already: nobody obeys it (I4).
    fn is_older(&self, assign: &Assign) -> bool {
        let present = self.assign.as_ref();
        present.is_some_and(|present| assign.plan.generation < present.plan.generation)
    }

    /// Stops what runs in a pause: what ran when it began, and what was started since.
    fn stop_newcomers(&mut self) {
        if let Some(pause) = &mut self.pause {
            pause.stop_below(rustix::process::getpid());
        }
    }

    fn go_on(&mut self) {
        if let Some(pause) = self.pause.take() {
            pause.go_on(rustix::process::getpid());
        }
    }

    async fn report(&mut self, event: PhaseEvent) {
        let message = match event {
            PhaseEvent::Idle => return,
            PhaseEvent::Log(frame) => return self.uplink.send(Frame::Log(frame)).await,
            PhaseEvent::Started { rank, pid } => ToCoordinator::RankStarted { rank, pid },
            PhaseEvent::Ended(result) => ToCoordinator::RankEnded(result),
            PhaseEvent::ServiceReady { address, port } => {
                ToCoordinator::ServiceReady { address, port }
            }
            PhaseEvent::ServiceFailed(failure) => ToCoordinator::ServiceFailed(failure),
            PhaseEvent::Done { phase, setup } => {
                self.phase = None;
                ToCoordinator::PhaseDone { phase, setup }
            }
        };
        self.uplink.send_json(&message).await;
    }
}

/// The phase's next event; for ever pending while none runs.
async fn next_event(phase: &mut Option<Running>) -> PhaseEvent {
    match phase {
        Some(phase) => phase.next().await,
        None => std::future::pending().await,
    }
}

/// Whether a signal has come already.
async fn is_due(signal: &mut Signal) -> bool {
    tokio::select! {
        biased;
        _ = signal.recv() => true,
        () = std::future::ready(()) => false,
    }
}

/// The phase's next event where it need not be waited for.
async fn event_now(phase: &mut Option<Running>) -> Option<PhaseEvent> {
    tokio::select! {
        biased;
        event = next_event(phase) => Some(event),
        () = std::future::ready(()) => None,
    }
}
