//! `herd ls`: the jobs of this home, newest first.

use std::path::Path;

use super::Outcome;
use crate::cli::query::LsArgs;
use crate::jobs;
use crate::printer::Printer;

/// Lists jobs. A home without jobs is an empty list.
pub(crate) fn run(args: &LsArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let home = jobs::open_home(home)?;
    let most = if args.all { usize::MAX } else { args.number };
    let listed = jobs::list(&home, most)?;
    printer.list(&listed.rows, args.output.output)?;
    if listed.more > 0 {
        printer.note(&format!(
            "{} more; `herd ls --all` lists every job",
            listed.more
        ));
    }
    Ok(0)
}
