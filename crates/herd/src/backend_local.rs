//! The seam to the local backend: every call that starts, stops or enters something running.
//!
//! It translates between the command line's types and the backend's; it decides nothing.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use herd_backends::local::{self, DriveOptions, Taken};
use herd_core::JobId;
use herd_core::plan::BackendFacts;
use herd_core::result::{Failure, JobResult};
use herd_core::spec::{JobSpec, ProcsPerNode, SecretSource};
use herd_core::state::JobState;
use herd_core::units::{Bytes, Span};
use herd_jobdir::{Home, JobDir};
use herd_launch::accelerators::{self, nvml};
use herd_link::session::Place;
use herd_runtime::driver::LogGrown;
use herd_runtime::guard;
use herd_runtime::session::follow_client::{FollowEnd, Output};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open};
use tokio::signal::unix::{SignalKind, signal};

use crate::error::ExpectedError;
use crate::job_input::JobInput;
use crate::jobs;

/// What this machine offers to a job; looked at once. GPUs are counted only where the job asks for
/// some, which takes its time.
pub(crate) fn facts(spec: &JobSpec) -> BackendFacts {
    static FACTS: OnceLock<BackendFacts> = OnceLock::new();
    static GPUS: OnceLock<u32> = OnceLock::new();
    let asks = spec.resources.gpus.is_some_and(|gpus| gpus > 0)
        || spec.procs_per_node == ProcsPerNode::Gpu;
    let count = || u32::try_from(gpus().len()).unwrap_or(u32::MAX);
    BackendFacts {
        gpus_per_node: asks.then(|| *GPUS.get_or_init(count)),
        ..FACTS.get_or_init(look).clone()
    }
}

/// Argument of this program for [`nvml::list`].
pub(crate) const NVML: &str = "nvml";

/// The GPUs that jobs of this user may have: those that are leased.
pub(crate) fn gpus() -> Vec<String> {
    accelerators::of_this_process(&|| {
        std::env::current_exe().map_or_else(|_gone| Vec::new(), |own| nvml::ask(&own, NVML))
    })
}

fn look() -> BackendFacts {
    let cpus = std::thread::available_parallelism()
        .map_or(1, |number| u32::try_from(number.get()).unwrap_or(u32::MAX));
    let memory = local::machine::memory(Path::new("/proc"), Path::new("/sys/fs/cgroup"));
    BackendFacts {
        memory_per_node: memory.map(Bytes),
        memory_enforced: herd_launch::cgroup::Parent::find().is_some(),
        ..BackendFacts::local(cpus, 0)
    }
}

/// Argument of a driver whose standard input tells of the end of the job's owner.
const OWNED: &str = "owned";

/// Writes the job down; nothing runs yet.
pub(crate) fn prepare(home: &Home, input: JobInput) -> Result<JobId, ExpectedError> {
    let plan = input.plan(JobId::generate())?;
    let yaml = input.job_yaml();
    let submitted = local::submit(home, &yaml, plan, &input.secrets.into_values())
        .map_err(|error| ExpectedError::failed("take the job", error))?;
    // The job's secrets file has them now: neither this process nor those that it starts keep them
    // where `/proc` shows them (I12).
    for source in input.spec.secrets.values() {
        if let SecretSource::Env(variable) = source {
            herd_launch::sys::forget_variable(OsStr::new(variable))
                .map_err(|error| ExpectedError::failed("take a secret out of sight", error))?;
        }
    }
    Ok(submitted.id)
}

/// A descriptor that tells of the end of a process.
pub(crate) fn end_of(process: i32) -> Result<OwnedFd, ExpectedError> {
    let failed = |why: String| ExpectedError::BadOption {
        option: "--while-process",
        value: process.to_string(),
        source: why.into(),
    };
    let pid = Pid::from_raw(process).ok_or_else(|| failed("it is no process".to_owned()))?;
    pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(error.to_string()))
}

/// Writes the job down and starts a driver that outlives this process. The job is cancelled when `owner` becomes
/// readable.
pub(crate) fn submit(
    home: &Home,
    input: JobInput,
    owner: Option<OwnedFd>,
) -> Result<JobId, ExpectedError> {
    let id = prepare(home, input)?;
    let failed = |what: &str, error: std::io::Error| ExpectedError::failed(what, error);
    let log = home.jobs_dir().join(id.to_string()).join("driver.log");
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(log)
        .map_err(|error| failed("open the driver's log", error))?;
    let program =
        std::env::current_exe().map_err(|error| failed("find herd's own program", error))?;
    // Not waited for until it ends: it leaves this session and has its own guard.
    let started = std::process::Command::new(program)
        .arg("driver")
        .arg(home.path())
        .arg(id.to_string())
        .args(owner.is_some().then_some(OWNED))
        .stdin(owner.map_or_else(Stdio::null, Stdio::from))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let taken = started
        .map_err(|error| failed("start the job's driver", error))
        .and_then(|mut driver| until_taken(home, id, &mut driver));
    if let Err(error) = taken {
        // It has ended for all who look later.
        let _result = end_lost(home, id);
        return Err(error);
    }
    Ok(id)
}

