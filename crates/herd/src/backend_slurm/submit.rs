//! From a job to Slurm.

use std::collections::BTreeMap;
use std::path::Path;

use herd_backends::slurm::CommandError;
use herd_backends::slurm::record::Record;
use herd_backends::slurm::submit::{self, Submission, SubmitError};
use herd_backends::slurm::submitting::{self, Submitting, TakeUpError, TakenUp};
use herd_core::JobId;
use herd_core::plan::{Plan, Unsupported};
use herd_core::spec::SlurmOptions;
use herd_jobdir::{Home, JobDir};
use herd_slurm::sbatch::Refusal;

use super::after::dependencies;
use super::stage::{look_after, staged};
use super::{node_program, patiently, user_name};
use crate::backend_local::runtime;
use crate::backends::{Place, SlurmPlace};
use crate::error::{self, ExpectedError, Fault};
use crate::job_input::{JobInput, refusal};

/// Hands a job to Slurm; its id here, and Slurm's number.
pub(crate) fn submit(home: &Home, input: &JobInput) -> Result<(JobId, Record), ExpectedError> {
    let here = std::env::current_dir().ok();
    submit_as(home, input, JobId::generate(), here.as_deref())
}

/// The same with an id that was chosen before, and the directory that the user is in, where that is a
/// directory of this machine.
pub(crate) fn submit_as(
    home: &Home,
    input: &JobInput,
    id: JobId,
    submit_dir: Option<&Path>,
) -> Result<(JobId, Record), ExpectedError> {
    let mut plan = input.plan(id)?;
    let place = place(input)?;
    let staged = staged(input, place)?;
    let workdir = staged.as_ref().and_then(|staged| staged.workdir.clone());
    if let Some(staged) = &staged {
        plan.workdir = staged.there_workdir();
    }
    let yaml = input.job_yaml();
    let after = dependencies(home, &plan)?;
    let options = input.spec.slurm.clone().unwrap_or_default();
    let image = input.spec.image.clone();
    let program = node_program()?;
    let user = user_name();
    let submission = Submission {
        job_yaml: &yaml,
        secrets: input.secrets.values(),
        options: &options,
        image: image.as_deref(),
        after: &after,
        program: &program,
        user: &user,
        staged_to: staged.as_ref().map(|staged| staged.there.as_str()),
        workdir: workdir.as_deref(),
        submit_dir: submit_dir.filter(|_| staged.is_none()),
    };
    let (id, apart) = (plan.job, plan.tasks_apart);
    let submitting = submit::submit(home, plan, &submission, &place.cluster, &place.facts);
    let submitted = patiently(&runtime()?, submitting);
    match submitted {
        Ok((job, record)) => {
            look_after(&job, &record)?;
            Ok((id, record))
        }
        Err(SubmitError::Unsupported(refused)) => Err(refusals(&refused)),
        Err(SubmitError::Refused { refusal, text }) => {
            let mut key = refusal.key();
            let mut short = "`herd render` shows the script that Slurm was given";
            if apart && refusal == Refusal::Limit {
                key = Some("array");
                short = "each task counts as a job: use fewer tasks, or run them in one allocation, \
                         `slurm: {allocation: job}`";
            }
            let fault = Fault {
                key: key.map(str::to_owned),
                ..Fault::new(format!("sbatch says: {text}"))
            };
            Err(ExpectedError::Faults {
                file: None,
                faults: vec![fault.hint(short)],
            })
        }
        Err(error) => Err(ExpectedError::failed("hand the job to Slurm", error)),
    }
}

/// Ends what a submission has begun whose process is gone.
pub(crate) fn take_up(job: &JobDir, left: &Submitting) -> Result<TakenUp, TakeUpError> {
    let user = user_name();
    let cluster = left.on();
    let taken = submitting::take_up(job, left, &cluster, &user);
    match runtime() {
        Ok(runtime) => patiently(&runtime, taken),
        Err(_) => Err(CommandError::Silent.into()),
    }
}

/// What Slurm has of a job whose submission broke off, which nobody does any more.
pub(crate) fn find_again(job: &JobDir) -> Result<Option<Record>, ExpectedError> {
    let left = Submitting::read(job);
    let left = left.map_err(|error| ExpectedError::failed("read the job", error))?;
    let found = left.map(|left| take_up(job, &left)).transpose();
    match found.map_err(|error| ExpectedError::failed("look for the job in Slurm", error))? {
        Some(TakenUp::Has(record)) => Ok(Some(record)),
        Some(TakenUp::Nothing) => Ok(None),
        None => Record::read(job).map_err(|error| ExpectedError::failed("read the job", error)),
    }
}

/// The batch script of a job.
pub(crate) fn script(home: &Home, input: &JobInput, plan: &Plan) -> Result<String, ExpectedError> {
    let place = place(input)?;
    let after = dependencies(home, plan)?;
    let none = SlurmOptions::default();
    let program = node_program()?;
    let staged = staged(input, place)?;
    let submission = Submission {
        job_yaml: b"",
        secrets: &BTreeMap::new(),
        options: input.spec.slurm.as_ref().unwrap_or(&none),
        image: input.spec.image.as_deref(),
        after: &after,
        program: &program,
        user: "",
        staged_to: staged.as_ref().map(|staged| staged.there.as_str()),
        workdir: None,
        submit_dir: None,
    };
    let scripts = submit::render(home, plan, &submission, &place.facts);
    let scripts = scripts.map_err(|refused| refusals(&refused))?;
    let others = scripts.len().saturating_sub(1);
    let mut script = scripts.into_iter().next().unwrap_or_default();
    if others > 0 {
        let count = error::count(others, "more script");
        let note = "# The cluster takes no array as large; for the tasks after these it gets";
        script = format!("{script}{note} {count} like this one.\n");
    }
    Ok(script)
}

fn place(input: &JobInput) -> Result<&SlurmPlace, ExpectedError> {
    match &input.place {
        Place::Slurm(place) => Ok(place),
        Place::Local | Place::Login(_) => Err(ExpectedError::failed(
            "hand the job to Slurm",
            "its backend is another",
        )),
    }
}

fn refusals(refused: &[Unsupported]) -> ExpectedError {
    ExpectedError::Faults {
        file: None,
        faults: refused.iter().map(refusal).collect(),
    }
}
