//! `herd submit`: hand a job over, print its id, return.

use std::path::Path;

use serde::Serialize;

use herd_core::JobId;
use herd_jobdir::Home;

use super::Outcome;
use crate::backends::Place;
use crate::cli::job::SubmitArgs;
use crate::cli::query::LogsArgs;
use crate::error::ExpectedError;
use crate::job_input::JobInput;
use crate::jobs;
use crate::printer::Printer;
use crate::{backend_local, backend_login, backend_slurm};

/// The answer.
#[derive(Debug, Serialize)]
struct Submitted {
    id: String,
    short: String,
    backend: String,
}

/// Hands a job to its backend. On this machine it is cancelled when the process `owner` ends.
pub(super) fn hand_over(
    home: &Home,
    input: JobInput,
    owner: Option<i32>,
    printer: &mut Printer,
) -> Result<JobId, ExpectedError> {
    match &input.place {
        Place::Local => {
            let owner = owner.map(backend_local::end_of).transpose()?;
            backend_local::submit(home, input, owner)
        }
        Place::Login(login) => backend_login::submit(home, login, &input, printer),
        Place::Slurm(place) => {
            let shared = place.node_dir.is_none();
            if let Some(warning) = backend_slurm::home_warning(home).filter(|_| shared) {
                printer.warn(&warning);
            }
            let (id, record) = backend_slurm::submit(home, &input)?;
            let numbers: Vec<String> = record.numbers().iter().map(u32::to_string).collect();
            let what = match record.parts.len() {
                0 => "job",
                1 => "array",
                _ => "arrays",
            };
            let numbers = numbers.join(", ");
            printer.note(&format!("{} is {what} {numbers} of Slurm", id.short()));
            Ok(id)
        }
    }
}

/// Submits, and follows where asked.
pub(crate) fn run(args: &SubmitArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let input = crate::job_input::read(&args.job, home)?;
    super::run::say(&input, printer);
    let home_dir = jobs::open_home(home)?;
    let backend = input.backend.clone();
    let id = hand_over(&home_dir, input, args.while_process, printer)?;
    let submitted = Submitted {
        id: id.to_string(),
        short: id.short(),
        backend,
    };
    printer.one(&submitted, &submitted.id, args.output.output, |_look| {
        format!("{}\n", submitted.id)
    })?;
    printer.flush();
    if !args.follow {
        return Ok(0);
    }
    let logs = LogsArgs {
        job: submitted.id.clone(),
        follow: true,
        live: false,
        rank: None,
        node: None,
        since: None,
        tail: None,
        grep: None,
        stream: None,
        task: None,
        raw: false,
        prefix: None,
    };
    super::logs::run(&logs, home, printer)?;
    let job = jobs::open(&home_dir, &submitted.id)?;
    let result = job
        .dir
        .read_result()
        .map_err(|error| ExpectedError::failed("read how the job ended", error))?;
    // Without a result the reader of standard output left before the end.
    Ok(result.map_or(0, |result| {
        // All output went to standard output, and the report goes to standard error.
        super::run::report(&job, &result, false, printer)
    }))
}
