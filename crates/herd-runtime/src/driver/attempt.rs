//! One attempt as the driver is given it, and how its nodes are started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use herd_core::plan::Plan;
use herd_core::result::TaskResult;
use herd_core::{exit, sentence};
use herd_jobdir::runlog::RunLogWriter;
use herd_jobdir::{AttemptDir, Durability, JobDir, JobDirError, TaskWriter};
use herd_launch::cgroup::{Cgroup, Parent};
use herd_link::message::RankStarters;
use herd_link::{Key, LinkError};
use thiserror::Error;

use crate::coordinator::Withdrawal;
use crate::executors::{Executors, Launch};
use crate::merge::LogGrown;

/// One attempt and what it needs.
#[derive(Debug)]
pub struct Attempt {
    /// What to run.
    pub plan: Plan,
    /// Values of the plan's secrets.
    pub secrets: BTreeMap<String, String>,
    /// The job's key.
    pub key: Key,
    /// The job, where requests to its driver are found.
    pub job: JobDir,
    /// Where this attempt's records go.
    pub dir: AttemptDir,
    /// Where the merged log goes.
    pub run_log: RunLogWriter,
    /// Whether the terminal record survives a power cut, or only this process.
    pub durability: Durability,
    /// Where the coordinator listens.
    pub listen: SocketAddr,
    /// How long nodes may take to register.
    pub gang_timeout: Duration,
    /// Nodes by index.
    pub nodes: Vec<NodePlan>,
    /// How executors are started.
    pub executors: ExecutorStart,
    /// File with the job's key, for commands inside the job.
    pub key_file: PathBuf,
    /// What earlier attempts of the job did of its array.
    pub task_history: Vec<TaskResult>,
    /// Where results of array tasks go; present for arrays.
    pub tasks: Option<TaskWriter>,
    /// Directory of the logs of array tasks.
    pub tasks_dir: PathBuf,
    /// Array tasks at once, where the array has no limit of its own.
    pub task_slots: u32,
    /// Whether the only rank gets this process's standard input.
    pub pass_stdin: bool,
    /// Tells the user of something that does not end the job.
    pub warn: fn(&str),
    /// Whether the executors write into this very directory, on this machine: the driver then reads
    /// the logs itself, and no byte of them travels over the link.
    pub logs_at_hand: bool,
    /// Who is told when the merged log has grown.
    pub log_grown: Option<LogGrown>,
    /// Finds out, when a signal has asked this driver for the end, why the backend did so. It has its own
    /// bound.
    pub why_ended: Option<WhyEnded>,
}

/// A question that a backend answers.
pub struct WhyEnded {
    /// Asks it.
    pub ask: Box<dyn Fn() -> Asking + Send>,
    /// Whether the backend signals all processes of the job, the ranks among them, when it asks for the end.
    pub tells_ranks: bool,
}

/// A question under way.
pub type Asking = Pin<Box<dyn Future<Output = Withdrawal> + Send>>;

impl fmt::Debug for WhyEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WhyEnded")
    }
}

/// How the executors of an attempt are started.
#[derive(Debug)]
pub enum ExecutorStart {
    /// Each node's as a child of the driver, on this machine: the program and its first arguments.
    Each(Vec<OsString>),
    /// Those of all nodes by one program that lives as long as they do (`srun`). Each finds its node's
    /// name and the job's key in its environment, which comes from here.
    All {
        /// The program, and that of the executors, with their first arguments.
        argv: Vec<OsString>,
        /// Its environment.
        env: Vec<(OsString, OsString)>,
        /// How it starts MPI's ranks.
        rank_starters: RankStarters,
        /// Whether it has ended, by what it said last, because those it asks were not there just now: then
        /// it is started again for some minutes.
        try_again: fn(&str) -> bool,
    },
}

/// Who asked for a job's end by a signal to its driver, and the code that the job ends with.
///
/// `herd cancel` signals a driver that it cannot reach otherwise, and has said so in the job's
/// directory; any other signal is its sender's, and shows in the code.
pub fn asked_by_signal(job: &JobDir, signal: i32) -> (String, u8) {
    let number = u8::try_from(signal).unwrap_or(0);
    // What cannot be read leaves the signal.
    match job.cancel_request() {
        Ok(Some(by)) => (by, exit::CANCELLED),
        Ok(None) | Err(_) => (sentence::signal(number), 128u8.saturating_add(number)),
    }
}

