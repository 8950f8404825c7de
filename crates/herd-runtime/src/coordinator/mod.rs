//! Decides what happens in one attempt: who is there, which phase runs, when it ends and how.
//!
//! Pure: messages, lost connections, requests and time come in as values; what is to be done goes
//! out as [`Action`]s. The driver does them.

mod ending;
mod nodes;
mod pause;

use std::collections::BTreeMap;

use herd_core::event::EventKind;
use herd_core::plan::Plan;
use herd_core::result::{AttemptEnd, Failure, RankResult, TaskResult};
use herd_core::spec::SetupOn;
use herd_core::state::AttemptState;
use herd_link::message::{FromCoordinator, Hello, Phase, SetupResult, VERSION};

pub use self::ending::{Cause, Withdrawal};
use self::pause::Paused;
use crate::array::ArrayQueue;
use services::Services;

mod services;
mod tasks;

/// A node that says nothing for this long is lost.
pub const SILENCE_MS: u64 = 15_000;
/// How long nodes may take to end after the ranks' grace, before they count as lost.
const ENDING_MARGIN_MS: u64 = 10_000;
/// SIGTERM's number; the signal that asks ranks to end.
pub(crate) const SIGTERM: i32 = 15;

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell a node what it is to be.
    Assign {
        /// Node index.
        node: usize,
    },
    /// Send to a node.
    Send {
        /// Node index.
        node: usize,
        /// The message.
        message: FromCoordinator,
    },
    /// Write the result of an array task.
    Task(TaskResult),
    /// Write an event.
    Event(EventKind),
    /// Break off with a node: it is lost, and is not to come back.
    GiveUp {
        /// Node index.
        node: usize,
    },
    /// The attempt is over.
    Finish(Box<AttemptEnd>),
}

/// Who is there and what it said.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    hello: Option<Hello>,
    last_heard_ms: u64,
    /// How its connection broke, until it is heard again.
    broken: Option<String>,
    /// It has finished the present phase, or does not take part in it.
    done: bool,
    lost: bool,
}

/// Why the attempt is being stopped.
#[derive(Clone, Debug)]
enum Stop {
    Failed(Option<Failure>),
    Cancelled { code: u8 },
    Preempted { code: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Gathering,
    In(Phase),
    Finished,
}

/// One attempt's decisions.
#[derive(Debug)]
pub struct Coordinator {
    plan: Plan,
    nodes: Vec<Node>,
    stage: Stage,
    state: AttemptState,
    began_ms: u64,
    gang_timeout_ms: u64,
    /// Since when nodes may register.
    gathers_from_ms: u64,
    stop: Option<Stop>,
    /// Whether it is not known yet if the backend takes its resources back to start the job again.
    undecided: bool,
    /// Whether the backend signals the ranks itself when it asks for the end.
    tells_ranks: bool,
    /// What has asked for the end of which the cause is not known yet.
    withdrawn_by: Option<String>,
    /// Why the backend has ended the attempt, in a sentence.
    why: Option<String>,
    /// The nodes that only serve were told that the run is over.
    finishing: bool,
    /// The daemons that serve the ranks.
    services: Services,
    /// When the nodes must have ended; set with the first stop or with `finishing`.
    ending_by_ms: Option<u64>,
    paused: Paused,
    results: BTreeMap<u32, RankResult>,
    /// Tasks of an array.
    array: Option<ArrayQueue>,
    actions: Vec<Action>,
}

impl Coordinator {
    /// An attempt that waits for the nodes with these names.
    pub fn new(
        plan: Plan,
        names: Vec<String>,
        gang_timeout_ms: u64,
        task_slots: u32,
        now_ms: u64,
    ) -> Self {
        let array = plan
            .array
            .as_ref()
            .map(|array| ArrayQueue::new(array, plan.retry.clone(), task_slots, names.len()));
        let nodes = names
            .into_iter()
            .map(|name| Node {
                name,
                hello: None,
                last_heard_ms: now_ms,
                broken: None,
                done: false,
                lost: false,
            })
            .collect();
        Self {
            plan,
            nodes,
            stage: Stage::Gathering,
            state: AttemptState::Starting,
            began_ms: now_ms,
            gang_timeout_ms,
            gathers_from_ms: now_ms,
            stop: None,
            undecided: false,
            tells_ranks: false,
            withdrawn_by: None,
            why: None,
            finishing: false,
            services: Services::default(),
            ending_by_ms: None,
            paused: Paused::default(),
            results: BTreeMap::new(),
            array,
            actions: vec![Action::Event(EventKind::Attempt {
                state: AttemptState::Starting,
                failure: None,
            })],
        }
    }

    /// The backend signals the ranks itself when it asks for the end.
    pub fn backend_tells_ranks(&mut self) {
        self.tells_ranks = true;
    }

    /// What is to be done now; empties the list.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// What each node said of itself, by index; `None` for one that is not there yet.
    pub fn hellos(&self) -> Vec<Option<&Hello>> {
        self.nodes.iter().map(|node| node.hello.as_ref()).collect()
    }

    /// Names of all nodes, by index.
    pub fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }

    /// A rank's process started.
    pub fn rank_started(&mut self, node: usize, rank: u32, pid: u32) {
        self.event(EventKind::RankStarted {
            rank,
            node: as_u32(node),
            pid,
        });
    }

    /// A rank ended; the first that fails stops all others.
    pub fn rank_ended(&mut self, result: RankResult, now_ms: u64) {
        self.event(EventKind::RankEnded {
            rank: result.rank,
            node: result.node,
            end: result.end,
            stopped: result.stopped,
        });
        let failed = !result.end.is_success() && !result.stopped;
        self.results.insert(result.rank, result);
        if failed {
            self.begin_stop(Stop::Failed(None), SIGTERM, self.plan.grace.ms, now_ms);
        }
        // Ray's workers end with the entry point and not after the head, which they would miss.
        self.finish_serving(now_ms);
    }

