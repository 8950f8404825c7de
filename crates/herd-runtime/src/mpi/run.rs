//! The run phase of one node of an MPI job: on node 0 the `mpirun`, everywhere the ranks that it
//! places there, as their shims tell of them.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use herd_core::exit::{self, ProcessEnd};
use herd_core::result::RankResult;
use herd_launch::cgroup::MemoryWatch;
use herd_launch::{Output, Pid, ProcessSpec, SpawnError, Stdin};
use herd_link::message::{Assign, Phase};
use thiserror::Error;
use tokio::time::Instant;

use super::launch::{self, Files, Hosts};
use super::place::{Place, PlaceError, one_machine};
use super::ranks::{RankEvent, Ranks};
use super::starter;
use super::wire::RankCommand;
use crate::clock::{Clock, until};
use crate::command;
use crate::entry::{NODE_VARIABLE, SIGNALLED_VARIABLE};
use crate::environment::{self, Meeting};
use crate::inherited::complete;
use crate::phase::{PhaseEvent, PhaseRun};
use crate::rank_files::{RankFiles, last_lines};

/// After `mpirun` has ended, ranks that do not say their end are given up.
const DRAIN: Duration = Duration::from_secs(2);
/// What `mpirun` gets between TERM and KILL once its ranks have been killed.
const LAUNCHER_GRACE: Duration = Duration::from_secs(2);
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Why a node's run phase could not start.
#[derive(Debug, Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    WrongType(#[from] starter::WrongType),
    #[error("could not {what} {}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "could not start mpirun (install Open MPI or MPICH on the PATH of the job, or name the \
         program in the variable {})",
        launch::PROGRAM_VARIABLE
    )]
    Launcher(#[source] SpawnError),
    #[error(transparent)]
    Program(SpawnError),
}

impl StartError {
    /// The code that stands for a rank's.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Launcher(error) | Self::Program(error) => error.exit_code(),
            Self::Place(_) | Self::WrongType(_) | Self::File { .. } => exit::HERD_FAILED,
        }
    }
}

/// Arguments and environment.
type CommandLine = (Vec<String>, Vec<(OsString, OsString)>);

/// A running phase.
pub(crate) struct MpiRun {
    /// `mpirun` or what stands for it, the files of the ranks, and what is left at the end.
    inner: PhaseRun,
    ranks: Ranks,
    node: u32,
    first_rank: u32,
    ranks_here: u32,
    attempt_dir: PathBuf,
    clock: Clock,
    memory: MemoryWatch,
    ended: BTreeSet<u32>,
    failed: bool,
    stopped: bool,
    /// What starts the ranks, for messages.
    starter: &'static str,
    /// It lasts until node 0 is done.
    serving: bool,
    /// The ranks are done with; what is left is `inner`'s.
    over: bool,
    /// When ranks that were asked to end are killed.
    kill_at: Option<Instant>,
    /// When ranks that have not said their end are given up.
    drain_by: Option<Instant>,
    pending: VecDeque<PhaseEvent>,
    /// Removed at the end.
    place: Place,
}

