//! The submitting side: a process of each job that has not ended, which waits for Slurm to start it, brings
//! what its nodes need, and keeps the job's directory here equal to the one there.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use herd_core::exit::ProcessEnd;
use herd_core::result::{Failure, JobResult};
use herd_core::state::JobState;
use herd_core::text::error_line;
use herd_core::{exit, hostlist};
use herd_jobdir::{JobDir, JobDirError};
use herd_runtime::clock::Clock;
use herd_slurm::control;
use herd_slurm::job::{self, Id};
use herd_slurm::outcome::Condition;
use herd_slurm::quote::Unquotable;
use herd_slurm::staging::{
    BUNDLE, NODE_REFUSES, NODES_SHARE, PROGRAM, prepare, settle, stage, take_back,
};
use herd_slurm::step::broadcast;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::files;
use super::left;
use super::link::Conversation;
use super::node::RESULT;
use super::wire::Head;
use crate::attempts::once;
use crate::slurm::DURABILITY;
use crate::slurm::cluster::{Cluster, ClusterError};
use crate::slurm::command::CommandError;
use crate::slurm::observe::{self, ObserveError};
use crate::slurm::record::Record;

/// Held by the process that stages a job.
const LOCK: &str = "stage.lock";
/// What was brought to the nodes already.
const BROUGHT: &str = "staged.json";
/// How long Slurm's answer stands: the first one, and the longest. A job that starts waits as long.
const STANDS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// Bytes of the end of a growing file that its next writer may look at.
const LAST: u64 = 64;
/// How long nodes that a job was given may be out of reach before it begins.
const REACH: Duration = Duration::from_mins(1);
/// How often requests are looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Why staging a job failed.
#[derive(Debug, Error)]
pub enum StageError {
    /// The job directory failed.
    #[error("could not keep the job's records")]
    Records(#[from] JobDirError),
    /// It is no job that is to be staged.
    #[error("job {job} is not staged from here")]
    NotStaged {
        /// The job.
        job: String,
    },
    /// A call of Slurm failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Slurm's answer was none.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The job's end could not be found out.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The nodes have answered, and cannot take the job.
    #[error("{0}")]
    NodesRefuse(String),
    /// The nodes do not answer.
    #[error("its nodes cannot be reached from here")]
    OutOfReach(#[source] CommandError),
    /// A path cannot be said to Slurm.
    #[error("the directory on the nodes {0}")]
    Path(#[from] Unquotable),
    /// The conversation with the node, or a file here, failed.
    #[error("could not {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> StageError {
    move |source| StageError::System { what, source }
}

/// Which run of a job everything was brought to.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Brought {
    restarts: u32,
}

/// Whether a process stages the job just now.
pub fn is_staged(job: &JobDir) -> bool {
    let Ok(file) = File::open(job.path().join(LOCK)) else {
        return false;
    };
    Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err()
}

/// Stages a job to its end; at once where another process does. `program` is what the nodes run, and
/// `tell` hears what goes wrong and is tried again.
pub fn run(job: &JobDir, program: &Path, tell: fn(&str)) -> Result<(), StageError> {
    let record = Record::read(job)?;
    let record = record.filter(|record| record.staged_to.is_some());
    let record = record.ok_or_else(|| StageError::NotStaged {
        job: job.id().short(),
    })?;
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(job.path().join(LOCK))
        .map_err(system("open the lock"))?;
    let Ok(_lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the event loop"))?;
    let staging = Staging {
        directory: record.staged_to.clone().unwrap_or_default(),
        cluster: record.on(),
        record,
        job,
        program,
        runtime,
        trouble: Cell::default(),
        requests: Cell::default(),
        nodes: Cell::new(1),
    };
    let mut pause = STANDS.0;
    while job.read_result()?.is_none() {
        match staging.step() {
            Ok(Step::Again) => pause = STANDS.0,
            Ok(Step::Wait) => {}
            // Slurm that does not answer, a node that cannot be reached: the job may go on without.
            Err(error) => {
                tell(&error_line(&error));
                staging.give_up(&error)?;
            }
        }
        if job.read_result()?.is_none() {
            // Made inside: a timer belongs to its runtime.
            staging.runtime.block_on(async { sleep(pause).await });
            pause = (pause * 2).min(STANDS.1);
        }
    }
    job.delete_secrets()?;
    for name in [BUNDLE, left::COMING] {
        drop(fs::remove_file(job.path().join(name)));
    }
    Ok(())
}

enum Step {
    /// Something has happened.
    Again,
    /// Nothing has.
    Wait,
}

struct Staging<'a> {
    job: &'a JobDir,
    record: Record,
    /// The job's directory on the nodes.
    directory: String,
    cluster: Cluster,
    program: &'a Path,
    runtime: Runtime,
    /// Since when nodes cannot be reached that have not begun.
    trouble: Cell<Option<Instant>>,
    /// How far requests have been read.
    requests: Cell<u64>,
    /// How many nodes the job has, once that is known.
    nodes: Cell<u32>,
}

impl Staging<'_> {
    fn step(&self) -> Result<Step, StageError> {
        let asked = observe::Asked::job(self.record.clone());
        let views = self
            .runtime
            .block_on(observe::observe(&self.cluster, &[asked]));
        let views = views?;
        let view = views.get(&Id::job(self.record.job));
        let waits = view.is_some_and(|view| matches!(view.condition, Condition::Pending { .. }));
        if waits && self.job.cancel_request()?.is_some() {
            // Slurm did not answer whoever asked.
            let call = control::cancel_waiting_call(&[self.record.job]);
            self.runtime.block_on(self.cluster.control(call))?;
            return Ok(Step::Again);
        }
        match view {
            Some(view) if matches!(view.condition, Condition::Running) => {
                if self.trouble.get().is_none() {
                    self.trouble.set(Some(Instant::now()));
                }
                self.run()?;
                Ok(Step::Again)
            }
            Some(view) => match view.condition {
                Condition::Ended(_) => {
                    observe::settle(self.job, view, Clock::start().now_ms())?;
                    Ok(Step::Again)
                }
                _ => Ok(Step::Wait),
            },
            None => Ok(Step::Wait),
        }
    }

    /// Ends a job that has not begun and will not: what it needs could not be brought for a while after its
    /// nodes were there, or they have said that they cannot take it. Nothing of it has run.
    fn give_up(&self, error: &StageError) -> Result<(), StageError> {
        let since = self.trouble.get().map(|since| since.elapsed());
        let at_once = matches!(error, StageError::NodesRefuse(_));
        if !at_once && since.is_none_or(|since| since < REACH) {
            return Ok(());
        }
        if let Ok(call) = take_back(self.record.job, self.nodes.get(), &self.directory) {
            // Nodes that do not answer have nothing of it, or are lost with it.
            drop(self.runtime.block_on(self.cluster.reach(call)));
        }
        let call = control::cancel_call(&[Id::job(self.record.job)]);
        self.runtime.block_on(self.cluster.control(call))?;
        let detail = format!(
            "what it needs could not be brought to its nodes, so it has not begun: {}",
            error_line(error)
        );
        let attempt = self.job.latest_attempt()?;
        let settled = JobResult {
            state: JobState::Failed,
            rejection: None,
            reason: None,
            failure: Some(Failure::DriverLost { detail }),
            exit_code: exit::HERD_FAILED,
            attempts: attempt.map_or(0, |attempt| attempt.number() - 1),
            ended_ms: Clock::start().now_ms(),
            tasks: None,
        };
        // Gone before anybody hears of the end.
        self.job.delete_secrets()?;
        once(self.job.write_result(&settled, DURABILITY))?;
        Ok(())
    }

    /// Brings everything to a job that runs, and keeps up with it until it ends or is lost from sight.
    fn run(&self) -> Result<(), StageError> {
        let number = self.record.job;
        let text = self.cluster.text(job::show_call(Id::job(number)));
        let shown = self.runtime.block_on(text)?;
        let unreadable = || ClusterError::Output {
            command: "scontrol show job",
        };
        let shown = job::parse(&shown).map_err(|_other| unreadable())?;
        let nodes = shown.nodes.as_deref().map(hostlist::expand);
        let nodes = nodes.and_then(Result::ok).unwrap_or_default();
        let first = nodes.first().ok_or_else(unreadable)?;
        let brought = Brought {
            restarts: shown.restarts,
        };
        self.nodes
            .set(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        if self.job.read_backend::<Brought>(BROUGHT)?.as_ref() != Some(&brought) {
            self.bring(&format!("{}-{}", shown.restarts, Clock::start().now_ms()))?;
            self.job.write_backend(BROUGHT, &brought)?;
        }
        let args = [self.job.id().to_string(), shown.restarts.to_string()];
        let args = [vec![self.directory.clone()], args.to_vec()].concat();
        self.keep_up(stage(number, first, &self.directory, &args))
    }

    /// Program and workdir, to all nodes. `run` is no other run's.
    fn bring(&self, run: &str) -> Result<(), StageError> {
        let (number, directory, nodes) = (self.record.job, &self.directory, self.nodes.get());
        let ask = |call| self.runtime.block_on(self.cluster.carry(call));
        let made = self.cluster.reach(prepare(number, nodes, directory, run)?);
        let made = self.runtime.block_on(made);
        made.map_err(|error| self.refusal(error).unwrap_or_else(StageError::OutOfReach))?;
        let program = self.program.to_string_lossy();
        let bundle = self.job.path().join(BUNDLE);
        if bundle.is_file() {
            let there = format!("{directory}/{BUNDLE}");
            ask(broadcast(number, &bundle.to_string_lossy(), &there))?;
        }
        if bundle.is_file() || nodes > 1 {
            let settled = ask(settle(number, nodes, directory, run)?);
            settled.map_err(|error| self.refusal(error).unwrap_or_else(StageError::Command))?;
        }
        ask(broadcast(
            number,
            &program,
            &format!("{directory}/{PROGRAM}"),
        ))?;
        Ok(())
    }

    /// What the nodes have said against the job; the failure itself where they have said nothing.
    fn refusal(&self, error: CommandError) -> Result<StageError, CommandError> {
        let CommandError::Failed { end, text, .. } = &error else {
            return Err(error);
        };
        // What srun says besides is that its tasks have ended so.
        let words = text.split("; ").filter(|line| !line.starts_with("srun: "));
        let words: Vec<&str> = words.collect();
        let directory = Path::new(&self.directory).parent();
        let directory = directory.unwrap_or_else(|| Path::new("/")).display();
        match *end {
            ProcessEnd::Exited(NODE_REFUSES) => Ok(StageError::NodesRefuse(format!(
                "a node cannot have the job's directory in {directory} (`node_dir`): {}",
                words.join("; ")
            ))),
            ProcessEnd::Exited(NODES_SHARE) => {
                let mut nodes = words;
                nodes.sort_unstable();
                nodes.dedup();
                Ok(StageError::NodesRefuse(format!(
                    "nodes share {directory} (`node_dir`), which each has to have for itself: {}",
                    nodes.join(", ")
                )))
            }
            _ => Err(error),
        }
    }

    fn keep_up(&self, call: herd_slurm::Call) -> Result<(), StageError> {
        let mut step = Command::new(call.program);
        self.cluster.prepare(&mut step, call);
        let mut step = step
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(system("start srun"))?;
        let said = match (step.stdout.take(), step.stdin.take()) {
            (Some(from), Some(to)) => {
                Conversation::over(from, to).and_then(|conversation| self.converse(conversation))
            }
            _ => Err(io::Error::other("srun has no streams")),
        };
        // It ends with its streams; where it does not, nothing is to be had from it any more.
        drop(step.kill());
        drop(step.wait());
        if said.map_err(system("keep up with the job on its node"))? {
            let call = control::requeue_call(Id::job(self.record.job));
            self.runtime.block_on(self.cluster.control(call))?;
        }
        Ok(())
    }

    /// Whether Slurm is to start the job again.
    fn converse(&self, mut node: Conversation<ChildStdin>) -> io::Result<bool> {
        let ready = loop {
            if let (Head::Here { ready }, _) = node.wait()? {
                break ready;
            }
        };
        self.say_what_is_here(&mut node, ready)?;
        self.trouble.set(None);
        let mut over = false;
        loop {
            let said = match node.next(LOOK) {
                // The other side may be ended with its step before it can say so.
                Err(_) if over || self.path(RESULT)?.exists() => return Ok(false),
                said => said?,
            };
            match said {
                Some((Head::Over { requeue }, _)) => return Ok(requeue),
                Some((Head::Whole { path, .. }, bytes)) => {
                    if path == RESULT {
                        // Gone before anybody hears of the end.
                        self.job.delete_secrets().map_err(io::Error::other)?;
                    }
                    files::write_whole(&self.path(&path)?, &bytes)?;
                }
                Some((Head::Part { path, offset, .. }, bytes)) => {
                    left::takes(&path, offset)?;
                    files::write_part(&self.path(&path)?, offset, &bytes)?;
                }
                Some((Head::Left { why }, _)) => left::keep(self.job, why)?,
                Some((Head::AllSent, _)) => {
                    node.say(&Head::Kept, b"")?;
                    over = true;
                }
                Some(_) => {}
                None => {
                    for request in self.requests() {
                        node.say(&request, b"")?;
                    }
                }
            }
        }
    }

    fn path(&self, path: &str) -> io::Result<PathBuf> {
        files::below(self.job.path(), path)
    }

    /// Records and secrets for a driver that has not begun; the lengths of the rest.
    fn say_what_is_here(&self, node: &mut Conversation<ChildStdin>, ready: bool) -> io::Result<()> {
        let mut files: BTreeMap<String, u64> = files::list(self.job.path())
            .into_iter()
            .map(|(path, seen)| (path, seen.length))
            .collect();
        files.retain(|path, _| !OWN.contains(&path.as_str()));
        for name in ["key", "secrets.json"] {
            if !ready && self.job.path().join(name).is_file() {
                files.insert(name.to_owned(), 0);
            }
        }
        for (path, length) in files {
            if files::grows(&path) && path != "tasks.jsonl" {
                self.say_the_end_of(node, path, length)?;
            } else {
                let bytes = fs::read(self.job.path().join(&path))?;
                let length = bytes.len() as u64;
                node.say(&Head::Whole { path, length }, &bytes)?;
            }
        }
        node.say(&Head::Ready, b"")
    }

    /// How long a file is that goes on growing there, and its last bytes, by which writers go on.
    fn say_the_end_of(
        &self,
        node: &mut Conversation<ChildStdin>,
        path: String,
        length: u64,
    ) -> io::Result<()> {
        let offset = length.saturating_sub(LAST);
        let mut bytes = Vec::new();
        let mut file = File::open(self.path(&path)?)?;
        file.seek(SeekFrom::Start(offset))?;
        file.take(length - offset).read_to_end(&mut bytes)?;
        let has = Head::Has {
            path: path.clone(),
            length,
        };
        node.say(&has, b"")?;
        let length = bytes.len() as u64;
        node.say(
            &Head::Part {
                path,
                offset,
                length,
            },
            &bytes,
        )
    }

    /// Requests for the job's end that were written down here since.
    fn requests(&self) -> Vec<Head> {
        let Ok((requests, next)) = self.job.read_control(self.requests.get()) else {
            return Vec::new();
        };
        self.requests.set(next);
        let cancel = |request: &serde_json::Value| {
            let by = request["by"].as_str().unwrap_or("a request").to_owned();
            let signal = i32::try_from(request["signal"].as_i64()?).ok()?;
            let grace_ms = request["grace_ms"].as_u64();
            Some(Head::Cancel {
                signal,
                grace_ms,
                by,
            })
        };
        requests.iter().filter_map(cancel).collect()
    }
}

/// Files that are this side's own.
const OWN: [&str; 7] = [
    "slurm.json",
    BROUGHT,
    LOCK,
    "submit.sh",
    "stage.log",
    left::ARCHIVE,
    left::REFUSED,
];
