//! Jobs on nodes that do not see the directory for jobs, and the process that stages them.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use herd_backends::slurm::record::Record;
use herd_backends::slurm::staging::here;
use herd_core::JobId;
use herd_jobdir::JobDir;
use herd_link::Key;
use herd_slurm::staging;

use super::node_program;
use crate::backends::SlurmPlace;
use crate::error::ExpectedError;
use crate::job_input::JobInput;
use crate::jobs;
use crate::text;

/// A job on nodes that do not see the directory for jobs.
pub(super) struct Staged {
    /// Its directory on each of them, whose name nobody else can know beforehand.
    pub(super) there: String,
    /// The directory here that is taken along.
    pub(super) workdir: Option<PathBuf>,
}

impl Staged {
    pub(super) fn there_workdir(&self) -> String {
        format!("{}/{}", self.there, staging::WORK)
    }
}

/// How a job is staged, where it has to be. A working directory that is asked for goes along; the one that
/// somebody just happens to be in does not, which may be a whole home.
pub(super) fn staged(
    input: &JobInput,
    place: &SlurmPlace,
) -> Result<Option<Staged>, ExpectedError> {
    let Some(node_dir) = &place.node_dir else {
        return Ok(None);
    };
    let name = Key::generate().map_err(|error| ExpectedError::failed("choose a name", error))?;
    let name = name.to_hex();
    let name = name.get(..16).unwrap_or_default();
    Ok(Some(Staged {
        there: format!("{}/herd-{name}", node_dir.display()),
        workdir: input
            .workdir_given
            .then(|| input.spec.workdir.clone())
            .flatten()
            .map(PathBuf::from),
    }))
}

/// Sees to it that a process stages a job that has not ended, where its nodes need it.
pub(crate) fn look_after(job: &JobDir, record: &Record) -> Result<(), ExpectedError> {
    if record.staged_to.is_none() || here::is_staged(job) {
        return Ok(());
    }
    let failed = |error: std::io::Error| ExpectedError::failed("start what stages the job", error);
    let home = job.path().ancestors().nth(2).unwrap_or_else(|| job.path());
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(job.path().join("stage.log"))
        .map_err(failed)?;
    // Not waited for: it leaves this session and lives as long as the job.
    std::process::Command::new(std::env::current_exe().map_err(failed)?)
        .arg("stage")
        .arg(home)
        .arg(job.id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(failed)?;
    Ok(())
}

/// `herd stage HOME JOB`: stages a job until it has ended.
pub(crate) fn stage(args: &[OsString]) -> Result<u8, ExpectedError> {
    let [home, job] = args else {
        return Err(ExpectedError::failed(
            "stage a job",
            "expected a home and a job id",
        ));
    };
    let _leader = rustix::process::setsid();
    let home = jobs::open_home(Some(Path::new(home)))?;
    let id = job.to_string_lossy().parse::<JobId>();
    let id = id.map_err(|_bad| ExpectedError::failed("stage a job", "that is no id"))?;
    let dir = home
        .open(id)
        .map_err(|error| ExpectedError::failed("open the job", error))?;
    let tell = |text: &str| drop(writeln!(std::io::stderr(), "{} {text}", text::now_ms()));
    here::run(&dir, &node_program()?, tell)
        .map(|()| 0)
        .map_err(|error| ExpectedError::failed("stage the job", error))
}