/// How long a driver may take until it has the job; more means a machine that hardly moves, where the
/// job is handed in all the same.
const TAKE_BOUND: Duration = Duration::from_secs(10);
/// How often it is looked whether the driver has the job.
const TAKE_POLL: rustix::event::Timespec = rustix::event::Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// Waits until the driver has the job: whoever is given the id finds a driver, or its end, behind it.
fn until_taken(home: &Home, id: JobId, driver: &mut Child) -> Result<(), ExpectedError> {
    let failed = |what: &str| {
        let log = home.jobs_dir().join(id.to_string()).join("driver.log");
        let said = std::fs::read_to_string(log).unwrap_or_default();
        ExpectedError::failed("start the job's driver", format!("{what}: {}", said.trim()))
    };
    let job = home
        .open(id)
        .map_err(|error| ExpectedError::failed("open the job's directory", error))?;
    let deadline = Instant::now() + TAKE_BOUND;
    while Instant::now() < deadline {
        // Before the look at the owner, which a driver writes before it ends.
        let ended = driver.try_wait().ok().flatten();
        match (local::taken(&job), ended) {
            (Taken::ByDriver, _) => return Ok(()),
            (Taken::Ended, _) => return Err(failed("it cannot do its work")),
            (Taken::No, Some(status)) => return Err(failed(&format!("it ended with {status}"))),
            (Taken::No, None) => {}
        }
        // An interrupted pause is a shorter one.
        let _paused = rustix::event::poll(&mut [], Some(&TAKE_POLL));
    }
    Ok(())
}

/// Drives a job that was written down, in this process, and says whenever its merged log has grown.
/// Called under a guard.
pub(crate) fn drive_foreground(
    home: &Home,
    id: JobId,
    log_grown: impl Fn() + Send + Sync + 'static,
) -> Result<JobResult, ExpectedError> {
    drive(home, id, true, Some(LogGrown(Arc::new(log_grown))), None)
}

fn drive(
    home: &Home,
    id: JobId,
    foreground: bool,
    log_grown: Option<LogGrown>,
    owner: Option<OwnedFd>,
) -> Result<JobResult, ExpectedError> {
    let dir = home
        .open(id)
        .map_err(|error| ExpectedError::failed("open the job's directory", error))?;
    let options = DriveOptions {
        executor: executor_program()?,
        gpus,
        pass_stdin: foreground,
        waits: foreground.then_some(|text| drop(writeln!(std::io::stderr(), "herd: {text}"))),
        log_grown,
        // A closed stderr is no reason to fail.
        warn: |text| drop(writeln!(std::io::stderr(), "warning: {text}")),
    };
    // One descriptor for each node's link and some for each rank's output.
    herd_launch::sys::raise_nofile()
        .map_err(|error| ExpectedError::failed("raise the limit of open files", error))?;
    let driven = runtime()?.block_on(async {
        tokio::select! {
            // The driver first: it watches for signals from its first step on.
            biased;
            driven = local::drive(home, &dir, &options) => driven,
            never = tell_of_grace(&dir, foreground) => match never {},
            never = end_with(owner, &dir) => match never {},
        }
    });
    driven.map_err(|error| ExpectedError::failed("run the job", error))
}

/// How long after Ctrl-C a job that has not ended is a surprise.
const SURPRISE: Duration = Duration::from_secs(1);

/// Says once, some time after Ctrl-C to a foreground job, that its ranks may still take their time.
async fn tell_of_grace(dir: &JobDir, foreground: bool) -> Infallible {
    let interrupts = foreground.then(|| signal(SignalKind::interrupt()));
    if let Some(Ok(mut interrupts)) = interrupts {
        interrupts.recv().await;
        tokio::time::sleep(SURPRISE).await;
        let plan = dir.attempt(1).read_plan().ok().flatten();
        let grace = plan.map_or_else(String::new, |plan| format!(" for up to {}", plan.grace));
        // A closed stderr is no reason to fail.
        drop(writeln!(
            std::io::stderr(),
            "herd: waits{grace} until the ranks have ended; Ctrl-C again kills them"
        ));
    }
    std::future::pending().await
}

/// Asks this driver for the end of its job when the owner has ended.
async fn end_with(owner: Option<OwnedFd>, dir: &JobDir) -> Infallible {
    if let Some(owner) = owner {
        // What cannot be watched says nothing; the job goes on.
        if let Ok(owner) = herd_launch::sys::watch_readable(owner) {
            if owner.readable().await.is_ok() {
                // Only for the words; the signal is what ends it.
                drop(dir.request_cancel("the end of the process that it belongs to"));
                let _asked = kill_process(getpid(), Signal::TERM);
            }
        }
    }
    std::future::pending().await
}

/// The owner's descriptor out of standard input, which is empty from then on.
fn owner_from_stdin() -> std::io::Result<OwnedFd> {
    let owner = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let nothing = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(nothing)?;
    Ok(owner)
}

