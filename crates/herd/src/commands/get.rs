//! `herd get`: what a job has left in its directory of work, where that is not on this machine.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use herd_backends::slurm::staging::left::{self, Left};

use super::Outcome;
use crate::backend_login;
use crate::cli::query::GetArgs;
use crate::error::ExpectedError;
use crate::jobs::{self, Job};
use crate::printer::Printer;
use crate::text;

/// Copies the directory here.
pub(crate) fn run(args: &GetArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let home = jobs::open_home(home)?;
    let job = jobs::open(&home, &args.job)?;
    if job.login.is_none() && !job.is_staged() {
        let plan = job.dir.attempt(1).read_plan().ok().flatten();
        let place = plan.map_or_else(String::new, |plan| format!(": {}", plan.workdir));
        return Err(ExpectedError::WrongState {
            job: job.short(),
            problem: format!("works where it was handed in{place}"),
            hint: None,
        });
    }
    let name = job.summary.as_ref().map_or("job", |summary| &summary.name);
    let to = args
        .to
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{name}-{}", job.short())));
    if to.exists() {
        return Err(ExpectedError::BadOption {
            option: "DIR",
            value: to.display().to_string(),
            source: "it is there already; nothing is written over".into(),
        });
    }
    let bytes = match &job.login {
        Some(record) => backend_login::get(&job.dir, record, &to)?,
        None => unpack(&job, &to)?,
    };
    if !job.is_ended() {
        printer.note(&format!("{} has not ended", job.short()));
    }
    printer.note(&format!("{} in {}", text::size(bytes), to.display()));
    Ok(0)
}

/// Unpacks what came back from a job's first node.
fn unpack(job: &Job, to: &Path) -> Result<u64, ExpectedError> {
    let archive = archive(job)?;
    let failed = |error| ExpectedError::failed("unpack what the job has left", error);
    let file = File::open(&archive).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    herd_workdir::unpack(BufReader::new(file), to).map_err(failed)?;
    Ok(bytes)
}

/// The archive of a job's directory of work, or why there is none.
pub(crate) fn archive(job: &Job) -> Result<PathBuf, ExpectedError> {
    let (problem, hint) = match left::of(&job.dir) {
        Left::Here(archive) => return Ok(archive),
        Left::Not(why) => (format!("has left a directory of work that does not come back: {why}"), None),
        Left::Unsaid if job.is_ended() => (
            "has ended without its directory of work coming back: it never began, its node is lost, or Slurm \
             ended it before it could be sent"
                .to_owned(),
            Some("what has to outlive a node belongs on a file system of the cluster".to_owned()),
        ),
        Left::Unsaid => (
            "has not ended, and its directory of work comes back when it has".to_owned(),
            Some(format!("`herd wait {}` waits for that", job.short())),
        ),
    };
    Err(ExpectedError::WrongState {
        job: job.short(),
        problem,
        hint,
    })
}
