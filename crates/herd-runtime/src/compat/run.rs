//! The course of one executor (§2): place, script, signal files, shell, barrier, exit code.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use herd_core::exit;
use herd_launch::{Child, Output, ProcessSpec, Signal, SpawnError, spawn, sys, tree};
use thiserror::Error;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::time::{Instant, timeout};

use super::arguments::{Arguments, Source};
use super::barrier::Barrier;
use super::output::{Stream, relay};
use super::place::{Cluster, Naming, index};
use super::script::{InMemory, compose};
use super::script_share::{ScriptError, Share, read_text};
use super::signal_files::SignalFiles;
use super::surroundings::Step;
use super::warn;
use crate::clock::until;
use crate::last_resort::LastResort;

/// What a script gets between the TERM that ends the step and KILL; Slurm's own KILL comes after 30 s
/// where a site has not said otherwise (`KillWait`).
const GRACE: Duration = Duration::from_secs(25);
/// What processes get that a script has left behind where the node's part is over.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
/// Bound on ending them.
const LEFTOVER_BOUND: Duration = Duration::from_secs(5);
/// How long a node that is ready passes a script on to others.
const SHARE_BOUND: Duration = Duration::from_secs(10);
/// Code of a node that was told to end. `srun` returns the highest of all, so with the lowest failure the
/// code of the node that failed by itself is the one that is told (§9).
const TOLD_TO_END: u8 = 1;
/// What runs scripts.
const SHELL: &str = "/bin/bash";

