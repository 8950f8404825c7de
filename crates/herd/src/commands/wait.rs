//! `herd wait`: until jobs have ended.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Outcome, interrupt};
use crate::backend_login;
use crate::cli::query::WaitArgs;
use crate::error::ExpectedError;
use crate::jobs::{self, Job};
use crate::printer::Printer;
use crate::watch::{BOUND, Watch};

/// Time between looks at whether a driver still lives.
const LOOK: Duration = Duration::from_secs(1);

/// Waits for every job; the first exit code other than 0, in the order given.
pub(crate) fn run(args: &WaitArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let timeout = args
        .timeout
        .as_deref()
        .map(|value| jobs::span_option("--timeout", value))
        .transpose()?;
    let home = jobs::open_home(home)?;
    let mut waiting: Vec<Job> = args
        .jobs
        .iter()
        .map(|selector| jobs::open(&home, selector))
        .collect::<Result<_, _>>()?;
    let deadline = timeout.and_then(|span| Instant::now().checked_add(span.as_duration()));
    let watch = Watch::new();
    for job in &waiting {
        watch.add_names(job.dir.path());
        if job.is_ended() {
            say(job, printer);
        }
    }
    if waiting.iter().any(|job| !job.is_ended()) {
        interrupt::tell("herd: the jobs go on; `herd cancel JOB` ends one".to_owned());
    }
    backend_login::follow(&waiting.iter().collect::<Vec<_>>(), false);
    let mut looked = Instant::now();
    loop {
        let look = looked.elapsed() >= LOOK;
        if look {
            looked = Instant::now();
        }
        for job in waiting.iter_mut().filter(|job| !job.is_ended()) {
            // The result is one small file; the whole status is read for news, and now and then
            // because a driver may have died without one.
            let settled = matches!(job.dir.read_result(), Ok(Some(_)) | Err(_));
            if !settled && !look {
                continue;
            }
            *job = jobs::read(job.dir.clone())?;
            if job.is_ended() {
                say(job, printer);
            }
        }
        let running = waiting.iter().filter(|job| !job.is_ended()).count();
        if running == 0 {
            break;
        }
        let left = deadline.map_or(Duration::MAX, |end| {
            end.saturating_duration_since(Instant::now())
        });
        if left.is_zero() {
            let after = args.timeout.clone().unwrap_or_default();
            return Err(ExpectedError::WaitTimeout { running, after });
        }
        watch.wait(left.min(BOUND));
    }
    let codes = waiting
        .iter()
        .map(|job| job.status.brief.exit_code.unwrap_or(0));
    Ok(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
}

/// How a job ended, and why.
fn say(job: &Job, printer: &mut Printer) {
    printer.note(&format!("{} {}", job.short(), job.state_text()));
}
