//! One phase on one node: starts its processes, follows their files, tells of their ends.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use herd_core::exit::ProcessEnd;
use herd_core::result::RankResult;
use herd_core::spec::JobType;
use herd_launch::follow::{FileId, Followed, Follower};
use herd_launch::{
    Child, ExitInfo, Group, Output, Pid, ProcessSpec, Signal, SpawnError, Stdin, spawn, tree,
};
use herd_link::LogFrame;
use herd_link::message::{Assign, Phase, ServiceFailure, SetupResult};

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::command;
use crate::environment::{self, Meeting};
use crate::merge::SETUP_RANK;
use crate::ray::Part;
use crate::ray::node::RayNode;
use crate::service::ServiceEvent;

/// Bytes of the end of a stream that are looked at for its last lines.
const TAIL_BYTES: u64 = 8 * 1024;
/// Lines kept of a failed process.
const LAST_LINES: usize = 20;
/// What processes that a rank left behind get between TERM and KILL.
const LEFTOVER_GRACE: Duration = Duration::from_secs(1);
/// Bound on ending them, killing included.
const LEFTOVER_BOUND: Duration = Duration::from_secs(5);
/// What a daemon gets between TERM and KILL; Ray's head takes three seconds.
const SERVICE_GRACE: Duration = Duration::from_secs(5);
/// How much longer than the ranks' grace a daemon serves a job that is being stopped.
const SERVICE_MARGIN: Duration = Duration::from_secs(1);

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
    /// Every process has ended and every byte was told.
    Done {
        phase: Phase,
        setup: Option<SetupResult>,
    },
}

/// How far the phase has come.
enum Stage {
    /// No rank runs here yet, or none will: the daemon of this node is awaited, or serves.
    Serving,
    /// Processes run, or members of their groups do.
    Running,
    /// The ranks have ended; the daemon beside them is being ended.
    Dismissing,
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
    /// The phase is here for what node 0 runs, and lasts until it is finished or stopped.
    serving: bool,
    /// The daemon beside the ranks.
    service: Option<RayNode>,
    /// How long the daemon serves ranks of other nodes that are being stopped.
    serve_until: Option<Instant>,
    /// Children of this process that are not the phase's and outlive it.
    spared: Vec<Pid>,
    setup: Option<SetupResult>,
    pending: VecDeque<PhaseEvent>,
    stage: Stage,
}

struct Process {
    rank: u32,
    stdout: PathBuf,
    stderr: PathBuf,
    error_file: PathBuf,
}

/// Identifies a followed file: rank and stream.
fn file_id(rank: u32, stream: u8) -> FileId {
    FileId(u64::from(rank) << 8 | u64::from(stream))
}