    /// A node finished a phase.
    pub fn phase_done(
        &mut self,
        node: usize,
        phase: Phase,
        setup: Option<SetupResult>,
        now_ms: u64,
    ) {
        if self.stage != Stage::In(phase) {
            return;
        }
        self.nodes[node].done = true;
        if let Some(setup) = setup.filter(|setup| !setup.end.is_success()) {
            let failure = Failure::SetupFailed {
                node: as_u32(node),
                end: setup.end,
                last_lines: setup.last_lines,
                start_error: setup.start_error,
            };
            self.begin_stop(
                Stop::Failed(Some(failure)),
                SIGTERM,
                self.plan.grace.ms,
                now_ms,
            );
        }
        self.advance(now_ms);
    }

    /// What starts the executors is started only now; nodes have all their time to register.
    pub fn gather_from(&mut self, now_ms: u64) {
        self.gathers_from_ms = now_ms;
    }

    /// Time passes: gang, silence, walltime and ending have their bounds (I6).
    pub fn tick(&mut self, now_ms: u64) {
        if self.stage == Stage::Finished {
            return;
        }
        if self.stage == Stage::Gathering
            && self.stop.is_none()
            && now_ms >= self.gathers_from_ms + self.gang_timeout_ms
        {
            let missing: Vec<usize> = (0..self.nodes.len())
                .filter(|&i| self.nodes[i].hello.is_none())
                .collect();
            let seconds = self.gang_timeout_ms / 1000;
            for node in missing {
                self.lost(
                    node,
                    &format!("did not register within {seconds} s"),
                    now_ms,
                );
            }
        }
        for node in 0..self.nodes.len() {
            let silent = now_ms.saturating_sub(self.nodes[node].last_heard_ms);
            if self.nodes[node].hello.is_some() && !self.nodes[node].done && silent > SILENCE_MS {
                let seconds = silent / 1000;
                let detail = match &self.nodes[node].broken {
                    Some(how) => format!("{how}, and it did not come back within {seconds} s"),
                    None => format!("silent for {seconds} s"),
                };
                self.lost(node, &detail, now_ms);
            }
        }
        if self.limit_due_ms().is_some_and(|due| now_ms >= due) {
            self.reach_limit(now_ms);
        }
        if let Some(array) = &mut self.array
            && array.release_due(now_ms)
        {
            self.start_tasks();
        }
        if self.ending_by_ms.is_some_and(|by| now_ms >= by) {
            let late: Vec<usize> = (0..self.nodes.len())
                .filter(|&i| !self.nodes[i].done)
                .collect();
            for node in late {
                self.event(EventKind::BoundExpired {
                    wait: "ending".to_owned(),
                    detail: format!("{} did not report its end", self.nodes[node].name),
                });
                self.lost(node, "did not end in time", now_ms);
            }
        }
    }

    fn begin(&mut self, phase: Phase) {
        self.stage = Stage::In(phase);
        self.enter(match phase {
            Phase::Setup => AttemptState::SettingUp,
            Phase::Run => AttemptState::Running,
        });
        if phase == Phase::Run && self.array.is_some() {
            for node in &mut self.nodes {
                node.done = false;
            }
            self.start_tasks();
            return;
        }
        let first_only = phase == Phase::Setup
            && self
                .plan
                .setup
                .as_ref()
                .is_some_and(|s| s.on == SetupOn::First);
        let (meeting_address, meeting_port) = self.nodes[0]
            .hello
            .as_ref()
            .map(|hello| (hello.address.clone(), hello.free_port))
            .unwrap_or_default();
        for node in 0..self.nodes.len() {
            let takes_part = !(first_only && node > 0);
            self.nodes[node].done = !takes_part;
            if takes_part {
                let message = FromCoordinator::Start {
                    phase,
                    meeting_address: meeting_address.clone(),
                    meeting_port,
                };
                self.actions.push(Action::Send { node, message });
            }
        }
    }

    /// Goes on when every node has finished what it was to do.
    fn advance(&mut self, now_ms: u64) {
        if self.stage == Stage::Finished {
            return;
        }
        self.finish_serving(now_ms);
        let waiting = self.nodes.iter().any(|node| !node.done);
        if waiting && !(self.stage == Stage::Gathering && self.stop.is_some()) {
            return;
        }
        if self.stop.is_none() && self.stage == Stage::In(Phase::Setup) && self.plan.run.is_some() {
            self.begin(Phase::Run);
            return;
        }
        if !self.undecided {
            self.finish(now_ms);
        }
    }

    fn send_all(&mut self, message: &FromCoordinator) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].hello.is_some() && !self.nodes[node].lost {
                self.actions.push(Action::Send {
                    node,
                    message: message.clone(),
                });
            }
        }
    }

    fn enter(&mut self, state: AttemptState) {
        self.enter_with(state, None);
    }

    fn enter_with(&mut self, state: AttemptState, failure: Option<Failure>) {
        match self.state.step(state) {
            Ok(next) => self.state = next,
            // An attempt that is stopped before it ran still has one terminal event (I1).
            Err(error) => self.event(EventKind::Warning {
                text: error.to_string(),
            }),
        }
        self.event(EventKind::Attempt { state, failure });
    }

    fn event(&mut self, event: EventKind) {
        self.actions.push(Action::Event(event));
    }
}

/// Why a peer of a release too far away is refused. One release older and newer are understood.
pub(crate) fn other_version(version: u32) -> String {
    format!(
        "it speaks version {version} of the protocol, this herd version {VERSION}: install herd and \
         herd-node of the same release"
    )
}

fn as_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
