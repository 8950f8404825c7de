//! `herd shim`: the parent of one MPI rank, started by `mpirun`. It asks the executor of its node
//! what to run, runs it with the environment that MPI has made, passes signals on and tells its end.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use herd_core::exit::{self, ProcessEnd};
use herd_core::text::error_line;
use herd_launch::{Group, Output, Pid, ProcessSpec, Signal, Stdin, spawn};
use thiserror::Error;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::library::{self, Family};
use super::place::socket_name;
use super::wire::{self, FromShim, Lines, RankCommand, ToShim};
use crate::clock::{Clock, until};
use crate::entry::SIGNALLED_VARIABLE;

/// Bound on reaching the node's executor, which may still be preparing, and on its answer.
const EXECUTOR_BOUND: Duration = Duration::from_secs(10);
/// Pause between looks for its socket.
const POLL: Duration = Duration::from_millis(10);
/// What the rank's descendants get after it; the executor sweeps again later.
const LEFTOVER_BOUND: Duration = Duration::from_secs(7);
const SIGTERM: i32 = nix::libc::SIGTERM;
/// The same signal from another side is the same wish for as long.
const COUNTS_FOR: Duration = Duration::from_secs(10);
/// Variables in which MPI libraries say which rank this is of how many.
const RANKS: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    // Slurm's PMIx does not say how many there are.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];
/// Descriptor of MPICH's process manager, which the rank inherits.
const PMI_DESCRIPTOR: &str = "PMI_FD";

/// Why a rank did not run.
#[derive(Debug, Error)]
pub enum ShimError {
    /// The arguments are wrong.
    #[error("herd shim is called by mpirun under herd: {0}")]
    Usage(&'static str),
    /// No MPI library has started it.
    #[error("no MPI library says which rank this is: {} are not set", RANKS.map(|(rank, _)| rank).join(", "))]
    NotUnderMpi,
    /// The node's executor cannot be reached.
    #[error("could not reach the node's executor at {}", path.display())]
    Executor {
        /// Its socket.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The node's executor does not know this rank.
    #[error("{0}")]
    Refused(String),
    /// This process could not be prepared.
    #[error("could not prepare herd shim")]
    System(#[source] io::Error),
}

impl ShimError {
    /// The code to exit with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::NotUnderMpi => exit::USAGE,
            Self::Executor { .. } | Self::Refused(_) | Self::System(_) => exit::HERD_FAILED,
        }
    }
}

/// Runs `herd shim DIRECTORY RANKS_PER_NODE` and returns the rank's code. The process must have no
/// other thread yet.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<u8, ShimError> {
    let mut args = args.into_iter();
    let directory = PathBuf::from(args.next().ok_or(ShimError::Usage("no directory"))?);
    let each: u32 = args
        .next()
        .and_then(|each| each.to_str()?.parse().ok())
        .filter(|&each| each > 0)
        .ok_or(ShimError::Usage("no ranks per node"))?;
    let (rank, size) = own_rank(|name| std::env::var(name).ok()).ok_or(ShimError::NotUnderMpi)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ShimError::System)?;
    runtime.block_on(async {
        let socket = directory.join(socket_name(rank / each));
        let mut executor = Executor::reach(&socket).await?;
        let command = executor.ask(&socket, rank, size).await?;
        executor.run(command).await
    })
}

fn own_rank(variable: impl Fn(&str) -> Option<String>) -> Option<(u32, u32)> {
    RANKS.iter().find_map(|(rank, size)| {
        let number = |name: &str| variable(name)?.parse().ok();
        Some((number(rank)?, number(size)?))
    })
}

/// The connection to the node's executor.
struct Executor {
    read: Lines<BufReader<OwnedReadHalf>>,
    write: OwnedWriteHalf,
}

impl Executor {
    async fn reach(path: &Path) -> Result<Self, ShimError> {
        let deadline = Instant::now() + EXECUTOR_BOUND;
        loop {
            match UnixStream::connect(path).await {
                Ok(stream) => {
                    let (read, write) = stream.into_split();
                    return Ok(Self {
                        read: Lines::new(BufReader::new(read)),
                        write,
                    });
                }
                Err(source) if Instant::now() >= deadline => {
                    let path = path.to_owned();
                    return Err(ShimError::Executor { path, source });
                }
                Err(_not_yet) => sleep(POLL).await,
            }
        }
    }

