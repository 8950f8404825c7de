//! One phase on one node: starts its processes, follows their files, tells of their ends.

mod start;

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use herd_core::exit::ProcessEnd;
use herd_core::result::RankResult;
use herd_launch::cgroup::MemoryWatch;
use herd_launch::follow::{FileId, Followed, Follower};
use herd_launch::{ExitInfo, Group, Pid, Signal, sys, tree};
use herd_link::LogFrame;
use herd_link::message::{Assign, Phase, ServiceFailure, SetupResult};

use tokio::task::{JoinHandle, spawn_blocking};

use crate::clock::Clock;
use crate::environment::Meeting;
use crate::merge::SETUP_RANK;
use crate::rank_files::{RankFiles, last_lines};

/// What processes that a rank left behind get between TERM and KILL.
const LEFTOVER_GRACE: Duration = Duration::from_secs(1);
/// Bound on ending them, killing included.
const LEFTOVER_BOUND: Duration = Duration::from_secs(5);

/// What happened in a phase.
pub(crate) enum PhaseEvent {
    /// A rank's process started.
    Started { rank: u32, pid: u32 },
    /// A stream grew.
    Log(LogFrame),
    /// A rank ended.
    Ended(Box<RankResult>),
    /// The daemon beside the ranks is up: where it is reached.
    ServiceReady { address: String, port: u16 },
    /// The daemon beside the ranks is of no use.
    ServiceFailed(Box<ServiceFailure>),
    /// Every process has ended of a phase that is held.
    Idle,
    /// Every process has ended and every byte was told.
    Done {
        phase: Phase,
        setup: Option<SetupResult>,
    },
}

/// How far the phase has come.
enum Stage {
    /// Processes run, or members of their groups do.
    Running,
    /// What they left behind outside their groups is being ended, on a thread of the runtime:
    /// heartbeats and logs go on meanwhile.
    Sweeping(JoinHandle<()>),
    /// Nobody writes any more; the rest of the files is read.
    Draining,
    Done,
}

/// A running phase.
pub(crate) struct PhaseRun {
    phase: Phase,
    node: u32,
    clock: Clock,
    group: Group,
    follower: Follower,
    /// By the group's index of the process.
    processes: Vec<Process>,
    /// Log files that are still followed.
    followed: Vec<FileId>,
    /// Stop was asked for: ends from here on are ours.
    stopped: bool,
    /// The phase lasts until it is finished or stopped, even when its own processes have ended.
    held: bool,
    /// All processes and their groups have ended.
    exhausted: bool,
    /// How the process that starts the ranks ended.
    launcher: Option<LauncherEnd>,
    memory: MemoryWatch,
    /// Whether there are ranks of other nodes that may need what those of this node leave behind.
    leaves_to_peers: bool,
    /// Children of this process that are not the phase's and outlive it.
    spared: Vec<Pid>,
    setup: Option<SetupResult>,
    pending: VecDeque<PhaseEvent>,
    stage: Stage,
}

struct Process {
    rank: u32,
    files: RankFiles,
}

/// How the process that starts the ranks ended.
pub(crate) struct LauncherEnd {
    pub(crate) end: ProcessEnd,
    /// The last lines it wrote, where it failed.
    pub(crate) last_lines: Vec<String>,
}

/// Stands for the process that starts the ranks.
const LAUNCHER: u32 = SETUP_RANK - 1;

/// Identifies a followed file: rank and stream.
fn file_id(rank: u32, stream: u8) -> FileId {
    FileId(u64::from(rank) << 8 | u64::from(stream))
}

impl PhaseRun {
    /// A phase without processes so far, which lasts until it is finished or stopped.
    pub(crate) fn held(assign: &Assign, phase: Phase) -> Self {
        Self {
            held: true,
            ..Self::empty(assign, phase)
        }
    }

    /// A phase whose first rank could not be started.
    pub(crate) fn failed(assign: &Assign, phase: Phase, why: String, code: u8) -> Self {
        let mut run = Self::empty(assign, phase);
        let mut result = run.without_start(assign.first_rank, code);
        result.start_error = Some(why);
        run.pending.push_back(PhaseEvent::Ended(Box::new(result)));
        run
    }