impl PhaseRun {
    /// Starts the phase. What cannot start is told as an end of its own.
    pub(crate) fn start(assign: &Assign, phase: Phase, meeting: &Meeting) -> Self {
        let mut run = Self {
            phase,
            node: assign.node,
            clock: Clock::start(),
            group: Group::from_children(Vec::new()),
            follower: Follower::new(),
            processes: Vec::new(),
            followed: Vec::new(),
            stopped: false,
            serving: phase == Phase::Run
                && assign.node > 0
                && matches!(assign.plan.job_type, JobType::Mpi | JobType::Ray),
            service: None,
            serve_until: None,
            spared: Vec::new(),
            setup: None,
            pending: VecDeque::new(),
            stage: Stage::Running,
        };
        if phase == Phase::Run && assign.plan.job_type == JobType::Ray {
            run.stage = Stage::Serving;
            if assign.node == 0 {
                run.start_service(assign, &Part::Head);
            }
            return run;
        }
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
            match &mut self.stage {
                Stage::Serving => tokio::select! {
                    event = next_of(&mut self.service) => self.served(event),
                    () = until(self.serve_until) => self.stage = Stage::Dismissing,
                },
                Stage::Running => tokio::select! {
                    // Ends first: a failing rank stops its peers however much they write.
                    biased;
                    exit = self.group.next_exit(), if !self.serving => match exit {
                        Some((index, exit)) => self.ended(index, &exit),
                        None => self.stage = Stage::Dismissing,
                    },
                    event = next_of(&mut self.service), if self.service.is_some() => {
                        self.served(event);
                    }
                    tailed = self.follower.next(), if !self.followed.is_empty() => {
                        self.tailed(tailed);
                    }
                    // Nothing to watch until it is finished or stopped.
                    else => std::future::pending().await,
                },
                Stage::Dismissing => tokio::select! {
                    () = dismiss(&mut self.service) => {
                        let left = self.service.take();
                        let spared = std::mem::take(&mut self.spared);
                        let sweep = spawn_blocking(move || {
                            end_leftovers(&spared);
                            if let Some(left) = left {
                                left.directory().remove();
                            }
                        });
                        self.stage = Stage::Sweeping(sweep);
                    }
                    tailed = self.follower.next(), if !self.followed.is_empty() => {
                        self.tailed(tailed);
                    }
                },
                Stage::Sweeping(sweep) => tokio::select! {
                    _ = sweep => {
                        for &id in &self.followed {
                            self.follower.finish(id);
                        }
                        self.stage = Stage::Draining;
                    }
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
        if matches!(self.stage, Stage::Serving) {
            // The entry point on node 0 has its grace, and needs the cluster in it.
            let serves = self.serving && !self.stopped && !grace.is_zero();
            if serves {
                self.serve_until = Some(Instant::now() + grace + SERVICE_MARGIN);
            } else {
                self.stage = Stage::Dismissing;
            }
            self.stopped = true;
            return;
        }
        self.stopped = true;
        self.serving = false;
        self.group.stop(
            Signal::from_named_raw(signal).unwrap_or(Signal::TERM),
            grace,
        );
    }

    /// Says which children of this process are not the phase's.
    pub(crate) fn spare(&mut self, pids: Vec<Pid>) {
        self.spared = pids;
    }

    /// What node 0 ran is over: a phase that only served ends.
    pub(crate) fn finish(&mut self) {
        self.serving = false;
        if matches!(self.stage, Stage::Serving) {
            self.stage = Stage::Dismissing;
        }
    }

    /// Ends everything now, bounded by `grace` and the time that killing takes.
    pub(crate) async fn end(&mut self, signal: i32, grace: Duration) {
        self.stop(signal, grace);
        // Nobody is left whom a daemon could serve, and little time to remove its directory.
        if let Some(node) = &mut self.service {
            node.service.stop(Duration::ZERO);
            node.service.stopped().await;
            node.directory().remove();
        }
        while self.group.next_exit().await.is_some() {}
        end_leftovers(&[]);
        if let Some(node) = self.service.take() {
            node.directory().remove();
        }
    }

    /// The daemon of node 0 is up: a node that serves starts its own, node 0 starts its ranks.
    pub(crate) fn service_ready(&mut self, assign: &Assign, head: &Meeting) {
        if !matches!(self.stage, Stage::Serving) || self.stopped {
            return;
        }
        if self.serving {
            if self.service.is_none() {
                let part = Part::Worker {
                    head: head.address.clone(),
                    port: head.port,
                };
                self.start_service(assign, &part);
            }
            return;
        }
        let mut children = Vec::new();
        let started = self.start_ranks(assign, head, &mut children);
        self.group = Group::from_children(children);
        self.stage = Stage::Running;
        if !started {
            self.stop(9, Duration::ZERO);
        }
    }

    fn start_service(&mut self, assign: &Assign, part: &Part) {
        match RayNode::start(assign, part) {
            Ok(node) => self.service = Some(node),
            Err(error) => {
                let failure = ServiceFailure {
                    start_code: error.start_code(),
                    detail: format!("{}{}", chain(&error), error.hint()),
                    last_lines: Vec::new(),
                };
                self.pending
                    .push_back(PhaseEvent::ServiceFailed(Box::new(failure)));
            }
        }
    }

    fn served(&mut self, event: ServiceEvent) {
        let Some(node) = &self.service else { return };
        self.pending.push_back(match event {
            ServiceEvent::Ready => PhaseEvent::ServiceReady {
                address: node.address.clone(),
                port: node.port,
            },
            ServiceEvent::Failed(detail) => PhaseEvent::ServiceFailed(Box::new(ServiceFailure {
                start_code: None,
                detail: format!("{detail}; its log is {}", node.service.log().display()),
                last_lines: last_lines(node.service.log()),
            })),
        });
    }

    fn tailed(&mut self, followed: Followed) {
        match followed {
            Followed::Chunk { id, offset, bytes } => {
                self.pending.push_back(PhaseEvent::Log(LogFrame {
                    rank: u32::try_from(id.0 >> 8).unwrap_or(SETUP_RANK),
                    stream: u8::try_from(id.0 & 0xff).unwrap_or(0),
                    task: None,
                    offset,
                    bytes,
                }));
            }
            Followed::Finished { id, .. } | Followed::Failed { id, .. } => {
                self.followed.retain(|&followed| followed != id);
            }
        }
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
        let env = environment::of_node(assign);
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
                    stdout: log.clone(),
                    stderr: log,
                    error_file: PathBuf::new(),
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
            let dir = Path::new(&assign.attempt_dir)
                .join("ranks")
                .join(rank.to_string());
            let process = Process {
                rank,
                stdout: dir.join("stdout.log"),
                stderr: dir.join("stderr.log"),
                error_file: dir.join("error.json"),
            };
            let mut env = environment::of_rank(assign, local_rank, meeting);
            env.insert(
                "TORCHELASTIC_ERROR_FILE".to_owned(),
                process.error_file.to_string_lossy().into_owned(),
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
                stdout: Output::File(process.stdout.clone()),
                stderr: Output::File(process.stderr.clone()),
                cpus: assign.cpus.clone(),
                nofile: None,
                keep_fds: Vec::new(),
            };
            match spawn(spec) {
                Ok(child) => {
                    self.follow(rank, 1, &process.stdout);
                    self.follow(rank, 2, &process.stderr);
                    self.processes.push(process);
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
            rank,
            node: self.node,
            end: ProcessEnd::Exited(error.exit_code()),
            ended_ms: self.clock.now_ms(),
            stopped: false,
            start_error: Some(chain(error)),
            error: None,
            last_lines: Vec::new(),
            cpu_ms: 0,
            peak_kib: 0,
        }
    }

    fn follow(&mut self, rank: u32, stream: u8, path: &Path) {
        let id = file_id(rank, stream);
        self.follower.add(id, path);
        self.followed.push(id);
    }

    fn ended(&mut self, index: usize, exit: &ExitInfo) {
        let Some(process) = self.processes.get(index) else {
            return;
        };
        let failed = !exit.end.is_success();
        if process.rank == SETUP_RANK {
            let last_lines = if failed {
                last_lines(&process.stdout)
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
                    herd_launch::error_file::read_error_file(&process.error_file)
                        .ok()
                        .flatten()
                } else {
                    None
                },
                last_lines: if failed {
                    last_lines(&process.stderr)
                } else {
                    Vec::new()
                },
                cpu_ms: exit.cpu_ms,
                peak_kib: exit.peak_kib,
            })));
    }
}

/// What happens next to the daemon beside the ranks; for ever pending without one.
async fn next_of(service: &mut Option<RayNode>) -> ServiceEvent {
    match service {
        Some(node) => node.service.next().await,
        None => std::future::pending().await,
    }
}

/// Ends the daemon beside the ranks, where there is one. Cancel-safe.
async fn dismiss(service: &mut Option<RayNode>) {
    if let Some(node) = service {
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
fn last_lines(path: &Path) -> Vec<String> {
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