/// Why a script did not run.
#[derive(Debug, Error)]
pub(super) enum RunError {
    #[error("{0} is not set: this executor is started by srun")]
    NoStep(&'static str),
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error("could not open the log {}", path.display())]
    Log {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not tell the driver of the allocation by {}", path.display())]
    Announce {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not start {SHELL}")]
    Shell(#[source] SpawnError),
    #[error("could not {what}")]
    System {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

fn system(what: &'static str) -> impl Fn(io::Error) -> RunError {
    move |source| RunError::System { what, source }
}

/// Runs the script; the code to exit with.
pub(super) fn run(arguments: &Arguments) -> Result<u8, RunError> {
    // What a script leaves behind comes to this process, so that it can be ended.
    sys::set_subreaper().map_err(system("become the parent of orphans"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the event loop"))?;
    let code = runtime.block_on(node(arguments));
    // A stream that nobody reads from may still be written to.
    runtime.shutdown_background();
    code
}

/// The files by which the nodes of this step meet.
struct Meeting {
    signal_files: SignalFiles,
    barrier: Option<Barrier>,
    share: Option<Share>,
}

impl Meeting {
    fn new(arguments: &Arguments, step: &Step) -> Self {
        let home = cluster_home(arguments);
        let signal_files = SignalFiles {
            alloc: arguments.alloc_file.as_deref().map(expand),
            setup_done: arguments.setup_done_file.as_deref().map(expand),
            rank: step.rank,
            nodes: step.nodes,
        };
        let key = step.key.as_deref();
        Self {
            signal_files,
            barrier: key
                .filter(|_| !arguments.is_setup)
                .and_then(|key| Barrier::needed(&home, key, step.rank, step.nodes)),
            share: key
                .filter(|_| step.nodes > 1 && matches!(arguments.script, Source::File(_)))
                .map(|key| Share::new(&home, key, step.rank, step.nodes)),
        }
    }

    /// Removes the copy of the script when all nodes have it. Cancel-safe.
    async fn collect_script(&self) {
        if let Some(share) = &self.share {
            share.collect().await;
        }
    }

    /// The node's part is over, and not well: nobody waits for it.
    fn withdraw(&self) {
        self.signal_files.withdraw();
        self.barrier.iter().for_each(Barrier::withdraw);
        self.share.iter().for_each(Share::withdraw);
    }

    /// The node's part is over.
    async fn leave(&self) {
        if let Some(share) = &self.share {
            drop(timeout(SHARE_BOUND, share.collect()).await);
            share.withdraw();
        }
        self.signal_files.leave().await;
    }
}

async fn node(arguments: &Arguments) -> Result<u8, RunError> {
    let step = Step::read().map_err(RunError::NoStep)?;
    let watch = |kind| signal(kind).map_err(system("watch for signals"));
    let mut asked = Asked {
        terminate: watch(SignalKind::terminate())?,
        interrupt: watch(SignalKind::interrupt())?,
    };
    let cluster = Cluster {
        size: arguments.cluster_size,
        ips: &arguments.cluster_ips,
        nodes: &arguments.cluster_nodes,
    };
    let known = step.known(arguments);
    let (index, warning) = index(&known, cluster);
    if let Some(text) = &warning {
        warn(text);
    }
    // An address of the cluster's list where this node has one of them, else its name.
    let listed = arguments.cluster_ips.get(index as usize);
    let own_ip = match (&known.own_ips[..], listed) {
        (_, Some(ip)) if warning.is_none() => ip.clone(),
        ([ip, ..], _) => ip.clone(),
        ([], _) => step.node_name.clone().unwrap_or_default(),
    };
    let naming = Naming::new(
        arguments.is_setup,
        arguments.cluster_size,
        &arguments.task_name,
        step.rank,
        index,
        &own_ip,
    );
    let log = open_log(&expand(&arguments.log_dir), &naming.file)?;
    if arguments.is_setup {
        take_back_announcement(arguments, &step);
    }
    let meeting = Meeting::new(arguments, &step);
    let script = tokio::select! {
        script = read_script(arguments, &meeting) => script?,
        () = asked.recv() => return Ok(told_to_end(&meeting)),
    };
    let mut variables = arguments.variables.clone();
    if !arguments.is_setup {
        inject(&mut variables, arguments, &step, &own_ip);
    }
    meeting.barrier.iter().for_each(Barrier::prepare);
    announce(&meeting)?;
    let start = async {
        tokio::join!(meeting.signal_files.await_start(), meeting.collect_script());
    };
    tokio::select! {
        () = start => {}
        () = asked.recv() => return Ok(told_to_end(&meeting)),
    }
    // Only now: this node itself has to see the files, too.
    let chores = pin!(async {
        meeting.signal_files.collect().await;
        std::future::pending::<()>().await;
    });
    let text = compose(&script, &variables);
    let outcome = shell(&text, &naming, log, &mut asked, chores).await;
    let (code, told) = outcome.inspect_err(|_error| meeting.withdraw())?;
    if told {
        return Ok(told_to_end(&meeting));
    }
    if code != exit::SUCCESS {
        meeting.withdraw();
        end_leftovers();
        return Ok(code);
    }
    let finishing = async {
        if let Some(barrier) = &meeting.barrier {
            match barrier.await_release().await {
                Ok(()) => {}
                Err(missing) => warn(&format!(
                    "the shared home failed for too long while waiting for the end of ranks {missing:?}"
                )),
            }
            barrier.leave().await;
        }
        meeting.leave().await;
    };
    tokio::select! {
        () = finishing => {}
        () = asked.recv() => return Ok(told_to_end(&meeting)),
    }
    if meeting.barrier.is_some() {
        // Slurm kills them at once, without asking.
        end_leftovers();
    }
    Ok(exit::SUCCESS)
}

async fn read_script(arguments: &Arguments, meeting: &Meeting) -> Result<String, ScriptError> {
    match (&arguments.script, &meeting.share) {
        (Source::Inline(text), _) => Ok(text.clone()),
        (Source::File(path), Some(share)) => share.read(&expand(path)).await,
        (Source::File(path), None) => read_text(&expand(path)),
    }
}

/// What only the run phase gets; it overrides what the driver says (row 9).
fn inject(
    variables: &mut BTreeMap<String, String>,
    arguments: &Arguments,
    step: &Step,
    own_ip: &str,
) {
    let (ips, warning) = step.ips(arguments, own_ip);
    if let Some(text) = warning {
        warn(&text);
    }
    for (name, value) in [
        ("SKYPILOT_NODE_RANK", step.rank.to_string()),
        ("SKYPILOT_NUM_NODES", step.nodes.to_string()),
        ("SKYPILOT_NODE_IPS", ips.join("\n")),
    ] {
        variables.insert(name.to_owned(), value);
    }
}

fn announce(meeting: &Meeting) -> Result<(), RunError> {
    let files = &meeting.signal_files;
    files.announce().map_err(|source| RunError::Announce {
        path: files.alloc.clone().unwrap_or_default(),
        source,
    })
}

/// That setup runs shows that the driver has seen the allocation, so its sign can go: a cancel in setup
/// kills the run's step before it could do it. The driver names both by its own number of the job.
fn take_back_announcement(arguments: &Arguments, step: &Step) {
    let driver_job = step.name.as_deref().and_then(|name| {
        let number = name.strip_prefix("sky-")?.strip_suffix("-setup")?;
        number
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then_some(number)
    });
    if let (0, Some(driver_job), Some(job)) = (step.rank, driver_job, &step.job) {
        let sign = format!(".sky_alloc_{job}_{driver_job}");
        drop(fs::remove_file(cluster_home(arguments).join(sign)));
    }
}

fn told_to_end(meeting: &Meeting) -> u8 {
    meeting.withdraw();
    end_leftovers();
    TOLD_TO_END
}

fn end_leftovers() {
    tree::end_all_children(&[], LEFTOVER_GRACE, LEFTOVER_BOUND);
}

/// The wishes of Slurm that this node end.
struct Asked {
    terminate: SignalStream,
    interrupt: SignalStream,
}

impl Asked {
    async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Runs the shell and shows its output to the end of both; its code, and whether it was told to end.
async fn shell(
    text: &str,
    naming: &Naming,
    log: File,
    asked: &mut Asked,
    mut chores: Pin<&mut impl Future<Output = ()>>,
) -> Result<(u8, bool), RunError> {
    let memory = InMemory::new(text).map_err(system("hold the script in memory"))?;
    let argv = [SHELL.to_owned(), "-i".to_owned(), memory.path()];
    let spec = ProcessSpec {
        stdout: Output::Pipe,
        stderr: Output::Pipe,
        keep_fds: vec![memory.number()],
        ..ProcessSpec::new(
            argv.map(OsString::from).to_vec(),
            env::vars_os().collect(),
            env::current_dir().unwrap_or_else(|_gone| PathBuf::from("/")),
        )
    };
    let mut child = spawn(spec).map_err(RunError::Shell)?;
    // What it leaves running serves the nodes that still run.
    child.leave_group_alone();
    let prefix = naming.prefix(child.pid());
    let log = Arc::new(log);
    let streams = (child.take_stdout(), child.take_stderr());
    let mut work = pin!(async {
        let one = |pipe: Option<_>, to| {
            let (log, prefix) = (Arc::clone(&log), prefix.clone());
            async move {
                match pipe {
                    Some(pipe) => relay(pipe, log, prefix, to).await,
                    None => Ok(()),
                }
            }
        };
        let (out, err) = (one(streams.0, Stream::Out), one(streams.1, Stream::Err));
        let (out, err, exit) = tokio::join!(out, err, Child::wait(&mut child));
        for error in [out, err].into_iter().filter_map(Result::err) {
            warn(&format!("could not read the script's output: {error}"));
        }
        exit.end.code()
    });
    let mut kill_at: Option<Instant> = None;
    let mut last_resort = LastResort::default();
    loop {
        tokio::select! {
            code = &mut work => return Ok((code, kill_at.is_some())),
            () = asked.recv() => {
                // Slurm may send it twice.
                kill_at = kill_at.or_else(|| Some(Instant::now() + GRACE));
                for pid in tree::descendants(rustix::process::getpid()) {
                    // One that has just ended is what is wanted.
                    let _gone = rustix::process::kill_process(pid, Signal::TERM);
                }
            }
            () = until(kill_at), if !last_resort.is_set() => last_resort = LastResort::now(),
            () = last_resort.due() => last_resort.kill(&[]),
            () = &mut chores => {}
        }
    }
}

fn open_log(directory: &Path, name: &str) -> Result<File, RunError> {
    let path = directory.join(name);
    let opened = fs::create_dir_all(directory)
        .and_then(|()| OpenOptions::new().create(true).append(true).open(&path));
    opened.map_err(|source| RunError::Log { path, source })
}

/// Where the nodes of the cluster meet: the user's home unless the driver names another.
fn cluster_home(arguments: &Arguments) -> PathBuf {
    expand(
        arguments
            .cluster_home
            .as_deref()
            .unwrap_or_else(|| Path::new("~")),
    )
}

/// A path whose `~` is this user's home.
fn expand(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), env::var_os("HOME")) {
        (Ok(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path.to_owned(),
    }
}
