//! What is asked about a job that is to be handed over.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use herd_backends::slurm::cluster::Cluster;
use herd_backends::slurm::record::Record;
use herd_core::JobId;
use herd_core::text::error_line;
use herd_jobdir::Home;
use herd_login::protocol::{Checked, Fault, Job, Refusal, Reply, Submitted};
use rustix::fs::{FlockOperation, flock};

use super::refused;
use crate::backend_slurm;
use crate::backends::{Place, SlurmPlace};
use crate::error::{self, ExpectedError};
use crate::job_input::JobInput;

/// How long another submission of the same job may take: it broke off, or is still being answered.
const LOCK_BOUND: Duration = Duration::from_mins(1);
/// Time between tries.
const LOCK_LOOK: Duration = Duration::from_millis(50);
/// Directories of work whose jobs are gone are kept this long: a job may be about to come.
const KEEP: Duration = Duration::from_hours(24);

/// The plan of a job.
pub(super) fn check(job: Job) -> Reply<Checked> {
    let id = job.id;
    let input = received(job, BTreeMap::new(), None)?;
    let faults = input.refusals();
    if !faults.is_empty() {
        return Err(of_faults(&faults));
    }
    let plan = input.plan(id).map_err(|error| of_error(&error))?;
    let notes = input.plan_notes();
    Ok(Checked { plan, notes })
}

/// The batch script of a job.
pub(super) fn render(home: &Home, job: Job) -> Reply<String> {
    let id = job.id;
    let input = received(job, BTreeMap::new(), None)?;
    let plan = input.plan(id).map_err(|error| of_error(&error))?;
    backend_slurm::script(home, &input, &plan).map_err(|error| of_error(&error))
}

/// Hands a job to Slurm, once however often it is asked for (I2).
pub(super) fn submit(
    home: &Home,
    job: Job,
    secrets: BTreeMap<String, String>,
    yaml: String,
) -> Reply<Submitted> {
    let id = job.id;
    let lock = home.path().join("submitting");
    let locked = hold(&lock, id).map_err(|error| refused(&format!("lock the job: {error}")))?;
    let submitted = submit_once(home, id, || received(job, secrets, Some(yaml)));
    drop(std::fs::remove_file(lock.join(id.to_string())));
    drop(locked);
    submitted.map(|record| Submitted { number: record.job })
}

fn submit_once(home: &Home, id: JobId, input: impl FnOnce() -> Reply<JobInput>) -> Reply<Record> {
    let failed = |error: &ExpectedError| of_error(error);
    if let Ok(dir) = home.open(id) {
        // Whoever began it is gone, since the lock is ours.
        if let Some(record) = backend_slurm::find_again(&dir).map_err(|e| failed(&e))? {
            return Ok(record);
        }
        let cleared = dir.discard();
        cleared.map_err(|error| failed(&ExpectedError::failed("begin the job anew", error)))?;
    }
    let (_, record) =
        backend_slurm::submit_as(home, &input()?, id, None).map_err(|e| failed(&e))?;
    Ok(record)
}

/// The lock of one job's submission, until the file is closed.
fn hold(directory: &PathBuf, id: JobId) -> io::Result<std::fs::File> {
    private(directory)?;
    let path = directory.join(id.to_string());
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    let deadline = Instant::now() + LOCK_BOUND;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::park_timeout(LOCK_LOOK);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another submission of it goes on"));
            }
            // A file system without locks: the job's owner file is what is left (I2).
            Err(_) => return Ok(file),
        }
    }
}

/// Where a job's directory of work is to be. Those of jobs that are gone are removed.
pub(super) fn workdir(home: &Home, id: JobId) -> io::Result<PathBuf> {
    let all = home.path().join("workdirs");
    private(&all)?;
    for entry in std::fs::read_dir(&all)?.flatten() {
        let name = entry.file_name();
        let job = name.to_str().and_then(|name| name.parse::<JobId>().ok());
        let is_old = entry
            .metadata()
            .and_then(|meta| meta.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > KEEP));
        if is_old && job.is_none_or(|job| home.open(job).is_err()) {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
    Ok(all.join(id.to_string()))
}

fn private(directory: &PathBuf) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn received(job: Job, secrets: BTreeMap<String, String>, yaml: Option<String>) -> Reply<JobInput> {
    let cluster = Cluster::named(job.cluster.clone());
    let facts = backend_slurm::facts(&cluster).map_err(|error| Refusal {
        hints: vec![format!("`herd doctor -b {}` looks closer", job.backend)],
        ..refused(&error_line(&error))
    })?;
    let place = SlurmPlace {
        name: job.backend.clone(),
        cluster,
        facts,
        node_dir: job.node_dir.clone(),
    };
    Ok(JobInput::received(
        job,
        Place::Slurm(Box::new(place)),
        secrets,
        yaml,
    ))
}

fn of_faults(faults: &[error::Fault]) -> Refusal {
    Refusal {
        text: error::count(faults.len(), "fault"),
        hints: Vec::new(),
        faults: faults
            .iter()
            .map(|fault| Fault {
                key: fault.key.clone(),
                text: fault.text.clone(),
                hint: fault.hint.clone(),
            })
            .collect(),
        code: herd_core::exit::USAGE,
    }
}

fn of_error(error: &ExpectedError) -> Refusal {
    match error {
        ExpectedError::Faults { faults, .. } => of_faults(faults),
        other => Refusal {
            text: error_line(other),
            hints: other.hints(),
            faults: Vec::new(),
            code: other.exit_code(),
        },
    }
}
