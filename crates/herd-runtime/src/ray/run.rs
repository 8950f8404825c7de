//! The run phase of one node of a Ray job: its part of the cluster, and on node 0 the entry point in
//! it. The entry point starts when all nodes have joined, and the cluster ends after it.

use std::collections::VecDeque;
use std::time::Duration;

use herd_core::text::error_line;
use herd_launch::Pid;
use herd_link::message::{Assign, Phase, ServiceFailure};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use super::Part;
use super::node::RayNode;
use crate::environment::Meeting;
use crate::phase::{PhaseEvent, PhaseRun};
use crate::rank_files::last_lines;
use crate::service::ServiceEvent;

/// What a daemon gets between TERM and KILL; Ray's head takes three seconds.
const SERVICE_GRACE: Duration = Duration::from_secs(5);
/// How much longer than the entry point's grace a node serves it.
const SERVICE_MARGIN: Duration = Duration::from_secs(1);

/// How far it has come.
enum Stage {
    /// The cluster is awaited, or this node only serves in it.
    Serving,
    /// The entry point runs here.
    Leading,
    /// This node's part of the cluster is being ended.
    Dismissing,
    /// What is left is `inner`'s.
    Ending,
    /// What Ray wrote is being removed; the event that comes after it.
    Removing(JoinHandle<()>, Option<PhaseEvent>),
}

/// A running phase.
pub(crate) struct RayRun {
    /// The entry point on node 0, and what is left at the end.
    inner: PhaseRun,
    ray: Option<RayNode>,
    leads: bool,
    stopped: bool,
    /// How long a node that only serves waits for the entry point to use its grace.
    serve_until: Option<Instant>,
    pending: VecDeque<PhaseEvent>,
    stage: Stage,
}

impl RayRun {
    /// Starts the head on node 0. The other nodes wait until they are told of it.
    pub(crate) fn start(assign: &Assign) -> Self {
        let mut run = Self {
            inner: PhaseRun::held(assign, Phase::Run),
            ray: None,
            leads: assign.node == 0,
            stopped: false,
            serve_until: None,
            pending: VecDeque::new(),
            stage: Stage::Serving,
        };
        if run.leads {
            run.join(assign, &Part::Head);
        }
        run
    }

    /// The head is up: a node that serves joins it. Node 0 is told when all have joined, and starts
    /// the entry point.
    pub(crate) fn service_ready(&mut self, assign: &Assign, head: &Meeting) {
        if !matches!(self.stage, Stage::Serving) || self.stopped {
            return;
        }
        if self.leads {
            self.inner.start_held_ranks(assign, head);
            self.stage = Stage::Leading;
        } else if self.ray.is_none() {
            let part = Part::Worker {
                head: head.address.clone(),
                port: head.port,
            };
            self.join(assign, &part);
        }
    }

    fn join(&mut self, assign: &Assign, part: &Part) {
        match RayNode::start(assign, part) {
            Ok(node) => self.ray = Some(node),
            Err(error) => self.failed(ServiceFailure {
                start_code: error.start_code(),
                detail: format!("{}{}", error_line(&error), error.hint()),
                last_lines: Vec::new(),
            }),
        }
    }

    fn failed(&mut self, failure: ServiceFailure) {
        self.pending
            .push_back(PhaseEvent::ServiceFailed(Box::new(failure)));
    }

    /// The next event. Cancel-safe. Pends for ever after `Done`.
    pub(crate) async fn next(&mut self) -> PhaseEvent {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return event;
            }
            match &mut self.stage {
                Stage::Serving => tokio::select! {
                    event = next_of(&mut self.ray) => self.served(event),
                    () = until(self.serve_until) => self.stage = Stage::Dismissing,
                },
                Stage::Leading => tokio::select! {
                    // What the entry point says comes first: Ray ends after it.
                    biased;
                    event = self.inner.next() => match event {
                        PhaseEvent::Idle => self.stage = Stage::Dismissing,
                        event => return event,
                    },
                    event = next_of(&mut self.ray) => self.served(event),
                },
                Stage::Dismissing => {
                    dismiss(&mut self.ray).await;
                    self.inner.finish();
                    self.stage = Stage::Ending;
                }
                Stage::Ending => {
                    let event = self.inner.next().await;
                    if !matches!(event, PhaseEvent::Done { .. }) {
                        return event;
                    }
                    let ray = self.ray.take();
                    let remove = spawn_blocking(move || {
                        if let Some(ray) = ray {
                            ray.directory().remove();
                        }
                    });
                    self.stage = Stage::Removing(remove, Some(event));
                }
                Stage::Removing(remove, done) => {
                    if done.is_some() {
                        drop(remove.await);
                    }
                    match done.take() {
                        Some(done) => return done,
                        None => std::future::pending().await,
                    }
                }
            }
        }
    }

    fn served(&mut self, event: ServiceEvent) {
        let Some(node) = &self.ray else { return };
        match event {
            ServiceEvent::Ready => self.pending.push_back(PhaseEvent::ServiceReady {
                address: node.address.clone(),
                port: node.port,
            }),
            ServiceEvent::Failed(detail) => {
                let log = node.service.log();
                let failure = ServiceFailure {
                    start_code: None,
                    detail: format!("{detail}; its log is {}", log.display()),
                    last_lines: last_lines(log),
                };
                self.failed(failure);
            }
        }
    }

    /// Asks the entry point to end; asked again, kills it. Its cluster stays as long as its grace.
    pub(crate) fn stop(&mut self, signal: i32, grace: Duration) {
        let again = self.stopped;
        self.stopped = true;
        match self.stage {
            Stage::Serving if self.leads || again || grace.is_zero() => {
                self.stage = Stage::Dismissing;
            }
            Stage::Serving => {
                self.serve_until = Some(Instant::now() + grace + SERVICE_MARGIN);
            }
            Stage::Leading => self.inner.stop_held(signal, grace),
            Stage::Dismissing | Stage::Ending | Stage::Removing(..) => {}
        }
    }

    /// The entry point on node 0 has ended: a node that only served ends its part.
    pub(crate) fn finish(&mut self) {
        if matches!(self.stage, Stage::Serving) {
            self.stage = Stage::Dismissing;
        }
    }

    /// See [`PhaseRun::spare`].
    pub(crate) fn spare(&mut self, pids: Vec<Pid>) {
        self.inner.spare(pids);
    }

    /// Ends everything now.
    pub(crate) async fn end_now(&mut self, signal: i32, grace: Duration) {
        // Nobody is left whom the cluster could serve, and little time to remove its directory.
        if let Some(ray) = &mut self.ray {
            ray.service.stop(Duration::ZERO);
            ray.service.stopped().await;
            ray.directory().remove();
        }
        self.inner.end(signal, grace).await;
        if let Some(ray) = self.ray.take() {
            ray.directory().remove();
        }
    }
}

/// What happens next to this node's part of the cluster; for ever pending without one.
async fn next_of(ray: &mut Option<RayNode>) -> ServiceEvent {
    match ray {
        Some(node) => node.service.next().await,
        None => std::future::pending().await,
    }
}

/// Ends this node's part of the cluster. Cancel-safe.
async fn dismiss(ray: &mut Option<RayNode>) {
    if let Some(node) = ray {
        node.service.stop(SERVICE_GRACE);
        node.service.stopped().await;
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
