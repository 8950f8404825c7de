//! `herd driver --slurm HOME JOB`, the last line of a batch script: from its arguments to its exit code.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use herd_core::text::error_report;
use herd_core::{JobId, exit};
use herd_jobdir::{Home, JobDirError};
use herd_runtime::guard;
use thiserror::Error;

use super::allocation::{Allocation, AllocationError};
use super::drive::{self, DriveError, DriveOptions, Driven};
use super::record::Site;
use super::staging::NodeSide;

/// First argument of a driver that is for Slurm.
pub const FLAG: &str = "--slurm";

/// Why no job could be driven.
#[derive(Debug, Error)]
enum EntryError {
    #[error(
        "expected the directory of all jobs, a job's id, and for a task of an array what to add to \
         Slurm's index, after {FLAG}"
    )]
    Usage,
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    #[error("cannot open the job")]
    Job(#[source] JobDirError),
    #[error("cannot find this program itself")]
    Program(#[source] std::io::Error),
    #[error("cannot start the event loop")]
    Runtime(#[source] std::io::Error),
    #[error(transparent)]
    Drive(#[from] DriveError),
}

/// Runs the driver in this process, which must have no other thread yet; the code to exit with.
pub fn driver(args: &[OsString]) -> u8 {
    let driven = guard::run(guard::STOPPED_BOUND, || match run(args) {
        Ok(code) => code,
        Err(error) => {
            say(&error_report(&error));
            match error {
                EntryError::Usage => exit::USAGE,
                _ => exit::HERD_FAILED,
            }
        }
    });
    driven.code
}

fn run(args: &[OsString]) -> Result<u8, EntryError> {
    let (home, job, offset) = match args {
        [home, job] => (home, job, None),
        [home, job, offset] => (home, job, Some(offset)),
        _ => return Err(EntryError::Usage),
    };
    let id: JobId = job
        .to_str()
        .and_then(|text| text.parse().ok())
        .ok_or(EntryError::Usage)?;
    let allocation = Allocation::from_environment(&|name| std::env::var_os(name))?;
    let task = match offset {
        Some(offset) => Some(index(offset, &allocation).ok_or(EntryError::Usage)?),
        None => None,
    };
    keep_private();
    let home = Home::at(Path::new(home)).map_err(EntryError::Job)?;
    let job = home.open(id).map_err(EntryError::Job)?;
    let site = Site::read(&job).map_err(EntryError::Job)?;
    let program = std::env::current_exe().map_err(EntryError::Program)?;
    let options = DriveOptions {
        executor: vec![
            program.to_string_lossy().into_owned(),
            "executor".to_owned(),
        ],
        staged: site.staged.then(|| NodeSide::of(&home)),
        warn: |text| say(&format!("herd: warning: {text}\n")),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(EntryError::Runtime)?;
    let driven = runtime.block_on(drive::drive(&job, task, &allocation, &options));
    // A look-up of a name may still wait for an answer.
    runtime.shutdown_background();
    Ok(match driven? {
        Driven::Ended(result) => {
            say(&format!(
                "herd: job {} {} with exit code {}\n",
                id.short(),
                result.state,
                result.exit_code
            ));
            result.exit_code
        }
        Driven::Again => exit::SUCCESS,
        Driven::NotOurs { why } => {
            say(&format!(
                "herd: this run of job {} does nothing: {why}\n",
                id.short()
            ));
            exit::SUCCESS
        }
    })
}

/// The index in the job file of the task that the allocation is for.
fn index(offset: &OsString, allocation: &Allocation) -> Option<u32> {
    let offset: u32 = offset.to_str()?.parse().ok()?;
    allocation.task?.task?.checked_add(offset)
}

/// Slurm makes the batch script's output by the user's umask; nobody else is to read it, as with all that is
/// in the job's directory.
fn keep_private() {
    let own = std::io::stdout();
    let is_file = |stat: &rustix::fs::Stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile
    };
    if rustix::fs::fstat(&own).is_ok_and(|stat| is_file(&stat)) {
        let _unless_it_is_somebody_elses =
            rustix::fs::fchmod(&own, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    }
}

/// The batch script's output may be on a full disk.
fn say(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}
