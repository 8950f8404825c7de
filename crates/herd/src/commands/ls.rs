//! `herd ls`: the jobs of this home, newest first.

use std::path::Path;

use herd_core::state::{AttemptState, JobState};
use herd_jobdir::status::DRIVER_LOST;

use super::Outcome;
use crate::cli::Format;
use crate::cli::query::LsArgs;
use crate::error::ExpectedError;
use crate::jobs::{self, JobRow};
use crate::printer::Printer;

/// What stands for every state that is no end.
const ACTIVE: &str = "ACTIVE";

/// Lists jobs. A home without jobs is an empty list.
pub(crate) fn run(args: &LsArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let states = states(&args.state)?;
    let home = jobs::open_home(home)?;
    let most = if args.all { usize::MAX } else { args.number };
    let named = |row: &JobRow| args.name.as_ref().is_none_or(|name| *name == row.name);
    let in_state = |row: &JobRow| {
        states.is_empty()
            || states.contains(&row.state)
            || (row.exit_code.is_none() && states.iter().any(|state| state == ACTIVE))
    };
    let listed = if states.is_empty() && args.name.is_none() {
        jobs::list(&home, most)?
    } else {
        jobs::list(&home, usize::MAX)?.only(most, |row| named(row) && in_state(row))
    };
    let listed = match args.output.output {
        Format::Wide | Format::Json | Format::Yaml => listed.with_backend_ids(&home),
        Format::Table | Format::Id => listed,
    };
    printer.list(&listed.rows, args.output.output)?;
    if let Some(note) = listed.rows.iter().find_map(|row| row.note.as_ref()) {
        printer.note(note);
    }
    if listed.more > 0 {
        printer.note(&format!("{} more; `herd ls --all` lists all", listed.more));
    }
    Ok(0)
}

/// The states as jobs show them; a word that is none is refused, for it would find nothing.
fn states(words: &[String]) -> Result<Vec<String>, ExpectedError> {
    let attempts = AttemptState::ALL.iter().map(ToString::to_string);
    let jobs = JobState::ALL.iter().map(ToString::to_string);
    let mut known: Vec<String> = jobs
        .chain(attempts)
        .chain([DRIVER_LOST.to_owned()])
        .collect();
    known.sort_unstable();
    known.dedup();
    let mut chosen = Vec::with_capacity(words.len());
    for word in words {
        let state = word.to_uppercase().replace(['-', '_'], " ");
        if !known.contains(&state) {
            return Err(ExpectedError::BadOption {
                option: "--state",
                value: word.clone(),
                source: format!("it is none of {}", known.join(", ").to_lowercase()).into(),
            });
        }
        chosen.push(state);
    }
    Ok(chosen)
}
