//! The tasks of an array on one node: each a process with a log of its own; a task is a message to
//! a running executor, not a new one.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use herd_core::exit::ProcessEnd;
use herd_core::result::TaskResult;
use herd_core::text::error_line;
use herd_jobdir::job::task_log_in;
use herd_launch::cgroup::MemoryWatch;
use herd_launch::{ExitInfo, Group, Output, ProcessSpec, Signal, spawn_in_group};
use herd_link::message::{Assign, Task, ToCoordinator};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock::{Clock, until};
use crate::command;
use crate::environment::{self, Meeting};
use crate::inherited::complete;

/// What SIGKILL makes of an exit code.
const KILLED: u8 = 128 + 9;
/// Variables that differ from task to task: index, index, attempt.
const TASK_VARIABLES: [&str; 3] = ["HERD_ARRAY_INDEX", "SLURM_ARRAY_TASK_ID", "HERD_ATTEMPT"];
/// Ends are told in groups of about this size where tasks are short.
const TOGETHER: usize = 16;
/// Longest time that an end waits for others to be told with.
const GATHER: Duration = Duration::from_millis(5);

/// How running tasks are to end.
#[derive(Clone, Copy)]
struct Stop {
    signal: Signal,
    grace: Duration,
}

/// The tasks of this node: those that run, and the few that wait for one of its slots.
pub(crate) struct Tasks {
    clock: Clock,
    slots: usize,
    queue: VecDeque<Task>,
    running: JoinSet<TaskResult>,
    stop: watch::Sender<Option<Stop>>,
    /// What every task of the array has in common.
    common: Option<Common>,
    /// Begun when the node has its group; what it counts is for all tasks together.
    memory: Option<MemoryWatch>,
    /// Ends that the coordinator was not told of.
    ended: Vec<TaskResult>,
    /// When it is told of them at the latest.
    tell_at: Option<Instant>,
    /// Tasks that are given back, where that was asked for or follows from a cancel.
    returned: Option<Vec<u32>>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        let (stop, _) = watch::channel(None);
        Self {
            clock: Clock::start(),
            slots: 0,
            queue: VecDeque::new(),
            running: JoinSet::new(),
            stop,
            common: None,
            memory: None,
            ended: Vec::new(),
            tell_at: None,
            returned: None,
        }
    }

    /// Takes tasks, of which `slots` run at once.
    pub(crate) fn run(&mut self, assign: &Assign, slots: u32, tasks: Vec<Task>) {
        self.slots = slots as usize;
        if self.common.is_none() {
            self.common = Some(Common::of(assign));
            self.memory = Some(MemoryWatch::start());
        }
        self.queue.extend(tasks);
        self.fill();
    }

    /// Gives back tasks that have not begun, the last ones first.
    pub(crate) fn give_back(&mut self, count: u32) {
        let kept = self.queue.len().saturating_sub(count as usize);
        let back = self.queue.split_off(kept);
        let returned = self.returned.get_or_insert_default();
        returned.extend(back.iter().map(|task| task.index));
    }

    /// What the coordinator is to be told next. Cancel-safe; pends while there is nothing.
    pub(crate) async fn next(&mut self) -> Vec<ToCoordinator> {
        loop {
            if let Some(told) = self.tell() {
                return told;
            }
            tokio::select! {
                // While ends are there they are taken, and slots filled again, before anything is told.
                biased;
                Some(joined) = self.running.join_next() => {
                    // A task of the runtime that was aborted: its process is killed with it.
                    if let Ok(mut result) = joined {
                        result.out_of_memory = self.ran_out_of_memory(&result);
                        self.note(result);
                    }
                    self.fill();
                }
                () = until(self.tell_at) => self.tell_at = Some(Instant::now()),
            }
        }
    }

    /// Starts tasks while there are slots.
    fn fill(&mut self) {
        while self.running.len() < self.slots
            && let Some(common) = &self.common
            && let Some(task) = self.queue.pop_front()
        {
            let mut result = TaskResult {
                index: task.index,
                attempt: task.attempt,
                node: common.node,
                end: ProcessEnd::Exited(0),
                started_ms: self.clock.now_ms(),
                ended_ms: 0,
                start_error: None,
                log_offset: 0,
                log_bytes: None,
                stopped: false,
                again: false,
                out_of_memory: false,
                failure: None,
            };
            let log = task_log_in(&common.tasks_dir, task.index);
            if task.attempt > 1 {
                // What earlier attempts wrote stays; this one's output follows it.
                result.log_offset = length(&log).unwrap_or(0);
            }
            match spawn_in_group(common.specification(task, &log)) {
                Ok(child) => {
                    let stop = self.stop.subscribe();
                    let group = Group::from_children(vec![child]);
                    self.running.spawn(watch_over(group, stop, result, log));
                }
                Err(error) => {
                    result.end = ProcessEnd::Exited(error.exit_code());
                    result.start_error = Some(error_line(&error));
                    result.ended_ms = self.clock.now_ms();
                    self.note(result);
                }
            }
        }
    }

    /// Whether the kernel ended a task for want of memory. Its group counts kills and names no process:
    /// with one slot all of them are of the task that ran; with several, a task that SIGKILL has ended,
    /// or whose shell tells so of its child, is the one of which the kill was. One that goes on after
    /// such a kill, and fails otherwise, is not told apart then.
    fn ran_out_of_memory(&mut self, result: &TaskResult) -> bool {
        let Some(memory) = self.memory.as_mut().filter(|_| !result.stopped) else {
            return false;
        };
        if self.slots == 1 {
            return !result.end.is_success() && memory.has_killed();
        }
        result.end.code() == KILLED && memory.has_killed_one()
    }

    fn note(&mut self, result: TaskResult) {
        self.tell_at.get_or_insert_with(|| Instant::now() + GATHER);
        self.ended.push(result);
    }

    /// Ends are told in groups, or at once where nothing else is left to do here. They come before
    /// what is given back: then the coordinator knows how many it still waits for.
    fn tell(&mut self) -> Option<Vec<ToCoordinator>> {
        let now = self.returned.is_some()
            || self.queue.is_empty() && !self.ended.is_empty()
            || self.ended.len() >= TOGETHER
            || self.tell_at.is_some_and(|at| at <= Instant::now());
        if !now {
            return None;
        }
        self.tell_at = None;
        let mut told = Vec::with_capacity(2);
        if !self.ended.is_empty() {
            told.push(ToCoordinator::TasksEnded {
                results: std::mem::take(&mut self.ended),
            });
        }
        if let Some(indices) = self.returned.take() {
            told.push(ToCoordinator::TasksReturned { indices });
        }
        Some(told)
    }

    /// Asks all running tasks to end; asked again, they are killed. Those that wait are given back.
    pub(crate) fn stop(&mut self, signal: i32, grace: Duration) {
        if !self.queue.is_empty() {
            self.give_back(u32::MAX);
        }
        let signal = Signal::from_named_raw(signal).unwrap_or(Signal::TERM);
        self.stop.send_replace(Some(Stop { signal, grace }));
    }

    /// Ends all tasks now and waits for them.
    pub(crate) async fn end(&mut self, signal: i32, grace: Duration) {
        self.stop(signal, grace);
        while self.running.join_next().await.is_some() {}
    }
}

