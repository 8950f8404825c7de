//! One process per attempt that owns it: starts executors, coordinates them, merges their logs,
//! writes events and the one terminal record.

mod attempt;
mod followers;
mod messages;
mod sessions;
mod starter;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use herd_core::event::{Event, EventKind};
use herd_core::plan::Plan;
use herd_core::result::{AttemptEnd, Failure};
use herd_core::spec::JobType;
use herd_core::text::error_line;
use herd_jobdir::job::task_log_in;
use herd_jobdir::{
    AttemptDir, DriverInfo, Durability, EventWriter, JobDir, JobDirError, Reserve, TaskWriter,
};
use herd_link::message::{Assign, FromCoordinator, RankStarters};
use herd_link::{Channel, Key};
use tokio::time::{MissedTickBehavior, interval};

pub use self::attempt::{
    Asking, Attempt, DriverError, ExecutorStart, NodePlan, WhyEnded, asked_by_signal,
};
use self::attempt::{all_executors_log, executor_log, start_executors};
use self::followers::Followers;
use self::starter::Starter;
use crate::clock::Clock;
use crate::connections::{ConnectionId, Connections};
use crate::coordinator::{Action, Coordinator};
pub use crate::coordinator::{Cause, Withdrawal};
use crate::executor::HEARTBEAT;
use crate::executors::{Ended, Executors};
use crate::guard;
use crate::last_resort::{GRACE, LastResort};
use crate::log_files::LogFiles;
pub use crate::merge::LogGrown;
use crate::merge::Merger;
use crate::rank_files::last_lines;
use crate::ray;
use crate::records::Records;
use crate::session::relay::Relay;
use crate::signals::{Asked, Signals};

/// After Release, executors may take this long before they are killed.
const RELEASE_BOUND: Duration = Duration::from_secs(3);

/// Said of a node whose executor does not know a message.
const OTHER_RELEASE: &str =
    "its executor is of another release: install herd and herd-node together";

/// The same where the guard has died (I5).
const ORPHANED_RELEASE_BOUND: Duration = Duration::from_millis(300);
/// How long executors may take then to tell that all they had started was killed.
const ORPHANED_EXECUTORS: Duration = Duration::from_millis(400);

/// Who a connection belongs to.
#[derive(Clone, Copy)]
enum Peer {
    Node(usize),
    Client,
}

/// Drives one attempt to its one terminal record (I1). Signals count as requests to cancel.
pub async fn run(mut attempt: Attempt, signals: &mut Signals) -> Result<AttemptEnd, DriverError> {
    let clock = Clock::start();
    let channel = Channel {
        job: attempt.plan.job.to_string(),
        attempt: attempt.plan.attempt,
    };
    let connections = Connections::bind(attempt.listen, &attempt.key, &channel)
        .await
        .map_err(|source| DriverError::Listen {
            address: attempt.listen,
            source,
        })?;
    let address = connections.local_addr();
    attempt
        .dir
        .write_driver(&DriverInfo::of_this_process(address.to_string()))?;
    let events = attempt.dir.event_writer()?;
    let reserve = attempt.dir.reserve();
    let rank_starters = match &mut attempt.executors {
        ExecutorStart::Each(_) => RankStarters::default(),
        ExecutorStart::All { rank_starters, .. } => std::mem::take(rank_starters),
    };
    let executors = start_executors(&mut attempt, address)?;
    let starter = Starter::of(&attempt);
    let names: Vec<String> = attempt.nodes.iter().map(|node| node.name.clone()).collect();
    let apart = attempt.nodes.iter().map(|node| node.apart).collect();
    let files = LogFiles::new(attempt.dir.clone(), names.clone(), apart);
    let gang_ms = u64::try_from(attempt.gang_timeout.as_millis()).unwrap_or(u64::MAX);
    let mut coordinator = Coordinator::new(
        attempt.plan.clone(),
        names,
        gang_ms,
        attempt.task_slots,
        clock.now_ms(),
    );
    let mut secrets = attempt.secrets;
    if attempt.plan.job_type == JobType::Ray {
        let token = Key::generate().map_err(DriverError::Token)?;
        secrets.insert(ray::TOKEN.to_owned(), token.to_hex().to_string());
    }
    coordinator.resume_tasks(&attempt.task_history);
    if attempt
        .why_ended
        .as_ref()
        .is_some_and(|why| why.tells_ranks)
    {
        coordinator.backend_tells_ranks();
    }
    let mut driver = Driver {
        clock,
        coordinator,
        connections,
        executors,
        starter,
        events,
        peers: BTreeMap::new(),
        clients: BTreeMap::new(),
        relay: Relay::default(),
        followers: Followers::new(attempt.job.path()),
        address,
        key_file: attempt.key_file,
        rank_starters,
        node_connections: BTreeMap::new(),
        merger: Merger::new(&attempt.plan, attempt.run_log, files, attempt.log_grown),
        plan: attempt.plan,
        secrets,
        nodes: attempt.nodes,
        job: attempt.job,
        dir: attempt.dir,
        durability: attempt.durability,
        pass_stdin: attempt.pass_stdin,
        logs_at_hand: attempt.logs_at_hand,
        tasks: attempt.tasks,
        tasks_dir: attempt.tasks_dir,
        records: Records::new(attempt.warn),
        why_ended: attempt.why_ended,
        asking: None,
        withdrawn: false,
        last_resort: LastResort::default(),
        end: None,
    };
    driver.drive(signals, reserve).await
}

