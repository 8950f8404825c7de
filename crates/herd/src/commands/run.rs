//! `herd run`: run a job in the foreground and end with its exit code.

use std::path::Path;
use std::sync::Arc;

use herd_core::JobId;
use herd_core::result::JobResult;
use herd_jobdir::Home;
use herd_runtime::guard;

use super::Outcome;
use super::logs::console::Console;
use super::logs::shape::Shaper;
use crate::backend_local;
use crate::backends::Place;
use crate::cli::job::RunArgs;
use crate::job_input::{self, JobInput};
use crate::jobs::{self, Job};
use crate::printer::Printer;
use crate::report;

/// Runs the job, then says what became of it.
pub(crate) fn run(args: &RunArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let input = job_input::read(&args.job, home)?;
    say(&input, printer);
    let home = jobs::open_home(home)?;
    let shaper = Shaper::new(args.prefix, args.raw, printer.out_color());
    if !matches!(input.place, Place::Local) {
        return super::remote::run(&home, input, shaper, printer);
    }
    let id = backend_local::prepare(&home, input)?;
    let log = home.jobs_dir().join(id.to_string());
    // What is still buffered would be written by both sides of the guard.
    printer.flush();
    // From here on there are two processes, and both come back with the code: the child, which
    // has run the job and reported, and the guard, which has nothing to say but of a lost child.
    let ended = guard::run(guard::STOPPED_BOUND, || {
        let console = Console::new(log, shaper);
        let grown = {
            let console = Arc::clone(&console);
            move || console.log_grew()
        };
        let driven = backend_local::drive_foreground(&home, id, grown);
        let shown = console.finish();
        match driven {
            Ok(result) => report_of(&home, id, &result, shown, printer),
            Err(error) => {
                printer.report(&error.render(printer.err_color()));
                error.exit_code()
            }
        }
    });
    let lost = if ended.lost {
        backend_local::end_lost(&home, id)
    } else {
        None
    };
    Ok(lost.map_or(ended.code, |result| {
        // What the lost child has shown is not known here.
        report_of(&home, id, &result, false, printer)
    }))
}

/// Prints the report after a run where the job can be read; the exit code.
fn report_of(home: &Home, id: JobId, result: &JobResult, shown: bool, printer: &mut Printer) -> u8 {
    match jobs::open(home, &id.to_string()) {
        Ok(job) => report(&job, result, shown, printer),
        Err(_) => result.exit_code,
    }
}

/// Says what the reading of a job found worth saying.
pub(super) fn say(input: &JobInput, printer: &mut Printer) {
    for warning in &input.warnings {
        printer.warn(warning);
    }
    for note in input.notes.iter().chain(&input.plan_notes()) {
        printer.note(note);
    }
}

/// Prints the report after a run, whose output may have been `shown` where the report goes; the
/// exit code.
pub(super) fn report(job: &Job, result: &JobResult, shown: bool, printer: &mut Printer) -> u8 {
    let mut context = job.report_context(printer.err_color());
    context.output_shown = shown;
    // The report says what it can.
    context.tasks = job.tasks().unwrap_or_default();
    let end = job.last_end();
    printer.report(&report::after_run(result, end.as_ref(), &context));
    result.exit_code
}
