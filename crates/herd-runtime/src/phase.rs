//! One phase on one node: starts its processes, follows their files, tells of their ends.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use herd_core::exit::ProcessEnd;
use herd_core::result::RankResult;
use herd_launch::cgroup::MemoryWatch;
use herd_launch::follow::{FileId, Followed, Follower};
use herd_launch::{
    Child, ExitInfo, Group, Output, Pid, ProcessSpec, Signal, SpawnError, Stdin, spawn, tree,
};
use herd_link::LogFrame;
use herd_link::message::{Assign, Phase, ServiceFailure, SetupResult};

use tokio::task::{JoinHandle, spawn_blocking};

use crate::clock::Clock;
use crate::command;
use crate::environment::{self, Meeting};
use crate::merge::{LAUNCHER_STREAM, SETUP_RANK};

/// Bytes of the end of a stream that are looked at for its last lines.
const TAIL_BYTES: u64 = 8 * 1024;
/// Lines kept of a failed process.
const LAST_LINES: usize = 20;
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

/// The files of one rank.
pub(crate) struct RankFiles {
    pub(crate) stdout: PathBuf,
    pub(crate) stderr: PathBuf,
    pub(crate) error_file: PathBuf,
}

impl RankFiles {
    pub(crate) fn of(attempt_dir: &Path, rank: u32) -> Self {
        let directory = attempt_dir.join("ranks").join(rank.to_string());
        Self {
            stdout: directory.join("stdout.log"),
            stderr: directory.join("stderr.log"),
            error_file: directory.join("error.json"),
        }
    }
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
            Phase::Run => run.start_ranks(assign, meeting, &mut children),
        };
        run.group = Group::from_children(children);
        if !started {
            // The others of this node must not wait for a peer that never comes (D1).
            run.stop(9, Duration::ZERO);
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
                self.sweep();
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
        self.group.stop(
            Signal::from_named_raw(signal).unwrap_or(Signal::TERM),
            grace,
        );
    }

    /// Says which children of this process are not the phase's.
    pub(crate) fn spare(&mut self, pids: Vec<Pid>) {
        self.spared = pids;
    }

    /// A phase that was held ends with its processes.
    pub(crate) fn finish(&mut self) {
        self.held = false;
    }

    /// Starts the process that starts the ranks; what it writes is followed.
    pub(crate) fn launch(&mut self, spec: ProcessSpec) -> Result<(), SpawnError> {
        let log = match &spec.stdout {
            Output::File(path) => path.clone(),
            _ => PathBuf::new(),
        };
        let child = spawn(spec)?;
        self.follow(SETUP_RANK, LAUNCHER_STREAM, &log);
        self.processes.push(Process {
            rank: LAUNCHER,
            files: RankFiles {
                stdout: log.clone(),
                stderr: log,
                error_file: PathBuf::new(),
            },
        });
        self.group = Group::from_children(vec![child]);
        Ok(())
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

    /// Ends everything now, bounded by `grace` and the time that killing takes.
    pub(crate) async fn end(&mut self, signal: i32, grace: Duration) {
        self.stop(signal, grace);
        while self.group.next_exit().await.is_some() {}
        end_leftovers(&[]);
    }

    /// Ends what the processes left behind; where that is nothing, as nearly always, there is no
    /// work for a thread.
    fn sweep(&mut self) {
        let spared = std::mem::take(&mut self.spared);
        if tree::has_children() {
            self.stage = Stage::Sweeping(spawn_blocking(move || end_leftovers(&spared)));
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

    fn start_setup(&mut self, assign: &Assign, children: &mut Vec<Child>) -> bool {
        let Some(setup) = &assign.plan.setup else {
            return true;
        };
        let name = assign
            .node_names
            .get(assign.node as usize)
            .cloned()
            .unwrap_or_default();
        let log = Path::new(&assign.attempt_dir)
            .join("nodes")
            .join(name)
            .join("setup.log");
        let env = environment::of_setup(assign);
        let spec = ProcessSpec {
            argv: command::argv(&setup.run, assign.plan.login_shell),
            env: complete(assign, env),
            cwd: PathBuf::from(&assign.plan.workdir),
            stdin: Stdin::Null,
            stdout: Output::File(log.clone()),
            stderr: Output::SameAsStdout,
            cpus: assign.cpus.clone(),
            nofile: None,
            keep_fds: Vec::new(),
        };
        match spawn(spec) {
            Ok(child) => {
                self.follow(SETUP_RANK, 0, &log);
                self.processes.push(Process {
                    rank: SETUP_RANK,
                    files: RankFiles {
                        stdout: log.clone(),
                        stderr: log,
                        error_file: PathBuf::new(),
                    },
                });
                children.push(child);
                true
            }
            Err(error) => {
                self.setup = Some(SetupResult {
                    end: ProcessEnd::Exited(error.exit_code()),
                    last_lines: Vec::new(),
                    start_error: Some(chain(&error)),
                });
                false
            }
        }
    }

    fn start_ranks(
        &mut self,
        assign: &Assign,
        meeting: &Meeting,
        children: &mut Vec<Child>,
    ) -> bool {
        let Some(run) = &assign.plan.run else {
            return true;
        };
        let argv = command::argv(run, assign.plan.login_shell);
        for local_rank in 0..assign.plan.ranks_per_node {
            let rank = assign.first_rank + local_rank;
            let files = RankFiles::of(Path::new(&assign.attempt_dir), rank);
            let mut env = environment::of_rank(assign, local_rank, meeting);
            env.insert(
                "TORCHELASTIC_ERROR_FILE".to_owned(),
                files.error_file.to_string_lossy().into_owned(),
            );
            let spec = ProcessSpec {
                argv: argv.clone(),
                env: complete(assign, env),
                cwd: PathBuf::from(&assign.plan.workdir),
                stdin: if assign.pass_stdin {
                    Stdin::Inherit
                } else {
                    Stdin::Null
                },
                stdout: Output::File(files.stdout.clone()),
                stderr: Output::File(files.stderr.clone()),
                cpus: assign.cpus.clone(),
                nofile: None,
                keep_fds: Vec::new(),
            };
            match spawn(spec) {
                Ok(child) => {
                    self.follow(rank, 1, &files.stdout);
                    self.follow(rank, 2, &files.stderr);
                    self.processes.push(Process { rank, files });
                    self.pending.push_back(PhaseEvent::Started {
                        rank,
                        pid: child.pid(),
                    });
                    children.push(child);
                }
                Err(error) => {
                    let result = Box::new(self.not_started(rank, &error));
                    self.pending.push_back(PhaseEvent::Ended(result));
                    return false;
                }
            }
        }
        true
    }

    fn not_started(&self, rank: u32, error: &SpawnError) -> RankResult {
        RankResult {
            start_error: Some(chain(error)),
            ..self.without_start(rank, error.exit_code())
        }
    }

    fn without_start(&self, rank: u32, code: u8) -> RankResult {
        RankResult {
            rank,
            node: self.node,
            end: ProcessEnd::Exited(code),
            ended_ms: self.clock.now_ms(),
            stopped: false,
            start_error: None,
            error: None,
            last_lines: Vec::new(),
            cpu_ms: 0,
            peak_kib: 0,
            out_of_memory: false,
        }
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
/// child of this process but those spared is such an orphan.
pub(crate) fn end_leftovers(spared: &[Pid]) {
    tree::end_all_children(spared, LEFTOVER_GRACE, LEFTOVER_BOUND);
}

/// The complete environment of a process: what it inherits, then what the job says.
pub(crate) fn complete(
    assign: &Assign,
    own: BTreeMap<String, String>,
) -> Vec<(OsString, OsString)> {
    let mut all: BTreeMap<OsString, OsString> = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        let kept = assign.plan.inherit_env
            || name
                .to_str()
                .is_some_and(|n| matches!(n, "HOME" | "PATH" | "USER" | "LANG" | "TMPDIR"));
        if kept
            && !name
                .to_str()
                .is_some_and(|n| environment::SCRUBBED.contains(&n))
        {
            all.insert(name, value);
        }
    }
    for (name, value) in environment::defaults(assign) {
        all.entry(name.into()).or_insert_with(|| value.into());
    }
    all.extend(
        own.into_iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    all.into_iter().collect()
}

/// The last lines of a file, bounded in bytes and lines; nothing where it cannot be read.
pub(crate) fn last_lines(path: &Path) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..]
        .iter()
        .map(|&line| line.to_owned())
        .collect()
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