    fn empty(assign: &Assign, phase: Phase) -> Self {
        Self {
            phase,
            node: assign.node,
            clock: Clock::start(),
            group: Group::from_children(Vec::new()),
            follower: if assign.logs_at_hand {
                Follower::of_lengths()
            } else {
                Follower::new()
            },
            processes: Vec::new(),
            followed: Vec::new(),
            stopped: false,
            held: false,
            exhausted: false,
            launcher: None,
            memory: MemoryWatch::start(),
            leaves_to_peers: false,
            spared: Vec::new(),
            setup: None,
            pending: VecDeque::new(),
            stage: Stage::Running,
        }
    }

    /// Starts the phase. What cannot start is told as an end of its own.
    pub(crate) fn start(assign: &Assign, phase: Phase, meeting: &Meeting) -> Self {
        let mut run = Self::empty(assign, phase);
        let mut children = Vec::new();
        let started = match phase {
            Phase::Setup => run.start_setup(assign, &mut children),
            Phase::Run => {
                run.leaves_to_peers = assign.plan.nodes > 1;
                run.start_ranks(assign, meeting, &mut children)
            }
        };
        run.group = Group::from_children(children);
        if !started {
            // The others of this node must not wait for a peer that never comes (D1).
            run.stop(9, Duration::ZERO);
        } else if phase == Phase::Run {
            // Meeting the coordinator has taken much of the program; from here on little of it is used. Where
            // that fails it is larger.
            let _larger = sys::give_back_code();
        }
        run
    }