    async fn ask(&mut self, path: &Path, rank: u32, size: u32) -> Result<RankCommand, ShimError> {
        let failed = |source| ShimError::Executor {
            path: path.to_owned(),
            source,
        };
        let asked = async {
            wire::write(&mut self.write, &FromShim::Hello { rank, size }).await?;
            self.read.next().await
        };
        let answer = timeout(EXECUTOR_BOUND, asked)
            .await
            .unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()))
            .map_err(failed)?;
        match answer {
            Some(ToShim::Run(command)) => Ok(command),
            Some(ToShim::Refused { reason }) => Err(ShimError::Refused(reason)),
            Some(ToShim::Stop { .. }) | None => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Runs the rank to its end.
    async fn run(mut self, command: RankCommand) -> Result<u8, ShimError> {
        let mut forwarded = Forwarded::watch().map_err(ShimError::System)?;
        let is_signalled = command.is_signalled;
        let mut group = match spawn(specification(command)) {
            Ok(child) => Group::from_children(vec![child]),
            Err(error) => {
                let end = ProcessEnd::Exited(error.exit_code());
                self.tell(ended(
                    end,
                    Clock::start().now_ms(),
                    Some(error_line(&error)),
                    0,
                    0,
                ))
                .await;
                return Ok(exit::SUCCESS);
            }
        };
        let pid = group.pids().first().copied().unwrap_or_default();
        self.tell(FromShim::Started { pid }).await;
        let mut heard = true;
        let mut passed = Passed::default();
        let mut wrong: Option<String> = None;
        let mut end = ProcessEnd::Exited(exit::HERD_FAILED);
        let launcher = Family::of_launcher(|name| std::env::var(name).ok());
        let by_step = std::env::var_os(super::starter::STEP_VARIABLE).is_some();
        let began = Instant::now();
        let mut looks = library::LOOKS.iter();
        let mut look = looks.next();
        loop {
            tokio::select! {
                exit = group.next_exit() => match exit {
                    Some((_, exit)) => {
                        end = exit.end;
                        if wrong.is_some() {
                            end = ProcessEnd::Exited(exit::HERD_FAILED);
                        }
                        self.tell(ended(end, exit.at_ms(), wrong, exit.cpu_ms, exit.peak_kib)).await;
                        break;
                    }
                    None => break,
                },
                () = until(look.map(|&after| began + after)) => {
                    look = looks.next();
                    wrong = number(pid).and_then(|pid| library::mismatch(pid, launcher, by_step));
                    if wrong.is_some() {
                        look = None;
                        group.kill();
                    }
                }
                said = self.read.next::<ToShim>(), if heard => match said {
                    Ok(Some(ToShim::Stop { signal })) => {
                        if passed.is_first(signal, Source::Executor) {
                            pass_on(&mut group, signal);
                        }
                    }
                    Ok(Some(_)) => {}
                    // The executor is gone, and ends what is left of its node.
                    Ok(None) | Err(_) => {
                        heard = false;
                        group.kill();
                    }
                },
                // Of the batch system's signals, which the launcher passes on as well, the rank has had its own.
                Some(signal) = forwarded.signals.recv() => if !is_signalled
                    && passed.is_first(signal, Source::Launcher)
                {
                    pass_on(&mut group, signal);
                },
            }
        }
        // What the rank left in its group is ended before mpirun hears of the end.
        drop(timeout(LEFTOVER_BOUND, group.next_exit()).await);
        // mpirun kills all ranks within a second when one fails, and has much to say about it. Herd,
        // which knows the code, stops the others with the job's grace; without herd it is mpirun's.
        Ok(if heard { 0 } else { end.code() })
    }

    /// The executor may be gone; the rank's end still is mpirun's to know.
    async fn tell(&mut self, message: FromShim) {
        drop(wire::write(&mut self.write, &message).await);
    }
}