impl MpiRun {
    /// Listens for this node's ranks and, on node 0, starts `mpirun`. `own_name` says whether the
    /// nodes have host names of their own.
    pub(crate) fn start(assign: &Assign, own_name: bool) -> Result<Self, StartError> {
        let place = Place::make(assign)?;
        let describe = {
            let assign = assign.clone();
            Arc::new(move |rank| describe(&assign, rank))
        };
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| StartError::File { what, path, source }
        };
        let ranks = Ranks::listen(place.socket(), assign, describe)
            .map_err(failed("listen on", place.socket()))?;
        let attempt_dir = PathBuf::from(&assign.attempt_dir);
        let mut inner = PhaseRun::held(assign, Phase::Run);
        for rank in assign.first_rank..assign.first_rank + assign.plan.ranks_per_node {
            let files = RankFiles::of(&attempt_dir, rank);
            for (stream, path) in [(1, &files.stdout), (2, &files.stderr)] {
                // The shim appends; who follows a file wants it to be there.
                touch(path).map_err(failed("make", path))?;
                inner.follow(rank, stream, path);
            }
        }
        let mut run = Self {
            inner,
            ranks,
            node: assign.node,
            first_rank: assign.first_rank,
            ranks_here: assign.plan.ranks_per_node,
            attempt_dir,
            clock: Clock::start(),
            memory: MemoryWatch::start(),
            ended: BTreeSet::new(),
            failed: false,
            stopped: false,
            starter: "mpirun",
            serving: assign.node > 0,
            over: false,
            kill_at: None,
            drain_by: None,
            pending: VecDeque::new(),
            place,
        };
        if assign.node == 0 {
            run.look_for_program(assign)?;
            run.launch(assign, own_name)?;
        }
        Ok(run)
    }

    /// Fails at once where the ranks have no program, which mpirun would find out node by node.
    fn look_for_program(&self, assign: &Assign) -> Result<(), StartError> {
        let command = describe(assign, self.first_rank);
        let Some(program) = command.argv.first() else {
            return Ok(());
        };
        let env = complete(assign, command.env.clone());
        herd_launch::look_for_program(program.as_ref(), &env, command.cwd.as_ref())
            .map_err(StartError::Program)
    }

    /// Starts what starts the ranks.
    fn launch(&mut self, assign: &Assign, own_name: bool) -> Result<(), StartError> {
        let env = complete(assign, environment::of_node(assign));
        let (argv, env) = match starter::of_batch_system(assign, &env)? {
            Some(mut argv) => {
                argv.extend(self.shim(assign));
                (argv, starter::environment(env))
            }
            None => self.mpirun(assign, own_name)?,
        };
        let program = Path::new(argv.first().map_or("mpirun", String::as_str));
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let batch = name == "srun";
        self.starter = if batch { "srun" } else { "mpirun" };
        let node = assign.node_names.first().cloned().unwrap_or_default();
        let log = self.attempt_dir.join("nodes").join(node);
        let spec = ProcessSpec {
            stdin: if assign.pass_stdin {
                Stdin::Inherit
            } else {
                Stdin::Null
            },
            stdout: Output::File(log.join(format!("{}.log", self.starter))),
            stderr: Output::SameAsStdout,
            ..ProcessSpec::new(
                argv.into_iter().map(Into::into).collect(),
                env,
                assign.plan.workdir.clone(),
            )
        };
        self.inner.launch(spec).map_err(if batch {
            StartError::Program
        } else {
            StartError::Launcher
        })
    }

    /// A rank's parent and its arguments.
    fn shim(&self, assign: &Assign) -> [String; 4] {
        let own_program = std::env::current_exe().unwrap_or_else(|_gone| "herd-node".into());
        [
            own_program.to_string_lossy().into_owned(),
            "shim".to_owned(),
            self.place.directory().to_string_lossy().into_owned(),
            assign.plan.ranks_per_node.to_string(),
        ]
    }

    /// `mpirun` and its environment.
    fn mpirun(&self, assign: &Assign, own_name: bool) -> Result<CommandLine, PlaceError> {
        let plan = &assign.plan;
        let one_machine = one_machine(assign);
        // Without names of their own, nodes of one machine are one host to MPI.
        let one_host = one_machine && !own_name;
        let localhost = ["localhost".to_owned()];
        let hosts = Hosts {
            names: if one_host {
                &localhost
            } else {
                &assign.node_names
            },
            ranks_each: if one_host {
                plan.world_size()
            } else {
                plan.ranks_per_node
            },
        };
        let place = &self.place;
        let files = Files {
            open_mpi_hosts: &place.write("hosts.openmpi", &hosts.for_open_mpi())?,
            hydra_hosts: &place.write("hosts.hydra", &hosts.for_hydra())?,
            remote_shell: &place.remote_shell(),
        };
        let mut env = environment::of_node(assign);
        env.extend(launch::required(&files));
        let mut env = complete(assign, env);
        let root = rustix::process::geteuid().is_root();
        for (name, value) in launch::defaults(root, one_machine) {
            if !env.iter().any(|(known, _)| known == name) {
                env.push((name.into(), value.into()));
            }
        }
        let program = env
            .iter()
            .find(|(name, _)| name == launch::PROGRAM_VARIABLE)
            .map_or_else(
                || "mpirun".to_owned(),
                |(_, value)| value.to_string_lossy().into_owned(),
            );
        let argv = launch::argv(&program, plan, &self.shim(assign));
        Ok((argv, env))
    }

    /// The next event. Cancel-safe. Pends for ever after `Done`.
    pub(crate) async fn next(&mut self) -> PhaseEvent {
        loop {
            self.end_if_over();
            if let Some(event) = self.pending.pop_front() {
                return event;
            }
            tokio::select! {
                // What ranks say comes first: mpirun ends after them.
                biased;
                event = self.ranks.next() => self.hear(event),
                event = self.inner.next() => match event {
                    // mpirun has ended: look again.
                    PhaseEvent::Idle => {}
                    event => return event,
                },
                () = until(self.kill_at) => {
                    self.kill_at = None;
                    self.ranks.stop(SIGKILL);
                    self.inner.stop(SIGTERM, LAUNCHER_GRACE);
                    self.drain_by = Some(Instant::now() + LAUNCHER_GRACE + DRAIN);
                }
                () = until(self.drain_by) => self.end(),
            }
        }
    }

    /// The phase is over when `mpirun` has ended (on the other nodes: when told so) and the ranks
    /// have said their ends.
    fn end_if_over(&mut self) {
        let working = if self.node == 0 {
            !self.inner.is_exhausted()
        } else {
            self.serving
        };
        if self.over || working {
            return;
        }
        if !self.ranks.are_there() {
            self.end();
        } else if self.drain_by.is_none() && self.kill_at.is_none() {
            self.drain_by = Some(Instant::now() + DRAIN);
        }
    }

    fn end(&mut self) {
        self.over = true;
        self.kill_at = None;
        self.drain_by = None;
        self.blame_launcher();
        self.inner.finish();
    }

    /// Asks the ranks to end. `mpirun` would give them a second, so it is left out of it until they
    /// had the whole grace; it ends when they have.
    pub(crate) fn stop(&mut self, signal: i32, grace: Duration) {
        let again = self.stopped;
        self.stopped = true;
        self.serving = false;
        if self.over {
            self.inner.stop(signal, grace);
        } else if !again && !grace.is_zero() && !self.ranks.are_there() && !self.ended.is_empty() {
            // The ranks are through, and mpirun ends with them.
            self.kill_at = Some(Instant::now() + LAUNCHER_GRACE);
        } else if again || grace.is_zero() || !self.ranks.are_there() {
            self.ranks.stop(SIGKILL);
            self.inner.stop(signal, grace.min(LAUNCHER_GRACE));
            self.kill_at = Some(Instant::now() + LAUNCHER_GRACE);
        } else {
            self.ranks.stop(signal);
            self.kill_at = Some(Instant::now() + grace);
        }
    }

    /// What node 0 ran is over.
    pub(crate) fn finish(&mut self) {
        self.serving = false;
    }

    /// See [`PhaseRun::spare`].
    pub(crate) fn spare(&mut self, pids: Vec<Pid>) {
        self.inner.spare(pids);
    }

    /// Ends everything now.
    pub(crate) async fn end_now(&mut self, signal: i32, grace: Duration) {
        self.ranks.stop(SIGKILL);
        self.inner.end(signal, grace).await;
    }

    fn hear(&mut self, event: RankEvent) {
        match event {
            RankEvent::Started { rank, pid } => {
                self.pending.push_back(PhaseEvent::Started { rank, pid });
            }
            RankEvent::Ended {
                rank,
                end,
                ended_ms,
                start_error,
                cpu_ms,
                peak_kib,
            } => {
                // Only SIGKILL keeps a shim from saying it.
                let end = end.unwrap_or(ProcessEnd::Signaled(9));
                let ended_ms = if ended_ms == 0 {
                    self.clock.now_ms()
                } else {
                    ended_ms
                };
                let failed = !end.is_success();
                self.failed |= failed;
                self.ended.insert(rank);
                let files = RankFiles::of(&self.attempt_dir, rank);
                let mut result = self.result(rank, end, start_error);
                result.ended_ms = ended_ms;
                result.cpu_ms = cpu_ms;
                result.peak_kib = peak_kib;
                if failed {
                    result.out_of_memory = !self.stopped && self.memory.has_killed();
                    result.error = herd_launch::error_file::read_error_file(&files.error_file)
                        .ok()
                        .flatten();
                    result.last_lines = last_lines(&files.stderr);
                }
                self.pending.push_back(PhaseEvent::Ended(Box::new(result)));
            }
        }
    }

    /// Ranks that have neither ended nor been stopped were never there, whatever `mpirun` says of
    /// its own end. On node 0 the first of them tells what it wrote.
    fn blame_launcher(&mut self) {
        let launcher = self.inner.take_launcher_end();
        if self.failed || self.stopped {
            return;
        }
        let missing: Vec<u32> = self
            .own_ranks()
            .filter(|r| !self.ended.contains(r))
            .collect();
        let failing = launcher.filter(|launcher| !launcher.end.is_success() || !missing.is_empty());
        let (rank, result) = match (missing.first(), failing) {
            (None, None) => return,
            (rank, Some(launcher)) => {
                let rank = rank.copied().unwrap_or(self.first_rank);
                let about = if missing.is_empty() {
                    "although its ranks had not failed"
                } else {
                    "without having run this rank"
                };
                let why = format!("{} {} {about}", self.starter, launcher.end);
                let end = if launcher.end.is_success() {
                    ProcessEnd::Exited(exit::HERD_FAILED)
                } else {
                    launcher.end
                };
                let mut result = self.result(rank, end, Some(why));
                result.last_lines = launcher.last_lines;
                (rank, result)
            }
            (Some(&rank), None) => {
                let why = "mpirun ended without having run this rank".to_owned();
                let end = ProcessEnd::Exited(exit::HERD_FAILED);
                (rank, self.result(rank, end, Some(why)))
            }
        };
        self.ended.insert(rank);
        self.pending.push_back(PhaseEvent::Ended(Box::new(result)));
    }

    fn own_ranks(&self) -> Range<u32> {
        self.first_rank..self.first_rank + self.ranks_here
    }

    fn result(&self, rank: u32, end: ProcessEnd, start_error: Option<String>) -> RankResult {
        RankResult {
            stopped: self.stopped,
            start_error,
            ..RankResult::ended(rank, self.node, end, self.clock.now_ms())
        }
    }
}

fn touch(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path)?;
    Ok(())
}

/// What a rank's shim is to run.
fn describe(assign: &Assign, rank: u32) -> RankCommand {
    let nowhere = Meeting {
        address: String::new(),
        port: 0,
    };
    let files = RankFiles::of(Path::new(&assign.attempt_dir), rank);
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let local = rank.saturating_sub(assign.first_rank);
    let mut env = environment::of_rank(assign, local, &nowhere);
    env.insert(
        "TORCHELASTIC_ERROR_FILE".to_owned(),
        text(&files.error_file),
    );
    if let Ok(name) = std::env::var(NODE_VARIABLE) {
        // A launcher may give all ranks the variables of its own node.
        env.insert(NODE_VARIABLE.to_owned(), name);
    }
    let run = assign.plan.run.as_ref();
    if let Some(run) = run {
        command::say_again(run, assign.plan.login_shell, &mut env);
    }
    RankCommand {
        argv: run
            .map(|run| command::words(run, assign.plan.login_shell))
            .unwrap_or_default(),
        env,
        cwd: assign.plan.workdir.clone(),
        stdout: text(&files.stdout),
        stderr: text(&files.stderr),
        is_signalled: std::env::var_os(SIGNALLED_VARIABLE).is_some(),
    }
}