struct Driver {
    clock: Clock,
    coordinator: Coordinator,
    connections: Connections,
    executors: Executors,
    starter: Starter,
    events: EventWriter,
    peers: BTreeMap<ConnectionId, Peer>,
    /// When each client was last heard.
    clients: BTreeMap<ConnectionId, u64>,
    relay: Relay,
    followers: Followers,
    /// Where commands inside the job reach this driver.
    address: SocketAddr,
    key_file: PathBuf,
    rank_starters: RankStarters,
    node_connections: BTreeMap<usize, ConnectionId>,
    merger: Merger,
    plan: Plan,
    secrets: BTreeMap<String, String>,
    nodes: Vec<NodePlan>,
    job: JobDir,
    dir: AttemptDir,
    durability: Durability,
    pass_stdin: bool,
    logs_at_hand: bool,
    tasks: Option<TaskWriter>,
    tasks_dir: PathBuf,
    records: Records,
    why_ended: Option<WhyEnded>,
    /// Why a signal has come, while it is being found out.
    asking: Option<Asking>,
    /// Whether the backend has asked for the end, as far as it tells.
    withdrawn: bool,
    last_resort: LastResort,
    end: Option<AttemptEnd>,
}

impl Driver {
    async fn drive(
        &mut self,
        signals: &mut Signals,
        reserve: Reserve,
    ) -> Result<AttemptEnd, DriverError> {
        let mut beat = interval(HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.act();
            if let Some(end) = self.end.take() {
                self.flush_tasks();
                self.merger.finish(self.clock.now_ms());
                let (bound, grace) = if guard::guard_is_gone() {
                    (ORPHANED_RELEASE_BOUND, Duration::ZERO)
                } else {
                    (RELEASE_BOUND, GRACE)
                };
                self.executors.finish(bound, grace).await;
                self.remove_left();
                reserve.release();
                match self.dir.write_end(&end, self.durability) {
                    // How the attempt ended is known here, and the caller gets it.
                    Err(error @ JobDirError::DiskFull { .. }) => self.records.failed(&error),
                    other => other?,
                }
                self.end_followers().await;
                return Ok(end);
            }
            tokio::select! {
                incoming = self.connections.next() => {
                    self.handle(incoming);
                    while let Some(incoming) = self.connections.try_next() {
                        self.handle(incoming);
                    }
                    self.merger.flush();
                    if let Some(error) = self.merger.take_trouble() {
                        self.records.failed(&error);
                    }
                    self.act();
                    self.flush_tasks();
                    self.feed_followers();
                }
                asked = signals.asked() => self.asked(asked),
                (ended, how) = self.executors.next_exit() => {
                    self.executor_ended(ended, how);
                    self.executors.end_orphans();
                }
                () = self.starter.due() => self.start_again(),
                why = answer(&mut self.asking) => {
                    self.withdrawn = why != Withdrawal::Nobody;
                    self.coordinator.decide(why, self.clock.now_ms());
                }
                () = self.clock.at(self.coordinator.next_due_ms()) => {
                    self.coordinator.tick(self.clock.now_ms());
                }
                () = self.last_resort.due() => {
                    // They tell how the ranks have ended, and remove what is to be removed.
                    let spared = if self.last_resort.lasts() < ORPHANED_EXECUTORS {
                        self.executors.living()
                    } else {
                        Vec::new()
                    };
                    self.last_resort.kill(&spared);
                }
                _ = beat.tick() => {
                    for &id in self.node_connections.values() {
                        self.connections.send(id, &FromCoordinator::Heartbeat);
                    }
                    let now = self.clock.now_ms();
                    self.look_after_clients(now);
                    self.coordinator.tick(now);
                }
            }
        }
    }

