//! `herd gc`: remove old jobs that have ended.

use std::path::Path;

use herd_jobdir::gc::{self, Kept, Policy};
use serde::Serialize;

use super::Outcome;
use crate::cli::Format;
use crate::cli::machine::GcArgs;
use crate::error::{ExpectedError, count};
use crate::jobs;
use crate::printer::table::Column;
use crate::printer::{Printer, Row};
use crate::text;

/// A job that is removed, or would be.
#[derive(Debug, Serialize)]
struct Doomed {
    id: String,
    short: String,
    ended_ms: u64,
    bytes: u64,
    removed: bool,
}

impl Row for Doomed {
    const COLUMNS: &'static [Column] = &[
        Column::new("ID"),
        Column::new("ENDED"),
        Column::new("SIZE"),
        Column::new("REMOVED"),
        Column::wide("FULL ID"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.short.clone(),
            text::moment(self.ended_ms),
            text::size(self.bytes),
            if self.removed { "yes" } else { "no" }.to_owned(),
            self.id.clone(),
        ]
    }

    fn name(&self) -> String {
        self.id.clone()
    }
}

/// Removes what the bounds let go.
pub(crate) fn run(args: &GcArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let age = jobs::span_option("--older-than", &args.older_than)?;
    let home = jobs::open_home(home)?;
    let survey =
        gc::survey(&home).map_err(|error| ExpectedError::failed("look at the jobs", error))?;
    let policy = Policy {
        max_age_ms: Some(age.ms),
        max_jobs: None,
        max_bytes: None,
    };
    let spared = newest_ended(&survey, args.keep);
    let mut going = gc::plan(&survey, &policy, text::now_ms());
    going.retain(|id| !spared.contains(id));
    let mut failures = Vec::new();
    let mut removed = Vec::new();
    if !args.dry_run {
        let done = gc::execute(&home, &going)
            .map_err(|error| ExpectedError::failed("remove jobs", error))?;
        removed = done.jobs;
        failures = done.failed;
    }
    let rows: Vec<Doomed> = survey
        .iter()
        .filter(|job| going.contains(&job.id))
        .map(|job| Doomed {
            id: job.id.to_string(),
            short: job.id.short(),
            ended_ms: job.ended_ms.unwrap_or(0),
            bytes: job.bytes,
            removed: removed.contains(&job.id),
        })
        .collect();
    // A table without rows says less than the line below it.
    let for_people = matches!(args.output.output, Format::Table | Format::Wide);
    if !(rows.is_empty() && for_people) {
        printer.list(&rows, args.output.output)?;
    }
    let freed = rows
        .iter()
        .fold(0u64, |sum, row| sum.saturating_add(row.bytes));
    let verb = if args.dry_run {
        "would remove"
    } else {
        "removed"
    };
    let number = if args.dry_run {
        rows.len()
    } else {
        removed.len()
    };
    printer.note(&format!(
        "{verb} {} ({})",
        count(number, "job"),
        text::size(freed)
    ));
    let mut failures = failures.into_iter();
    match failures.next() {
        Some((id, error)) => Err(ExpectedError::failed(
            format!("remove job {}", id.short()),
            error,
        )),
        None => Ok(0),
    }
}

fn newest_ended(survey: &[Kept], number: usize) -> Vec<herd_core::JobId> {
    let mut ended: Vec<_> = survey
        .iter()
        .filter_map(|job| Some((job.ended_ms?, job.id)))
        .collect();
    ended.sort_unstable_by(|a, b| b.cmp(a));
    ended.into_iter().take(number).map(|(_, id)| id).collect()
}

#[cfg(test)]
mod tests {
    use herd_core::JobId;

    use super::*;

    #[test]
    fn the_newest_ended_jobs_are_spared() {
        let ids: Vec<JobId> = (0..4).map(|_| JobId::generate()).collect();
        let ends = [Some(10), None, Some(30), Some(20)];
        let survey: Vec<Kept> = ids
            .iter()
            .zip(ends)
            .map(|(&id, ended_ms)| Kept {
                id,
                ended_ms,
                bytes: 0,
            })
            .collect();
        assert_eq!(newest_ended(&survey, 2), [ids[2], ids[3]]);
        assert!(newest_ended(&survey, 0).is_empty());
    }
}
