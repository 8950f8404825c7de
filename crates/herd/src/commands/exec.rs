//! `herd exec`: a command inside a running job.

use std::path::Path;

use herd_link::session::Place;

use super::Outcome;
use super::places::Places;
use crate::backend_local;
use crate::cli::query::ExecArgs;
use crate::jobs;
use crate::printer::Printer;

/// Runs the command; its exit code.
pub(crate) fn run(args: &ExecArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let home = jobs::open_home(home)?;
    let job = jobs::open_active(&home, &args.job)?;
    job.require_active("a command can only be run inside a job that runs")?;
    let places = Places::of(&job);
    let place = match (args.rank, &args.node) {
        (_, Some(node)) => Place::Node(places.node(node)?),
        (Some(rank), None) => {
            places.check_ranks(&[rank], &rank.to_string())?;
            Place::Rank(rank)
        }
        // The tasks of an array come and go; the node stays.
        (None, None) if places.is_array() => Place::Node(0),
        (None, None) => Place::Rank(0),
    };
    printer.flush();
    backend_local::exec(&job.dir, place, &args.command)
}