    /// An executor has ended, or what had started them all: then those that have not said so before are
    /// lost.
    fn executor_ended(&mut self, ended: Ended, how: String) {
        let now = self.clock.now_ms();
        match ended {
            Ended::Node(node) => {
                let log = self.nodes.get(node);
                let log = log.map(|node| executor_log(&self.dir, &node.name));
                let how = with_last_words(log, how);
                self.coordinator.lost(node, &how, now);
            }
            Ended::All => {
                let how = with_last_words(Some(all_executors_log(&self.dir)), how);
                let early = self.coordinator.hellos().iter().all(Option::is_none);
                if early && !self.coordinator.is_ending() && self.starter.ended(&how) {
                    let text = format!("{how}; it is started again");
                    self.event(EventKind::Warning { text });
                    return;
                }
                self.all_lost(&how);
            }
        }
    }

    fn all_lost(&mut self, how: &str) {
        let now = self.clock.now_ms();
        for node in 0..self.nodes.len() {
            self.coordinator.lost(node, how, now);
        }
    }

    fn start_again(&mut self) {
        let nobody = self.coordinator.hellos().iter().all(Option::is_none);
        match self.starter.start(nobody && !self.coordinator.is_ending()) {
            Some(Ok(executors)) => {
                // The one before is killed, where it still waits.
                self.executors = executors;
                self.coordinator.gather_from(self.clock.now_ms());
            }
            Some(Err((what, error))) => {
                self.all_lost(&format!("could not start {what}: {}", error_line(&error)));
            }
            None => {}
        }
    }

    fn asked(&mut self, asked: Asked) {
        let now = self.clock.now_ms();
        match asked {
            Asked::End(signal) => {
                let (by, code) = asked_by_signal(&self.job, signal);
                // Without a guard nobody ends what is left after us: two seconds remain (I5).
                let orphaned = guard::guard_is_gone();
                let mut withdrawn = false;
                if let Some(WhyEnded { ask, .. }) = self.why_ended.take() {
                    self.asking = Some(ask());
                    withdrawn = true;
                } else if (self.asking.is_some() || self.withdrawn) && !orphaned {
                    // The batch system asks every process, not twice, and some of them late: asked again,
                    // ranks would be killed at once.
                    return;
                }
                let grace = u64::try_from(GRACE.as_millis()).unwrap_or(0);
                let grace_ms = orphaned.then_some(grace);
                if orphaned && !self.last_resort.is_set() {
                    self.last_resort = LastResort::after_grace();
                }
                if withdrawn {
                    let coordinator = &mut self.coordinator;
                    coordinator.withdraw(signal, grace_ms, code, &by, now);
                } else {
                    self.coordinator.cancel(signal, grace_ms, code, &by, now);
                }
            }
            Asked::Pause => {
                self.coordinator.pause(now);
                guard::stop_guard();
            }
            Asked::Resume => self.coordinator.resume(now),
        }
    }

    /// A rank was ended by a signal that was not ours. Batch systems may signal ranks before this driver,
    /// whose end is then no failure of theirs.
    fn suspect_end(&mut self) {
        if !self.coordinator.is_ending()
            && let Some(WhyEnded { ask, .. }) = self.why_ended.take()
        {
            self.asking = Some(ask());
            self.coordinator.leave_undecided();
        }
    }

