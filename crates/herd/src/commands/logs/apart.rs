//! The output of a job whose tasks have drivers of their own: of all of them together, or of one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use herd_core::plan::Plan;
use herd_jobdir::runlog::{Entry, Filter, Follow, Record, RunLogReader, TaskLogs};

use super::super::Outcome;
use super::super::places::Places;
use super::output::{self, Until};
use super::shape::Shaper;
use super::{filter, unreadable};
use crate::cli::job::PrefixStyle;
use crate::cli::query::LogsArgs;
use crate::error::ExpectedError;
use crate::jobs::Job;
use crate::printer::Printer;

/// Prints the output of all tasks, task by task; of a tail and of what is followed, as it was written.
pub(super) fn all(
    args: &LogsArgs,
    job: &Job,
    plan: &Plan,
    wanted: Filter,
    shaper: &mut Shaper,
    printer: &mut Printer,
) -> Outcome {
    if args.live {
        return Err(ExpectedError::BadOption {
            option: "--live",
            value: "--live".to_owned(),
            source: "each task of the job has a driver of its own; use `--follow`".into(),
        });
    }
    let tail = wanted.tail;
    let mut logs = logs_of(job, plan, wanted);
    match tail {
        Some(lines) => {
            for piece in newest(&mut logs, lines)? {
                let entry = piece.entry();
                let mut text = Vec::new();
                printer.data(shaper.shown(&entry, &mut text));
            }
        }
        None if args.follow => {}
        None => output::show(&mut logs, shaper, printer)?,
    }
    if args.follow {
        output::follow(job, &mut logs, Until::LogEnds, shaper, printer)?;
    }
    Ok(0)
}

/// Shows all tasks' output until the job ends, or nobody reads.
pub(super) fn follow(
    job: &Job,
    plan: &Plan,
    wanted: Filter,
    shaper: &mut Shaper,
    printer: &mut Printer,
) -> Result<(), ExpectedError> {
    let mut logs = logs_of(job, plan, wanted);
    output::follow(job, &mut logs, Until::LogEnds, shaper, printer)
}

fn logs_of(job: &Job, plan: &Plan, wanted: Filter) -> TaskLogs {
    TaskLogs::new(&job.dir, plan.world_size(), wanted).of_mirror(job.login.is_some())
}

/// Prints the output of one task, without the prefix of the only rank that it may have.
pub(super) fn one(
    args: &LogsArgs,
    job: &Job,
    plan: &Plan,
    index: u32,
    printer: &mut Printer,
) -> Outcome {
    let single = plan.world_size() == 1;
    let style = args.prefix.or_else(|| single.then_some(PrefixStyle::None));
    let mut shaper = Shaper::new(style, args.raw, printer.out_color());
    let wanted = filter(args, &Places::of_task(plan))?;
    let task = job.dir.task(index);
    if !args.follow {
        let opened = RunLogReader::open(task.path(), wanted).map_err(unreadable)?;
        let Some(mut reader) = opened else {
            return Err(ExpectedError::WrongState {
                job: job.short(),
                problem: format!("has no output of a task {index}"),
                hint: Some(format!("`herd status {}` counts its tasks", job.short())),
            });
        };
        output::show(&mut reader, &mut shaper, printer)?;
        return Ok(0);
    }
    let mut log = Follow::new(task.path(), wanted);
    output::follow(job, &mut log, Until::LogOrJobEnds, &mut shaper, printer)?;
    Ok(0)
}

/// A piece of output that is kept.
struct Piece {
    record: Record,
    bytes: Vec<u8>,
    in_line: bool,
}

impl Piece {
    fn of(entry: &Entry<'_>) -> Self {
        Self {
            record: entry.record,
            bytes: entry.bytes.to_vec(),
            in_line: entry.in_line,
        }
    }

    fn entry(&self) -> Entry<'_> {
        Entry {
            record: self.record,
            bytes: &self.bytes,
            in_line: self.in_line,
        }
    }

    fn lines(&self) -> usize {
        self.bytes.split(|byte| *byte == b'\n').count() - 1
    }

    /// Leaves out lines from the beginning.
    fn cut(&mut self, lines: usize) {
        let ends = self.bytes.iter().enumerate();
        let mut ends = ends.filter(|(_, byte)| **byte == b'\n');
        if let Some(last) = lines.checked_sub(1)
            && let Some((end, _)) = ends.nth(last)
        {
            self.bytes.drain(..=end);
            self.in_line = false;
        }
    }
}

/// The newest lines of all tasks, oldest first. Of each task no more than that many are there.
fn newest(logs: &mut TaskLogs, lines: usize) -> Result<Vec<Piece>, ExpectedError> {
    let mut kept: Vec<Piece> = Vec::new();
    // Times with the places of their pieces, the oldest on top.
    let mut times: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut have = 0;
    while let Some(entry) = logs.read().map_err(unreadable)? {
        let piece = Piece::of(&entry);
        have += piece.lines();
        times.push(Reverse((piece.record.time_ms, kept.len())));
        kept.push(piece);
        while let Some(Reverse((_, oldest))) = times.peek()
            && let Some(piece) = kept.get_mut(*oldest)
            && have > lines
        {
            let spare = (have - lines).min(piece.lines());
            have -= spare;
            piece.cut(spare);
            if piece.bytes.is_empty() {
                times.pop();
            } else {
                break;
            }
        }
    }
    kept.retain(|piece| !piece.bytes.is_empty());
    kept.sort_by_key(|piece| piece.record.time_ms);
    Ok(kept)
}
