//! The tasks of an array on one node: each a process with a log of its own; a task is a message to
//! a running executor, not a new one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use herd_core::exit::ProcessEnd;
use herd_core::result::TaskResult;
use herd_jobdir::job::task_log_in;
use herd_launch::{ExitInfo, Group, Output, ProcessSpec, Signal, Stdin, spawn};
use herd_link::message::Assign;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::command;
use crate::environment::{self, Meeting};
use crate::phase::{chain, complete};

/// How running tasks are to end.
#[derive(Clone, Copy)]
struct Stop {
    signal: Signal,
    grace: Duration,
}

/// The tasks that run on this node.
pub(crate) struct Tasks {
    clock: Clock,
    running: JoinSet<TaskResult>,
    stop: watch::Sender<Option<Stop>>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        let (stop, _) = watch::channel(None);
        Self {
            clock: Clock::start(),
            running: JoinSet::new(),
            stop,
        }
    }

    /// Starts a task. One that cannot start ends at once with the reason.
    pub(crate) fn start(&mut self, assign: &Assign, index: u32) {
        let clock = self.clock;
        let result = TaskResult {
            index,
            attempt: assign.plan.attempt,
            node: assign.node,
            end: ProcessEnd::Exited(0),
            started_ms: clock.now_ms(),
            ended_ms: 0,
            start_error: None,
        };
        match spawn(specification(assign, index)) {
            Ok(child) => {
                let stop = self.stop.subscribe();
                let group = Group::from_children(vec![child]);
                self.running.spawn(watch_over(group, stop, result));
            }
            Err(error) => {
                let end = ProcessEnd::Exited(error.exit_code());
                let start_error = Some(chain(&error));
                let ended_ms = clock.now_ms();
                self.running.spawn(async move {
                    TaskResult {
                        end,
                        ended_ms,
                        start_error,
                        ..result
                    }
                });
            }
        }
    }

    /// The next task that ends. Cancel-safe; pends while none runs.
    pub(crate) async fn next(&mut self) -> TaskResult {
        loop {
            match self.running.join_next().await {
                Some(Ok(result)) => return result,
                // A task of the runtime that panicked or was aborted: its process is killed with it.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Asks all running tasks to end; asked again, they are killed.
    pub(crate) fn stop(&self, signal: i32, grace: Duration) {
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
) -> TaskResult {
    loop {
        tokio::select! {
            exit = group.next_exit() => match exit {
                Some((_, exit)) => record(&mut result, &exit),
                None => return result,
            },
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
    result.ended_ms = exit.at_ms();
}

fn specification(assign: &Assign, index: u32) -> ProcessSpec {
    let nowhere = Meeting {
        address: String::new(),
        port: 0,
    };
    let mut env: BTreeMap<String, String> = environment::of_rank(assign, 0, &nowhere);
    let identity = [
        ("HERD_RANK", "0".to_owned()),
        ("HERD_WORLD_SIZE", "1".to_owned()),
        ("HERD_ARRAY_INDEX", index.to_string()),
        ("SLURM_ARRAY_TASK_ID", index.to_string()),
    ];
    env.extend(identity.map(|(name, value)| (name.to_owned(), value)));
    let log = task_log_in(Path::new(&assign.tasks_dir), index);
    let argv: Vec<OsString> = assign
        .plan
        .run
        .as_ref()
        .map(|run| command::argv(run, assign.plan.login_shell))
        .unwrap_or_default();
    ProcessSpec {
        argv,
        env: complete(assign, env),
        cwd: PathBuf::from(&assign.plan.workdir),
        stdin: Stdin::Null,
        stdout: Output::File(log),
        stderr: Output::SameAsStdout,
        cpus: None,
        nofile: None,
        keep_fds: Vec::new(),
    }
}