    fn flush_tasks(&mut self) {
        if let Some(tasks) = &mut self.tasks {
            // What cannot be written now is kept and tried again.
            let flushed = tasks.flush();
            self.records.note(flushed);
        }
    }

    fn act(&mut self) {
        for action in self.coordinator.take_actions() {
            match action {
                Action::Assign { node } => {
                    let assign = self.assignment(node);
                    self.send(node, &FromCoordinator::Assign(Box::new(assign)));
                }
                Action::Send { node, message } => self.send(node, &message),
                Action::GiveUp { node } => {
                    if let Some(id) = self.node_connections.remove(&node) {
                        self.connections.close(id);
                    }
                    self.executors.give_up(node);
                    // One whose connection broke before has no end to be told of.
                    self.sessions_lost(node, "it was given up");
                }
                Action::Event(kind) => self.event(kind),
                Action::Task(result) => {
                    self.merger
                        .merge_task(&self.tasks_dir, &result, self.clock.now_ms());
                    if let Some(tasks) = &mut self.tasks {
                        let pushed = tasks.push(&result);
                        self.records.note(pushed);
                    }
                }
                Action::Finish(mut end) => {
                    self.show_task(&mut end);
                    self.end = Some(*end);
                }
            }
        }
    }

    fn event(&mut self, kind: EventKind) {
        let event = Event {
            time_ms: self.clock.now_ms(),
            kind,
        };
        // A full disk must not end the job: the ranks' own records matter more.
        let written = self.events.write(&event);
        self.records.note(written);
    }

    /// Adds what the task that failed first wrote last: its log is here, the coordinator has none.
    fn show_task(&self, end: &mut AttemptEnd) {
        if let Some(Failure::TaskFailed(task)) = &mut end.failure {
            let log = task_log_in(&self.tasks_dir, task.result.index);
            task.last_lines = last_lines(&log);
        }
    }

    fn send(&mut self, node: usize, message: &FromCoordinator) {
        if let Some(&id) = self.node_connections.get(&node) {
            self.connections.send(id, message);
        }
    }

    /// Removes what executors that were killed could not.
    fn remove_left(&self) {
        if self.plan.job_type == JobType::Ray {
            ray::directory::remove_left(&std::env::temp_dir());
        }
    }

    fn assignment(&self, node: usize) -> Assign {
        let index = u32::try_from(node).unwrap_or(u32::MAX);
        let addresses = self.coordinator.hellos().into_iter();
        Assign {
            // The tasks of an array come one by one.
            plan: Plan {
                array: None,
                ..self.plan.clone()
            },
            node: index,
            first_rank: index * self.plan.ranks_per_node,
            node_names: self.coordinator.names(),
            node_addresses: addresses
                .map(|hello| hello.map(|h| h.address.clone()).unwrap_or_default())
                .collect(),
            secrets: self.secrets.clone(),
            gpus: self.nodes[node].gpus.clone(),
            cpus: self.nodes[node].cpus.clone(),
            attempt_dir: self.dir.path().to_string_lossy().into_owned(),
            tasks_dir: self.tasks_dir.to_string_lossy().into_owned(),
            pass_stdin: self.pass_stdin,
            logs_at_hand: self.logs_at_hand,
            coordinator: self.address.to_string(),
            key_file: self.key_file.to_string_lossy().into_owned(),
            rank_starters: self.rank_starters.clone(),
        }
    }
}

/// The answer to a question under way; pends where there is none. Cancel-safe.
async fn answer(asking: &mut Option<Asking>) -> Withdrawal {
    let Some(question) = asking else {
        return std::future::pending().await;
    };
    let answer = question.as_mut().await;
    *asking = None;
    answer
}

/// What a dead executor wrote last, besides how it ended.
fn with_last_words(log: Option<PathBuf>, how: String) -> String {
    let lines = log.map(|log| last_lines(&log)).unwrap_or_default();
    match lines.last() {
        Some(line) => format!("{how}: {line}"),
        None => how,
    }
}
