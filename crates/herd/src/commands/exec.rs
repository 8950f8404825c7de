//! `herd exec`: a command inside a running job.

use std::path::Path;

use herd_link::session::Place;

use super::Outcome;
use crate::backend_local;
use crate::cli::query::ExecArgs;
use crate::jobs;
use crate::printer::Printer;

/// Runs the command; its exit code.
pub(crate) fn run(args: &ExecArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let home = jobs::open_home(home)?;
    let job = jobs::open_active(&home, &args.job)?;
    job.require_active("a command can only be run inside a job that runs")?;
    let place = match (args.rank, args.node) {
        (_, Some(node)) => Place::Node(node),
        (rank, None) => Place::Rank(rank.unwrap_or(0)),
    };
    printer.flush();
    backend_local::exec(&job.dir, place, &args.command)
}