async fn watch_over(
    mut group: Group,
    mut stop: watch::Receiver<Option<Stop>>,
    mut result: TaskResult,
    log: PathBuf,
) -> TaskResult {
    loop {
        tokio::select! {
            exit = group.next_exit() => {
                let Some((_, exit)) = exit else {
                    let length = length(&log);
                    // Shorter than before: this attempt has truncated it, and what is there is its own.
                    if length.is_some_and(|end| end < result.log_offset) {
                        result.log_offset = 0;
                    }
                    result.log_bytes = length.map(|end| end.saturating_sub(result.log_offset));
                    return result;
                };
                record(&mut result, &exit);
            }
            changed = stop.changed() => {
                let wanted = *stop.borrow_and_update();
                match (changed, wanted) {
                    (Ok(()), Some(Stop { signal, grace })) => group.stop(signal, grace),
                    (Ok(()), None) => {}
                    // The executor is going; nobody asks any more.
                    (Err(_), _) => group.kill(),
                }
                if stop.has_changed().is_err() {
                    group.kill();
                    while let Some((_, exit)) = group.next_exit().await {
                        record(&mut result, &exit);
                    }
                    return result;
                }
            }
        }
    }
}

fn record(result: &mut TaskResult, exit: &ExitInfo) {
    result.end = exit.end;
    result.stopped = exit.stopped;
    result.ended_ms = exit.at_ms();
}

/// Length of a file, where it can be looked at.
fn length(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|meta| meta.len())
}

/// What all tasks of an array have in common, made once.
struct Common {
    node: u32,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    cpus: Option<Vec<usize>>,
    tasks_dir: PathBuf,
}

impl Common {
    fn of(assign: &Assign) -> Self {
        let nowhere = Meeting {
            address: String::new(),
            port: 0,
        };
        let mut env: BTreeMap<String, String> = environment::of_rank(assign, 0, &nowhere);
        env.insert("HERD_RANK".to_owned(), "0".to_owned());
        env.insert("HERD_WORLD_SIZE".to_owned(), "1".to_owned());
        env.retain(|name, _| !TASK_VARIABLES.contains(&name.as_str()));
        if let Some(run) = &assign.plan.run {
            command::say_again(run, assign.plan.login_shell, &mut env);
        }
        let mut env = complete(assign, env);
        env.retain(|(name, _)| !TASK_VARIABLES.iter().any(|own| name == own));
        Self {
            node: assign.node,
            argv: assign
                .plan
                .run
                .as_ref()
                .map(|run| command::argv(run, assign.plan.login_shell))
                .unwrap_or_default(),
            env,
            cwd: PathBuf::from(&assign.plan.workdir),
            cpus: assign.cpus.clone(),
            tasks_dir: PathBuf::from(&assign.tasks_dir),
        }
    }

    fn specification(&self, task: Task, log: &Path) -> ProcessSpec {
        let values = [task.index, task.index, task.attempt];
        let own = TASK_VARIABLES.iter().zip(values);
        let own = own.map(|(name, value)| (name.into(), value.to_string().into()));
        ProcessSpec {
            // Appended to: attempts of a task follow each other.
            stdout: Output::File(log.to_path_buf()),
            stderr: Output::SameAsStdout,
            cpus: self.cpus.clone(),
            ..ProcessSpec::new(
                self.argv.clone(),
                self.env.iter().cloned().chain(own).collect(),
                &self.cwd,
            )
        }
    }
}