    /// The next event. Cancel-safe. Pends for ever after `Done`.
    pub(crate) async fn next(&mut self) -> PhaseEvent {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return event;
            }
            if self.exhausted && !self.held && matches!(self.stage, Stage::Running) {
                if self.leaves_to_peers && !self.stopped {
                    // What ranks left may serve ranks of other nodes: it is ended with the executor.
                    self.drain();
                } else {
                    self.sweep();
                }
            }
            match &mut self.stage {
                Stage::Running => tokio::select! {
                    // Ends first: a failing rank stops its peers however much they write.
                    biased;
                    exit = self.group.next_exit(), if !self.exhausted => {
                        if let Some((index, exit)) = exit {
                            self.ended(index, &exit);
                            continue;
                        }
                        self.exhausted = true;
                        if self.held {
                            return PhaseEvent::Idle;
                        }
                    }
                    tailed = self.follower.next(), if !self.followed.is_empty() => {
                        self.tailed(tailed);
                    }
                    // Nothing to watch until it is finished or stopped.
                    else => std::future::pending().await,
                },
                Stage::Sweeping(sweep) => tokio::select! {
                    _ = sweep => self.drain(),
                    tailed = self.follower.next(), if !self.followed.is_empty() => {
                        self.tailed(tailed);
                    }
                },
                Stage::Draining if self.followed.is_empty() => {
                    self.stage = Stage::Done;
                    return PhaseEvent::Done {
                        phase: self.phase,
                        setup: self.setup.take(),
                    };
                }
                Stage::Draining => {
                    let tailed = self.follower.next().await;
                    self.tailed(tailed);
                }
                Stage::Done => std::future::pending().await,
            }
        }
    }

    /// Asks the processes to end; asked again, kills them.
    pub(crate) fn stop(&mut self, signal: i32, grace: Duration) {
        self.stopped = true;
        self.held = false;
        let signal = Signal::from_named_raw(signal).unwrap_or(Signal::TERM);
        if self
            .processes
            .iter()
            .any(|process| process.rank == LAUNCHER)
        {
            // mpirun passes a SIGCONT on, and says so.
            self.group.ask(signal, grace);
        } else {
            self.group.stop(signal, grace);
        }
    }

    /// Says which children of this process are not the phase's.
    pub(crate) fn spare(&mut self, pids: Vec<Pid>) {
        self.spared = pids;
    }

    /// A phase that was held ends with its processes.
    pub(crate) fn finish(&mut self) {
        self.held = false;
    }

    /// Starts the ranks of a phase that was held without processes, and holds it further.
    pub(crate) fn start_held_ranks(&mut self, assign: &Assign, meeting: &Meeting) {
        let mut children = Vec::new();
        let started = self.start_ranks(assign, meeting, &mut children);
        self.group = Group::from_children(children);
        self.exhausted = false;
        if !started {
            self.stop_held(9, Duration::ZERO);
        }
    }

    /// Asks the processes to end, and holds the phase nevertheless.
    pub(crate) fn stop_held(&mut self, signal: i32, grace: Duration) {
        self.stop(signal, grace);
        self.held = true;
    }

    /// Whether all its processes have ended.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// How the process that starts the ranks ended, once.
    pub(crate) fn take_launcher_end(&mut self) -> Option<LauncherEnd> {
        self.launcher.take()
    }

    /// Ends the processes now, bounded by `grace` and the time that killing takes; what they leave
    /// behind outside their groups is the caller's to end.
    pub(crate) async fn end(&mut self, signal: i32, grace: Duration) {
        self.stop(signal, grace);
        while self.group.next_exit().await.is_some() {}
    }

    /// Ends what the processes left behind; where that is nothing, as nearly always, there is no
    /// work for a thread.
    fn sweep(&mut self) {
        let spared = std::mem::take(&mut self.spared);
        if tree::has_children() {
            self.stage = Stage::Sweeping(spawn_blocking(move || {
                end_leftovers(&spared, LEFTOVER_GRACE);
            }));
        } else {
            self.drain();
        }
    }

    /// Nobody is left who could write.
    fn drain(&mut self) {
        for &id in &self.followed {
            self.follower.finish(id);
        }
        self.stage = Stage::Draining;
    }

    fn tailed(&mut self, followed: Followed) {
        match followed {
            Followed::Chunk { id, offset, bytes } => self.tell_log(id, offset, bytes),
            Followed::Grown { id, length, .. } => self.tell_log(id, length, Vec::new()),
            Followed::Truncated { id, .. } => self.tell_log(id, 0, Vec::new()),
            Followed::Finished { id, .. } | Followed::Failed { id, .. } => {
                self.followed.retain(|&followed| followed != id);
            }
        }
    }

    fn tell_log(&mut self, id: FileId, offset: u64, bytes: Vec<u8>) {
        self.pending.push_back(PhaseEvent::Log(LogFrame {
            rank: u32::try_from(id.0 >> 8).unwrap_or(SETUP_RANK),
            stream: u8::try_from(id.0 & 0xff).unwrap_or(0),
            task: None,
            offset,
            bytes,
        }));
    }

    pub(crate) fn follow(&mut self, rank: u32, stream: u8, path: &Path) {
        let id = file_id(rank, stream);
        self.follower.add(id, path);
        self.followed.push(id);
    }

    fn ended(&mut self, index: usize, exit: &ExitInfo) {
        let Some(process) = self.processes.get(index) else {
            return;
        };
        let failed = !exit.end.is_success();
        if process.rank == LAUNCHER {
            self.launcher = Some(LauncherEnd {
                end: exit.end,
                last_lines: last_lines(&process.files.stdout),
            });
            return;
        }
        if process.rank == SETUP_RANK {
            let last_lines = if failed {
                last_lines(&process.files.stdout)
            } else {
                Vec::new()
            };
            self.setup = Some(SetupResult {
                end: exit.end,
                last_lines,
                start_error: None,
            });
            return;
        }
        self.pending
            .push_back(PhaseEvent::Ended(Box::new(RankResult {
                rank: process.rank,
                node: self.node,
                end: exit.end,
                ended_ms: exit.at_ms(),
                stopped: exit.stopped,
                start_error: None,
                error: if failed {
                    herd_launch::error_file::read_error_file(&process.files.error_file)
                        .ok()
                        .flatten()
                } else {
                    None
                },
                last_lines: if failed {
                    last_lines(&process.files.stderr)
                } else {
                    Vec::new()
                },
                cpu_ms: exit.cpu_ms,
                peak_kib: exit.peak_kib,
                out_of_memory: failed && !exit.stopped && self.memory.has_killed(),
            })));
    }
}

/// Ends what ranks left behind outside their process groups. All ranks have been reaped, so every
/// child of this process but those spared is such an orphan. `grace` is what they get between TERM and
/// KILL.
pub(crate) fn end_leftovers(spared: &[Pid], grace: Duration) {
    tree::end_all_children(spared, grace, LEFTOVER_BOUND);
}
