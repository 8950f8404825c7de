//! Writes a job down so that a driver can run it: all that is refused is refused here (I13).

use std::collections::BTreeMap;

use herd_core::JobId;
use herd_core::plan::Plan;
use herd_core::spec::Command;
use herd_jobdir::{Home, JobDir, JobDirError, Summary};
use herd_link::Key;
use thiserror::Error;

use super::DURABILITY;

/// A job that was written down.
#[derive(Debug)]
pub struct Submitted {
    /// Its id.
    pub id: JobId,
    /// Its directory.
    pub dir: JobDir,
    /// The plan of its first attempt.
    pub plan: Plan,
}

/// Why a job was not taken.
#[derive(Debug, Error)]
pub enum SubmitError {
    /// The key could not be made.
    #[error("could not make the job's key")]
    Key(#[source] herd_link::LinkError),
    /// The job directory could not be written.
    #[error("could not write the job down")]
    Records(#[from] JobDirError),
}

/// Writes the job down. Nothing runs yet.
pub fn submit(
    home: &Home,
    job_yaml: &[u8],
    plan: Plan,
    secrets: &BTreeMap<String, String>,
) -> Result<Submitted, SubmitError> {
    let id = plan.job;
    let dir = home.create(id)?;
    match write(&dir, job_yaml, &plan, secrets) {
        Ok(()) => Ok(Submitted { id, dir, plan }),
        Err(error) => {
            // Half a job would be listed for ever; that it could not be taken is what counts.
            drop(dir.discard());
            Err(error)
        }
    }
}

fn write(
    dir: &JobDir,
    job_yaml: &[u8],
    plan: &Plan,
    secrets: &BTreeMap<String, String>,
) -> Result<(), SubmitError> {
    let key = Key::generate().map_err(SubmitError::Key)?;
    dir.require_room()?;
    dir.write_key(&key.to_hex())?;
    if !secrets.is_empty() {
        dir.write_secrets(secrets)?;
    }
    dir.write_job_yaml(job_yaml, DURABILITY)?;
    let attempt = dir.attempt(plan.attempt);
    attempt.create()?;
    attempt.write_plan(plan, DURABILITY)?;
    dir.write_summary(&Summary {
        name: plan.name.clone(),
        job_type: plan.job_type,
        nodes: plan.nodes,
        created_ms: plan.job.created_ms().unwrap_or(0),
        backend: plan.backend.clone(),
        command: plan.run.as_ref().map(command_text).unwrap_or_default(),
    })?;
    Ok(())
}

fn command_text(command: &Command) -> String {
    match command {
        Command::Shell(text) => text.lines().next().unwrap_or_default().to_owned(),
        Command::Argv(words) => words.join(" "),
    }
}
