//! `herd hold`, `release` and `requeue`: what is done to a job in the queue of a cluster.

use std::path::Path;

use herd_backends::slurm::array;
use herd_backends::slurm::record::Record;
use herd_slurm::job::Id;
use herd_slurm::outcome::Condition;

use super::Outcome;
use crate::backend_login;
use crate::backend_slurm::{self, Control};
use crate::cli::query::{QueueArgs, RequeueArgs};
use crate::error::ExpectedError;
use crate::jobs::{self, Job};
use crate::printer::Printer;
use crate::text;

/// Keeps waiting jobs from starting.
pub(crate) fn hold(args: &QueueArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    each(&args.jobs, Control::Hold, home, printer)
}

/// Lets held jobs go.
pub(crate) fn release(args: &QueueArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    each(&args.jobs, Control::Release, home, printer)
}

/// Stops running jobs and queues them again.
pub(crate) fn requeue(args: &RequeueArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let control = if args.hold {
        Control::RequeueHold
    } else {
        Control::Requeue
    };
    each(&args.jobs, control, home, printer)
}

/// Every job is tried, the first failure is returned.
fn each(
    selectors: &[String],
    control: Control,
    home: Option<&Path>,
    printer: &mut Printer,
) -> Outcome {
    let home = jobs::open_home(home)?;
    // A selector that means nothing stops everything before any job is touched.
    let chosen: Vec<_> = selectors
        .iter()
        .map(|selector| jobs::open_active(&home, selector))
        .collect::<Result<_, _>>()?;
    let mut first_failure = None;
    for job in &chosen {
        match one(job, control) {
            Ok(done) => printer.note(&format!("{} {done}", job.short())),
            Err(error) => {
                if let Some(earlier) = first_failure.replace(error) {
                    printer.report(&ExpectedError::render(&earlier, printer.err_color()));
                }
            }
        }
    }
    first_failure.map_or(Ok(0), Err)
}

/// Does it to one job; what was done.
fn one(job: &Job, control: Control) -> Result<&'static str, ExpectedError> {
    let wrong = |problem: &str, hint: String| ExpectedError::WrongState {
        job: job.short(),
        problem: problem.to_owned(),
        hint: Some(hint),
    };
    if job.is_ended() {
        let problem = format!("has ended already: {}", job.state_text());
        return Err(wrong(
            &problem,
            "submit it again; its job file is `job.yaml` in its directory".to_owned(),
        ));
    }
    if let Some(record) = &job.login {
        let (words, what): (&[&str], _) = match control {
            Control::Hold => (&["hold"], "hold the job"),
            Control::Release => (&["release"], "release the job"),
            Control::Requeue => (&["requeue"], "requeue the job"),
            Control::RequeueHold => (&["requeue", "--hold"], "requeue the job"),
        };
        backend_login::control(&job.dir, record, words, what)?;
        return Ok(done(control));
    }
    let Some(record) = &job.slurm else {
        return Err(wrong(
            "runs on this machine, which holds and requeues no jobs: only a cluster does",
            format!("`herd cancel {}` ends it", job.short()),
        ));
    };
    if !record.parts.is_empty() {
        return tasks(job, record, control, &wrong);
    }
    let condition = job.observed.as_ref().map(|view| view.condition);
    let waits = matches!(condition, Some(Condition::Pending { .. }));
    let has_nodes = matches!(
        condition,
        Some(Condition::Starting | Condition::Running | Condition::Suspended)
    );
    match control {
        Control::Hold if has_nodes => Err(wrong(
            "runs already, and only a job that waits can be held",
            format!(
                "`herd requeue --hold {}` stops it and holds it",
                job.short()
            ),
        )),
        Control::Release if has_nodes => Err(wrong(
            "runs already",
            format!("`herd status {}` shows it", job.short()),
        )),
        Control::Requeue | Control::RequeueHold if waits => Err(wrong(
            "waits in the queue already",
            format!("`herd why {}` tells what for", job.short()),
        )),
        control => {
            note(job, control)?;
            backend_slurm::control(record, job.is_unanswered(), &[Id::job(record.job)], control)?;
            Ok(done(control))
        }
    }
}

/// Does it to the tasks of a job that are Slurm's: what waits is held or let go, what runs is requeued.
fn tasks(
    job: &Job,
    record: &Record,
    control: Control,
    wrong: &dyn Fn(&str, String) -> ExpectedError,
) -> Result<&'static str, ExpectedError> {
    let of_those_that_wait = matches!(control, Control::Hold | Control::Release);
    let wanted = |condition| match condition {
        Condition::Pending { .. } => of_those_that_wait,
        Condition::Running | Condition::Suspended => !of_those_that_wait,
        _ => false,
    };
    let chosen = array::select(&job.tasks_observed, wanted);
    if chosen.is_empty() && !job.is_unanswered() {
        let what = if of_those_that_wait { "waits" } else { "runs" };
        return Err(wrong(
            &format!("has no task that {what}"),
            format!("`herd status {}` counts its tasks", job.short()),
        ));
    }
    note(job, control)?;
    backend_slurm::control(record, job.is_unanswered(), &chosen, control)?;
    Ok(match control {
        Control::Hold => "starts no more tasks; `herd release` lets them go",
        Control::Release => "may start its tasks when their turn comes",
        Control::Requeue => "stops the tasks that run, and they are queued again",
        Control::RequeueHold => "stops the tasks that run, and they are queued again and held",
    })
}

/// Tells the drivers that are about to be ended whose wish it is.
fn note(job: &Job, control: Control) -> Result<(), ExpectedError> {
    if !matches!(control, Control::Requeue | Control::RequeueHold) {
        return Ok(());
    }
    let noted = job.dir.note_requeue("herd requeue", text::now_ms());
    noted.map_err(|error| ExpectedError::failed("write the request down", error))
}

fn done(control: Control) -> &'static str {
    match control {
        Control::Hold => "is held; `herd release` lets it go",
        Control::Release => "may start when its turn comes",
        Control::Requeue => "stops and is queued again",
        Control::RequeueHold => "stops, is queued again and held",
    }
}
