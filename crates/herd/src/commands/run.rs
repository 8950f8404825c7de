//! `herd run`: run a job in the foreground and end with its exit code.

use std::path::Path;

use herd_core::result::JobResult;

use super::Outcome;
use crate::backend_local::{self, Shown};
use crate::cli::job::RunArgs;
use crate::job_input::{self, JobInput};
use crate::jobs::{self, Job};
use crate::printer::Printer;
use crate::report;

/// Runs the job, then says what became of it.
pub(crate) fn run(args: &RunArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let input = job_input::read(&args.job)?;
    say(&input, printer);
    let home = jobs::open_home(home)?;
    let shown = Shown { prefix: args.prefix, raw: args.raw, color: printer.out_color() };
    let ended = backend_local::run_foreground(&home, input, shown)?;
    let job = jobs::open(&home, &ended.id.to_string())?;
    Ok(report(&job, &ended.result, printer))
}

/// Says what the reading of a job found worth saying.
pub(super) fn say(input: &JobInput, printer: &mut Printer) {
    for warning in &input.warnings {
        printer.warn(warning);
    }
    for note in &input.notes {
        printer.note(note);
    }
}

/// Prints the report after a run; the exit code.
pub(super) fn report(job: &Job, result: &JobResult, printer: &mut Printer) -> u8 {
    let context = job.report_context(printer.err_color());
    let end = job.last_end();
    printer.report(&report::after_run(result, end.as_ref(), &context));
    result.exit_code
}
