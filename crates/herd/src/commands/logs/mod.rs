//! `herd logs`: what a job's ranks wrote, merged, filtered, followed.

mod apart;
pub(super) mod console;
mod live;
mod output;
mod ranks;
pub(super) mod shape;
mod task;

use std::path::Path;
use std::time::{Duration, Instant};

use herd_backends::local::Announcer;
use herd_jobdir::runlog::{Filter, Follow, RunLogReader, Stream};

use super::places::Places;
use super::{Outcome, interrupt};
use crate::backend_login;
use crate::cli::query::{LogsArgs, StreamArg};
use crate::error::ExpectedError;
use crate::jobs::{self, Job};
use crate::printer::Printer;
use crate::text;
use output::Until;
use shape::Shaper;

/// Longest wait for more before the reader of standard output and the driver are looked after.
const IDLE: Duration = Duration::from_millis(250);

/// Prints, and follows where asked.
pub(crate) fn run(args: &LogsArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let home = jobs::open_home(home)?;
    let job = jobs::open(&home, &args.job)?;
    if args.follow {
        interrupt::tell_that_it_goes_on(&job);
        backend_login::follow(&[&job], true);
    }
    let places = Places::of(&job);
    let apart = job.tasks_apart()?;
    if let Some(index) = args.task {
        places.check_task(index)?;
        if let Some(record) = &job.login {
            return backend_login::show(record, task::words(args, &job, index), printer);
        }
        if let Some(plan) = &apart {
            return apart::one(args, &job, plan, index, printer);
        }
        refuse_beside_task(args)?;
        return task::run(args, &job, index, printer);
    }
    if places.is_array() {
        refuse_ranks(args)?;
    }
    let filter = filter(args, &places)?;
    let mut shaper = Shaper::new(args.prefix, args.raw, printer.out_color());
    if let Some(record) = job.login.as_ref().filter(|_| !args.follow) {
        // What is here already is better than nothing.
        if let Err(error) = backend_login::fetch_log(&job, record) {
            printer.report(&error.render(printer.err_color()));
        }
    }
    if let Some(plan) = &apart {
        return apart::all(args, &job, plan, filter, &mut shaper, printer);
    }
    if args.live && job.login.is_none() {
        live::follow(&job, filter, &mut shaper, printer)?;
    } else if args.follow {
        follow(&job, filter, &mut shaper, printer)?;
    } else {
        let opened = RunLogReader::open(job.dir.path(), filter).map_err(unreadable)?;
        let Some(mut reader) = opened else {
            printer.note(&format!("{} has written nothing yet", job.short()));
            return Ok(0);
        };
        output::show(&mut reader, &mut shaper, printer)?;
    }
    Ok(0)
}

/// Shows all of a job's output until it ends, or nobody reads.
pub(super) fn follow_to_end(
    job: &Job,
    shaper: &mut Shaper,
    printer: &mut Printer,
) -> Result<(), ExpectedError> {
    match job.tasks_apart()? {
        Some(plan) => apart::follow(job, &plan, Filter::default(), shaper, printer),
        None => follow(job, Filter::default(), shaper, printer),
    }
}

fn follow(
    job: &Job,
    filter: Filter,
    shaper: &mut Shaper,
    printer: &mut Printer,
) -> Result<(), ExpectedError> {
    let mut log = Follow::new(job.dir.path(), filter);
    output::follow(job, &mut log, Until::LogEnds, shaper, printer)
}

/// Looks at the job and says what it waits for, when that is news. Whether the job has ended.
fn tell_what_it_waits_for(
    job: &Job,
    announcer: &mut Announcer,
    printer: &mut Printer,
) -> Result<bool, ExpectedError> {
    // A driver that died writes no end; reading the status writes it in its place.
    let now = jobs::read(job.dir.clone())?;
    if let Some(why) = now.waits_for()
        && announcer.is_news(why, Instant::now())
    {
        printer.note(why);
    }
    Ok(now.is_ended())
}

fn unreadable(error: herd_jobdir::JobDirError) -> ExpectedError {
    ExpectedError::failed("read the job's output", error)
}

/// The tasks of an array are no ranks, and each has one log for both streams.
fn refuse_ranks(args: &LogsArgs) -> Result<(), ExpectedError> {
    let refused = |option, value: String, why: &str| {
        Err(ExpectedError::BadOption {
            option,
            value,
            source: format!("the job is an array: {why}").into(),
        })
    };
    if let Some(rank) = &args.rank {
        let why = "its tasks have indices; use `--task`";
        return refused("--rank", rank.clone(), why);
    }
    if let Some(stream) = args.stream {
        let name = match stream {
            StreamArg::Stdout => "stdout",
            StreamArg::Stderr => "stderr",
        };
        let why = "a task writes both streams into one log; leave `--stream` out";
        return refused("--stream", name.to_owned(), why);
    }
    Ok(())
}

/// A task that shares its allocation with others has one log without prefixes and times.
fn refuse_beside_task(args: &LogsArgs) -> Result<(), ExpectedError> {
    let given = [
        ("--rank", args.rank.is_some()),
        ("--node", args.node.is_some()),
        ("--since", args.since.is_some()),
        ("--stream", args.stream.is_some()),
        ("--prefix", args.prefix.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(ExpectedError::BadOption {
            option,
            value: option.to_owned(),
            source: "the task of `--task` has one log, of one rank and without times".into(),
        }),
        None => Ok(()),
    }
}

fn filter(args: &LogsArgs, places: &Places) -> Result<Filter, ExpectedError> {
    let ranks = match &args.rank {
        Some(value) => {
            let ranks = ranks::parse(value).ok_or_else(|| ExpectedError::BadOption {
                option: "--rank",
                value: value.clone(),
                source: "expected ranks like `3` or `0-3,7`".into(),
            })?;
            places.check_ranks(&ranks, value)?;
            ranks
        }
        None => Vec::new(),
    };
    Ok(Filter {
        ranks,
        node: args
            .node
            .as_deref()
            .map(|value| places.node(value))
            .transpose()?,
        since_ms: args.since.as_deref().map(since).transpose()?,
        stream: args.stream.map(|stream| match stream {
            StreamArg::Stdout => Stream::Stdout,
            StreamArg::Stderr => Stream::Stderr,
        }),
        grep: args.grep.clone(),
        tail: args.tail,
    })
}

/// A span back from now, or a moment.
fn since(value: &str) -> Result<u64, ExpectedError> {
    if let Ok(span) = value.parse::<herd_core::units::Span>() {
        return Ok(text::now_ms().saturating_sub(span.ms));
    }
    text::parse_moment(value).ok_or_else(|| ExpectedError::BadOption {
        option: "--since",
        value: value.to_owned(),
        source: "expected a span like `10m` or a time like `2026-01-31T12:00:00Z`".into(),
    })
}
