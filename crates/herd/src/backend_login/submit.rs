//! Hands a job over: written down here first, so that it is known whatever becomes of the connection;
//! then its directory of work; then the job, as often as it takes to hear that it has arrived.

use std::time::{Duration, Instant};

use herd_core::JobId;
use herd_core::plan::Plan;
use herd_core::spec::Command;
use herd_jobdir::{Durability, Home, JobDir, Summary};
use herd_login::mirror::Record;
use herd_login::protocol::{Reply, Request, Secrets, Submitted, receive, send};
use herd_login::{LoginError, workdir};

use super::{ANSWER_BOUND, LoginPlace, failed, refused};
use crate::error::ExpectedError;
use crate::job_input::JobInput;
use crate::printer::Printer;
use crate::text;

/// How long a connection that broke is tried again.
const RETRY_BOUND: Duration = Duration::from_mins(2);
/// Pauses between tries: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// Hands the job over; its id.
pub(crate) fn submit(
    home: &Home,
    place: &LoginPlace,
    input: &JobInput,
    printer: &mut Printer,
) -> Result<JobId, ExpectedError> {
    let id = place.id;
    let plan = input.plan(id)?;
    let mut record = Record {
        backend: place.name.clone(),
        target: place.target.clone(),
        submitted_ms: text::now_ms(),
        number: None,
    };
    let dir = write_down(home, &plan, input, &record)
        .map_err(|error| ExpectedError::failed("take the job", error))?;
    let what = format!("hand the job to {}", place.target.host);
    let handed = retried(|| send_workdir(place)).and_then(|reply| match reply {
        Ok(()) => retried(|| place.ask(&request(place, input))),
        Err(refusal) => Ok(Err(refusal)),
    });
    let submitted: Submitted = match handed {
        Ok(Ok(submitted)) => submitted,
        Ok(Err(refusal)) => {
            // It was not taken, and nobody is to wait for it.
            let forgotten = dir.discard();
            forgotten.map_err(|error| ExpectedError::failed("forget the job", error))?;
            return Err(refused(what, refusal));
        }
        Err(error) => {
            let mut error = failed(what, error);
            if let ExpectedError::Login { hints, .. } = &mut error {
                hints.push(format!(
                    "it may have arrived all the same: `herd status {}` asks when the connection is back",
                    id.short()
                ));
            }
            return Err(error);
        }
    };
    record.number = Some(submitted.number);
    record
        .write(&dir)
        .map_err(|error| ExpectedError::failed("keep the job's record", error))?;
    printer.note(&format!(
        "{} is job {} of Slurm, on {}",
        id.short(),
        submitted.number,
        place.target.host
    ));
    Ok(id)
}

fn request(place: &LoginPlace, input: &JobInput) -> Request {
    Request::Submit {
        job: place.job(input),
        secrets: Secrets(input.secrets.values().clone()),
        job_yaml: String::from_utf8_lossy(&input.job_yaml()).into_owned(),
    }
}

fn send_workdir(place: &LoginPlace) -> Result<Reply<()>, LoginError> {
    place.with(|channel| {
        send(channel, &Request::Workdir { job: place.id })?;
        match workdir::send(&place.tree, channel) {
            Ok(()) => receive(channel, ANSWER_BOUND),
            // A side that takes no more has its reason, and said it.
            Err(error) => receive(channel, Duration::from_secs(5)).map_err(|_silent| error),
        }
    })
}

/// Does it again while the connection breaks, with growing pauses.
fn retried<T>(mut action: impl FnMut() -> Result<T, LoginError>) -> Result<T, LoginError> {
    let deadline = Instant::now() + RETRY_BOUND;
    let mut pause = PAUSE.0;
    loop {
        match action() {
            Err(error) if error.may_pass() && Instant::now() + pause < deadline => {
                wait(pause);
                pause = (pause * 2).min(PAUSE.1);
            }
            done => return done,
        }
    }
}

/// Waits for this long, whoever wakes the thread.
pub(super) fn wait(pause: Duration) {
    let until = Instant::now() + pause;
    while let Some(left) = until
        .checked_duration_since(Instant::now())
        .filter(|l| !l.is_zero())
    {
        std::thread::park_timeout(left);
    }
}

fn write_down(
    home: &Home,
    plan: &Plan,
    input: &JobInput,
    record: &Record,
) -> Result<JobDir, herd_jobdir::JobDirError> {
    let dir = home.create(plan.job)?;
    record.write(&dir)?;
    dir.write_job_yaml(&input.job_yaml(), Durability::Process)?;
    let command = match &plan.run {
        Some(Command::Shell(text)) => text.lines().next().unwrap_or_default().to_owned(),
        Some(Command::Argv(words)) => words.join(" "),
        None => String::new(),
    };
    dir.write_summary(&Summary {
        name: plan.name.clone(),
        job_type: plan.job_type,
        nodes: plan.nodes,
        created_ms: plan.job.created_ms().unwrap_or(0),
        backend: plan.backend.clone(),
        command,
    })?;
    Ok(dir)
}
