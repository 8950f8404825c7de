//! `herd cancel`: ask jobs to end.

use std::path::Path;

use herd_backends::slurm::cancel::Taken;

use super::Outcome;
use crate::cli::query::CancelArgs;
use crate::error::ExpectedError;
use crate::jobs;
use crate::printer::Printer;

/// Asks each job; every job is tried, the first failure is returned.
pub(crate) fn run(args: &CancelArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let signal =
        herd_core::signal::parse(&args.signal).ok_or_else(|| ExpectedError::BadOption {
            option: "--signal",
            value: args.signal.clone(),
            source: "it is neither a signal's name nor a number from 1 to 64".into(),
        })?;
    let grace = args
        .grace
        .as_deref()
        .map(|value| jobs::span_option("--grace", value))
        .transpose()?;
    let home = jobs::open_home(home)?;
    // A selector that means nothing stops everything before any job is touched.
    let chosen: Vec<_> = args
        .jobs
        .iter()
        .map(|selector| jobs::open_active(&home, selector))
        .collect::<Result<_, _>>()?;
    let mut first_failure = None;
    for job in &chosen {
        if job.is_ended() {
            printer.note(&format!(
                "{} has ended already: {}",
                job.short(),
                job.state_text()
            ));
            continue;
        }
        match job.cancel(signal, grace) {
            Ok(Taken::Now) => printer.note(&format!("asked {} to end", job.short())),
            Ok(Taken::Later) => printer.note(&later(&job.short())),
            Err(error) => {
                if let Some(earlier) = first_failure.replace(error) {
                    printer.report(&ExpectedError::render(&earlier, printer.err_color()));
                }
            }
        }
    }
    first_failure.map_or(Ok(0), Err)
}

/// What is said of a request that nobody has heard yet.
pub(super) fn later(short: &str) -> String {
    format!(
        "Slurm does not answer: {short} is cancelled when it does and herd looks at the job (`herd wait {short}`), \
         or when it begins"
    )
}