/// One emulated or allocated node.
#[derive(Clone, Debug, Default)]
pub struct NodePlan {
    /// Its name; decides its identity.
    pub name: String,
    /// Its GPUs, where managed.
    pub gpus: Option<Vec<String>>,
    /// Its CPUs, where managed.
    pub cpus: Option<Vec<usize>>,
    /// Bytes of memory that all its processes may use together, where that can be enforced.
    pub memory: Option<u64>,
    /// Whether it shares no directory with the driver: what its logs hold is then written into the driver's
    /// own as it comes over the link.
    pub apart: bool,
}

/// Why an attempt could not be driven to its end.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The job directory could not be written.
    #[error("could not keep the attempt's records")]
    Records(#[from] JobDirError),
    /// The coordinator's port could not be opened.
    #[error("could not open the coordinator's port on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the link says.
        #[source]
        source: LinkError,
    },
    /// The token of a Ray cluster could not be made.
    #[error("could not make the Ray cluster's token")]
    Token(#[source] LinkError),
    /// The limit of memory could not be set.
    #[error("could not limit the memory of {node} to {bytes} bytes")]
    Memory {
        /// Node's name.
        node: String,
        /// The limit.
        bytes: u64,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// An executor could not be started.
    #[error("could not start {what}")]
    Executor {
        /// Which.
        what: String,
        /// Why.
        #[source]
        source: herd_launch::SpawnError,
    },
}

/// A control group of the node's own with its limit.
fn limit_memory(plan: &Plan, node: &NodePlan) -> Result<Option<Cgroup>, DriverError> {
    let Some(bytes) = node.memory else {
        return Ok(None);
    };
    let name = format!("{}-{}-{}", plan.job, plan.attempt, node.name);
    let made = match Parent::find() {
        Some(parent) => parent.create(&name, bytes),
        None => Err(io::Error::other("no control group is writable")),
    };
    made.map(Some).map_err(|source| DriverError::Memory {
        node: node.name.clone(),
        bytes,
        source,
    })
}

/// Starts the executors of an attempt, which connect to `coordinator`.
pub(super) fn start_executors(
    attempt: &mut Attempt,
    coordinator: SocketAddr,
) -> Result<Executors, DriverError> {
    let options = [
        ("--coordinator", coordinator.to_string()),
        ("--job", attempt.plan.job.to_string()),
        ("--attempt", attempt.plan.attempt.to_string()),
    ];
    let own = options
        .into_iter()
        .flat_map(|(name, value)| [name.into(), value.into()]);
    let started = match &mut attempt.executors {
        ExecutorStart::Each(program) => {
            let argv: Vec<OsString> = std::mem::take(program).into_iter().chain(own).collect();
            let mut launches = Vec::new();
            for node in &attempt.nodes {
                let mut argv = argv.clone();
                argv.extend([
                    "--node".into(),
                    OsString::from(&node.name),
                    "--address".into(),
                    coordinator.ip().to_string().into(),
                    "--key-file".into(),
                    attempt.key_file.clone().into(),
                ]);
                launches.push(Launch {
                    name: format!("the executor of {}", node.name),
                    argv,
                    env: std::env::vars_os().collect(),
                    log: executor_log(&attempt.dir, &node.name),
                    pass_stdin: attempt.pass_stdin,
                    cgroup: limit_memory(&attempt.plan, node)?,
                });
            }
            Executors::start_each(launches)
        }
        ExecutorStart::All { argv, env, .. } => {
            argv.extend(own);
            Executors::start_all(all_executors(argv, env, &attempt.dir))
        }
    };
    started.map_err(|(what, source)| DriverError::Executor { what, source })
}

/// How one program starts the executors of all nodes; none of them has a standard input.
pub(super) fn all_executors(
    argv: &[OsString],
    env: &[(OsString, OsString)],
    dir: &AttemptDir,
) -> Launch {
    Launch {
        name: "the executors".to_owned(),
        argv: argv.to_vec(),
        env: env.to_vec(),
        log: all_executors_log(dir),
        pass_stdin: false,
        cgroup: None,
    }
}

/// Where the messages of a node's executor go.
pub(super) fn executor_log(dir: &AttemptDir, node: &str) -> PathBuf {
    dir.path().join("nodes").join(node).join("executor.log")
}

/// Where those of all executors go that one program started.
pub(super) fn all_executors_log(dir: &AttemptDir) -> PathBuf {
    dir.path().join("nodes").join("executors.log")
}
