//! `herd selectors`: what completion scripts offer where a job is to be named.
//!
//! A line for each: the word, a tab, and what it means. Words that a shell would not read as they
//! are, are left out: their jobs can be chosen by id.

use std::collections::BTreeSet;
use std::path::Path;

use super::Outcome;
use crate::cli::machine::SelectorsArgs;
use crate::jobs::{self, JobRow};
use crate::printer::Printer;
use crate::text::shell_word;

/// Newest jobs that are offered.
const MOST: usize = 100;

/// Prints the words.
pub(crate) fn run(args: &SelectorsArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let home = jobs::open_home(home)?;
    let listed = jobs::list(&home, MOST)?;
    let wanted = |row: &JobRow| !args.active || row.exit_code.is_none();
    if let Some(newest) = listed.rows.first().filter(|row| wanted(row)) {
        printer.line(&format!("last\t{} {}", newest.short, newest.state));
    }
    let rows: Vec<_> = listed.rows.iter().filter(|row| wanted(row)).collect();
    let mut names = BTreeSet::new();
    for row in &rows {
        if names.insert(&row.name) && is_plain(&row.name) {
            printer.line(&format!("{}\t{} {}", row.name, row.short, row.state));
        }
    }
    for row in &rows {
        let name = if is_plain(&row.name) { &row.name } else { "" };
        printer.line(format!("{}\t{name} {}", row.short, row.state).trim_end());
    }
    Ok(0)
}

/// Whether a shell, and what cuts its words, takes it as one word.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && shell_word(name) == name && !name.contains([':', '='])
}