/// The small binary where it stands beside this one, else this one.
fn executor_program() -> Result<Vec<OsString>, ExpectedError> {
    let own = std::env::current_exe()
        .map_err(|error| ExpectedError::failed("find herd's own program", error))?;
    let node = own.with_file_name("herd-node");
    let program = if node.is_file() { node } else { own };
    Ok(vec![program.into_os_string(), "executor".into()])
}

/// An event loop for one call.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, ExpectedError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ExpectedError::failed("start the event loop", error))
}

/// Asks the job's driver to end it; returns once the request was taken.
pub(crate) fn cancel(job: &JobDir, signal: u8, grace: Option<Span>) -> Result<(), ExpectedError> {
    runtime()?
        .block_on(local::cancel(job, i32::from(signal), grace, "herd cancel"))
        .map_err(|error| ExpectedError::failed("cancel the job", error))
}

/// Runs a command inside the job with this process's streams; its exit code.
pub(crate) fn exec(job: &JobDir, place: Place, command: &[String]) -> Result<u8, ExpectedError> {
    let failed = |error: local::ExecError| ExpectedError::failed("enter the job", error);
    let runtime = runtime()?;
    let ended = runtime
        .block_on(local::exec(job, place, command.to_vec()))
        .map_err(failed);
    // The thread that reads the standard input may never come back from it.
    runtime.shutdown_background();
    let ended = ended?;
    match ended.start_error {
        None => Ok(ended.end.code()),
        Some(detail) => Err(ExpectedError::NotStarted {
            detail,
            code: ended.end.code(),
        }),
    }
}

/// Hands the job's merged output to `take` as its driver sends it, from these lengths of its files on.
pub(crate) fn follow(
    job: &JobDir,
    (log, index): (u64, u64),
    take: impl FnMut(Output<'_>) -> ControlFlow<()>,
) -> Result<FollowEnd, ExpectedError> {
    runtime()?
        .block_on(local::follow(job, log, index, take))
        .map_err(|error| ExpectedError::failed("follow the job", error))
}

/// `herd executor`.
pub(crate) fn executor(args: &[OsString]) -> Result<u8, ExpectedError> {
    if herd_runtime::compat::is_asked(args) {
        return Ok(herd_runtime::compat::run(args));
    }
    herd_runtime::entry::executor(args.iter().cloned())
        .map(|()| 0)
        .map_err(|error| ExpectedError::failed("run an executor", error))
}

/// `herd driver HOME JOB [owned]`: the detached driver of `herd submit`.
pub(crate) fn driver(args: &[OsString]) -> Result<u8, ExpectedError> {
    let ([home, job], owned) = match args {
        [home, job] => ([home, job], false),
        [home, job, word] if word == OWNED => ([home, job], true),
        _ => {
            return Err(ExpectedError::failed(
                "run a driver",
                "expected a home and a job id",
            ));
        }
    };
    let home = jobs::open_home(Some(Path::new(home)))?;
    let id = jobs::open(&home, &job.to_string_lossy())?.dir.id();
    // Out of the submitter's terminal, whose end must not reach this process. It fails only for
    // the leader of a group, which has left it already.
    let _leader = rustix::process::setsid();
    let owner = owned
        .then(owner_from_stdin)
        .transpose()
        .map_err(|error| ExpectedError::failed("watch the job's owner", error))?;
    let ended = guard::run(guard::STOPPED_BOUND, || {
        match drive(&home, id, false, None, owner) {
            Ok(result) => result.exit_code,
            Err(error) => {
                drop(std::io::stderr().write_all(error.render(false).as_bytes()));
                error.exit_code()
            }
        }
    });
    let lost = if ended.lost {
        end_lost(&home, id)
    } else {
        None
    };
    Ok(lost.map_or(ended.code, |result| result.exit_code))
}

/// Ends the job of a driver that was lost, in the driver's guard; how it has ended, where that can be
/// written or read.
pub(crate) fn end_lost(home: &Home, id: JobId) -> Option<JobResult> {
    let job = home.open(id).ok()?;
    let now_ms = crate::text::now_ms();
    if let Some(result) = herd_jobdir::finish_lost(&job, now_ms).ok()? {
        return Some(result);
    }
    let detail = "it could not be started".to_owned();
    let unstarted = JobResult {
        state: JobState::Failed,
        rejection: None,
        reason: None,
        failure: Some(Failure::DriverLost { detail }),
        exit_code: herd_core::exit::HERD_FAILED,
        attempts: 1,
        ended_ms: now_ms,
        tasks: None,
    };
    local::end_unstarted(&job, unstarted).ok()?
}

/// `herd rsh`.
pub(crate) fn rsh(args: &[OsString]) -> Result<u8, ExpectedError> {
    herd_runtime::rsh::run(args.iter().cloned())
        .map_err(|error| ExpectedError::failed("run a command on another node", error))
}

/// `herd shim`.
pub(crate) fn shim(args: &[OsString]) -> Result<u8, ExpectedError> {
    herd_runtime::mpi::shim::run(args.iter().cloned())
        .map_err(|error| ExpectedError::failed("run an MPI rank", error))
}