fn number(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

fn pass_on(group: &mut Group, signal: i32) {
    match Signal::from_named_raw(signal) {
        Some(Signal::KILL) => group.kill(),
        Some(signal) => group.signal_all(signal),
        None => {}
    }
}

fn ended(
    end: ProcessEnd,
    ended_ms: u64,
    start_error: Option<String>,
    cpu_ms: u64,
    peak_kib: u64,
) -> FromShim {
    FromShim::Ended {
        end,
        ended_ms,
        start_error,
        cpu_ms,
        peak_kib,
    }
}

fn specification(command: RankCommand) -> ProcessSpec {
    let mut env: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    let own = command.env.into_iter();
    env.extend(own.map(|(name, value)| (name.into(), value.into())));
    env.remove(OsStr::new(SIGNALLED_VARIABLE));
    let pmi = env
        .get(OsStr::new(PMI_DESCRIPTOR))
        .and_then(|number| number.to_str()?.parse::<RawFd>().ok())
        .filter(|&number| number > 2);
    ProcessSpec {
        stdin: Stdin::Inherit,
        stdout: Output::File(command.stdout.into()),
        stderr: Output::File(command.stderr.into()),
        keep_fds: pmi.into_iter().collect(),
        ..ProcessSpec::new(
            command.argv.into_iter().map(OsString::from).collect(),
            env.into_iter().collect(),
            command.cwd,
        )
    }
}

/// Who has a signal passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Herd.
    Executor,
    /// What has started this process, or signals what runs of a job: mpirun, srun, Slurm.
    Launcher,
}

/// The signals that the rank got, each as it was last passed on. When Slurm asks for the end, herd does as
/// well, and the rank is to hear it once.
#[derive(Debug, Default)]
struct Passed(BTreeMap<i32, (Source, Instant)>);

impl Passed {
    /// Whether nobody has just had this signal passed on; notes that it is now.
    fn is_first(&mut self, signal: i32, by: Source) -> bool {
        // Slurm and its srun both ask for the end; other signals may be meant as often as they come.
        let repeated = by == Source::Launcher && signal == SIGTERM;
        let same =
            |(from, at): &(Source, Instant)| (*from != by || repeated) && at.elapsed() < COUNTS_FOR;
        if self.0.get(&signal).is_some_and(same) {
            return false;
        }
        self.0.insert(signal, (by, Instant::now()));
        true
    }
}

/// Signals that mpirun passes on to its ranks, and the tasks that wait for them.
struct Forwarded {
    _tasks: JoinSet<()>,
    signals: mpsc::Receiver<i32>,
}

impl Forwarded {
    fn watch() -> io::Result<Self> {
        let (queue, signals) = mpsc::channel(8);
        let mut tasks = JoinSet::new();
        for kind in [
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::quit(),
            SignalKind::terminate(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
            SignalKind::from_raw(nix::libc::SIGCONT),
        ] {
            let mut stream = signal(kind)?;
            let queue = queue.clone();
            tasks.spawn(async move {
                while stream.recv().await.is_some() {
                    if queue.send(kind.as_raw_value()).await.is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self {
            _tasks: tasks,
            signals,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_wish_of_two_sides_is_passed_on_once() {
        let mut passed = Passed::default();
        assert!(passed.is_first(15, Source::Launcher));
        // Slurm sends both, in any order.
        assert!(passed.is_first(18, Source::Launcher));
        assert!(!passed.is_first(15, Source::Executor));
        assert!(!passed.is_first(15, Source::Launcher));
        // Another signal, and the same again from herd, are wishes of their own.
        assert!(passed.is_first(9, Source::Executor));
        assert!(passed.is_first(2, Source::Executor));
        assert!(passed.is_first(2, Source::Executor));
        assert!(passed.is_first(10, Source::Launcher));
        assert!(passed.is_first(10, Source::Launcher));
    }

    #[test]
    fn the_rank_is_what_the_mpi_library_says() {
        let variables = |set: &'static [(&str, &str)]| {
            move |name: &str| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            }
        };
        let hydra = variables(&[("PMI_RANK", "3"), ("PMI_SIZE", "4")]);
        assert_eq!(own_rank(hydra), Some((3, 4)));
        let open_mpi = variables(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")]);
        assert_eq!(own_rank(open_mpi), Some((0, 2)));
        assert_eq!(own_rank(variables(&[("PMI_RANK", "3")])), None);
    }
}
