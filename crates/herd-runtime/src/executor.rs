//! One node's side of an attempt: says Hello, runs phases on demand, sends logs and results, ends
//! what it started when told to, when its coordinator is gone, or when its own parent is.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use herd_core::JobId;
use herd_link::message::{Assign, FromCoordinator, Hello, Phase, ToCoordinator, VERSION};
use herd_link::{Channel, Frame, Key, LinkError, Receiver, Sender};
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::environment::Meeting;
use crate::mpi;
use crate::phase::{PhaseEvent, end_leftovers};
use crate::running::Running;
use crate::session::node::{FromSession, Sessions};
use crate::tasks::Tasks;

/// An executor whose coordinator has been silent for this long ends (the lease of I5).
pub const LEASE: Duration = Duration::from_secs(30);
/// How often both sides say that they live.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// Bound on reaching the coordinator.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// What ranks get between TERM and KILL when nobody is left to decide (I5).
const ORPHAN_GRACE: Duration = Duration::from_secs(1);
const SIGTERM: i32 = 15;
/// Events of a phase that are sent together, beyond the first.
const EVENTS_AT_ONCE: usize = 15;

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
    /// Address at which other nodes reach this one.
    pub address: String,
}

/// Why an executor could not do its duty.
#[derive(Debug, Error)]
pub enum ExecutorError {
    /// The link failed.
    #[error("could not talk to the coordinator at {coordinator}")]
    Link {
        /// The coordinator.
        coordinator: SocketAddr,
        /// What the link says.
        #[source]
        source: LinkError,
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
    let (mut sender, receiver) =
        herd_link::connect(coordinator, &options.key, &channel, CONNECT_TIMEOUT)
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
    sender
        .send_json(&ToCoordinator::Hello(Hello {
            version: VERSION,
            node: options.node.clone(),
            pid: std::process::id(),
            address: options.address.clone(),
            free_port,
        }))
        .await
        .map_err(link_error)?;
    sender.flush().await.map_err(link_error)?;
    let mut executor = Executor {
        sender,
        receiver,
        assign: None,
        phase: None,
        tasks: Tasks::new(),
        sessions: Sessions::new(),
        reserved: Some(reserved),
        heard: Instant::now(),
        own_name: false,
    };
    let outcome = executor.serve(coordinator).await;
    if let Some(mut phase) = executor.phase.take() {
        phase.end(SIGTERM, ORPHAN_GRACE).await;
    }
    executor.tasks.end(SIGTERM, ORPHAN_GRACE).await;
    executor.sessions.end().await;
    end_leftovers(&[]);
    outcome
}

struct Executor {
    sender: Sender,
    receiver: Receiver,
    assign: Option<Assign>,
    phase: Option<Running>,
    tasks: Tasks,
    sessions: Sessions,
    reserved: Option<TcpListener>,
    heard: Instant,
    /// Whether this node has a host name of its own among emulated ones.
    own_name: bool,
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
        let mut beat = interval(HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Some(phase) = &mut self.phase {
                phase.spare(self.sessions.pids());
            }
            // Every branch is cancel-safe: receiver, phase and timers keep their progress inside.
            tokio::select! {
                frame = self.receiver.recv() => {
                    self.heard = Instant::now();
                    match frame {
                        Ok(Some(Frame::Control(bytes))) => {
                            let message = serde_json::from_slice(&bytes)
                                .unwrap_or(FromCoordinator::Unknown);
                            if message == FromCoordinator::Unknown {
                                let answer = ToCoordinator::NotUnderstood;
                                self.sender.send_json(&answer).await.map_err(link_error)?;
                            }
                            if let Next::End = self.obey(message)? {
                                return Ok(());
                            }
                        }
                        Ok(Some(Frame::Stdio(frame))) => self.sessions.input(frame),
                        Ok(Some(Frame::Log(_))) => {}
                        // The coordinator is gone: nobody would hear of what follows.
                        Ok(None) => return Ok(()),
                        Err(source) => return Err(link_error(source)),
                    }
                }
                event = next_event(&mut self.phase) => {
                    self.report(event).await.map_err(link_error)?;
                    // What is there with it travels with it: each flush wakes the coordinator.
                    for _ in 0..EVENTS_AT_ONCE {
                        let Some(event) = event_now(&mut self.phase).await else { break };
                        self.report(event).await.map_err(link_error)?;
                    }
                }
                said = self.sessions.next() => match said {
                    FromSession::Stdio(frame) => {
                        self.sender.send(&Frame::Stdio(frame)).await.map_err(link_error)?;
                    }
                    FromSession::Message(message) => {
                        let message = ToCoordinator::Session(message);
                        self.sender.send_json(&message).await.map_err(link_error)?;
                    }
                },
                told = self.tasks.next() => {
                    for message in told {
                        self.sender.send_json(&message).await.map_err(link_error)?;
                    }
                }
                _ = beat.tick() => {
                    if self.heard.elapsed() > LEASE {
                        return Ok(());
                    }
                    self.sender.send_json(&ToCoordinator::Heartbeat).await.map_err(link_error)?;
                }
                _ = terminate.recv() => return Ok(()),
            }
            self.sender.flush().await.map_err(link_error)?;
        }
    }

    fn obey(&mut self, message: FromCoordinator) -> Result<Next, ExecutorError> {
        match message {
            FromCoordinator::Assign(assign) => {
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
                    self.phase = Some(Running::start(assign, phase, &meeting, self.own_name));
                }
            }
            FromCoordinator::Cancel { signal, grace_ms } => {
                let grace = Duration::from_millis(grace_ms);
                if let Some(phase) = &mut self.phase {
                    phase.stop(signal, grace);
                }
                self.tasks.stop(signal, grace);
            }
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
            FromCoordinator::Heartbeat | FromCoordinator::Done | FromCoordinator::Unknown => {}
        }
        Ok(Next::Continue)
    }

    async fn report(&mut self, event: PhaseEvent) -> Result<(), LinkError> {
        match event {
            PhaseEvent::Idle => Ok(()),
            PhaseEvent::Log(frame) => self.sender.send(&Frame::Log(frame)).await,
            PhaseEvent::Started { rank, pid } => {
                self.sender
                    .send_json(&ToCoordinator::RankStarted { rank, pid })
                    .await
            }
            PhaseEvent::Ended(result) => {
                self.sender
                    .send_json(&ToCoordinator::RankEnded(result))
                    .await
            }
            PhaseEvent::ServiceReady { address, port } => {
                self.sender
                    .send_json(&ToCoordinator::ServiceReady { address, port })
                    .await
            }
            PhaseEvent::ServiceFailed(failure) => {
                self.sender
                    .send_json(&ToCoordinator::ServiceFailed(failure))
                    .await
            }
            PhaseEvent::Done { phase, setup } => {
                self.phase = None;
                self.sender
                    .send_json(&ToCoordinator::PhaseDone { phase, setup })
                    .await
            }
        }
    }
}

/// The phase's next event; for ever pending while none runs.
async fn next_event(phase: &mut Option<Running>) -> PhaseEvent {
    match phase {
        Some(phase) => phase.next().await,
        None => std::future::pending().await,
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
