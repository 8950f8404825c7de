//! `herd events`: what happened to a job, attempt by attempt.

use std::path::Path;

use herd_core::event::{Event, EventKind};
use serde::Serialize;

use super::Outcome;
use crate::cli::Format;
use crate::cli::query::EventsArgs;
use crate::error::ExpectedError;
use crate::jobs;
use crate::printer::Printer;
use crate::report::{self, Context};
use crate::text;
use crate::watch::{BOUND, Watch};

/// An event with its attempt; a line of `-o json`.
#[derive(Debug, Serialize)]
struct Line<'a> {
    attempt: u32,
    #[serde(flatten)]
    event: &'a Event,
}

/// Prints events, and follows where asked. JSON is one object a line, so that it can be followed.
pub(crate) fn run(args: &EventsArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let home = jobs::open_home(home)?;
    let mut job = jobs::open(&home, &args.job)?;
    let watch = Watch::new();
    watch.add(job.dir.path());
    let mut attempt = 1;
    let mut seen = 0;
    loop {
        // Before reading: what was written before the end is then certainly read.
        let ended = job.is_ended();
        let latest = job
            .dir
            .latest_attempt()
            .map_err(|error| ExpectedError::failed("look for attempts", error))?
            .map_or(0, |attempt| attempt.number());
        let context = job.report_context(printer.out_color());
        while attempt <= latest {
            let directory = job.dir.attempt(attempt);
            watch.add(directory.path());
            let events = directory
                .read_events()
                .map_err(|error| ExpectedError::failed("read the events", error))?;
            for event in events.iter().skip(seen) {
                print(event, attempt, args.output.output, &context, printer)?;
            }
            seen = events.len();
            if attempt == latest {
                break;
            }
            attempt += 1;
            seen = 0;
        }
        if !args.follow || ended || printer.is_closed() {
            return Ok(0);
        }
        printer.flush();
        watch.wait(BOUND);
        job = jobs::read(job.dir.clone())?;
    }
}

fn print(
    event: &Event,
    attempt: u32,
    format: Format,
    context: &Context,
    printer: &mut Printer,
) -> Result<(), ExpectedError> {
    let (name, detail) = describe(&event.kind, context);
    match format {
        Format::Table | Format::Wide => {
            let time = if format == Format::Wide {
                text::moment(event.time_ms)
            } else {
                text::clock(event.time_ms)
            };
            let line = format!("{time}  {attempt}  {name:<16} {}", report::clean(&detail));
            printer.line(line.trim_end());
        }
        Format::Name => printer.line(name),
        Format::Json => {
            let line = serde_json::to_string(&Line { attempt, event })
                .map_err(|error| ExpectedError::failed("write JSON", error))?;
            printer.line(&line);
        }
        Format::Yaml => {
            let value = serde_json::to_value([Line { attempt, event }])
                .map_err(|error| ExpectedError::failed("write YAML", error))?;
            printer.data(crate::printer::yaml::render(&value).as_bytes());
        }
    }
    Ok(())
}

fn describe(kind: &EventKind, context: &Context) -> (&'static str, String) {
    let node_name = |index: &u32| context.node(*index);
    match kind {
        EventKind::Job { state, why } => match why {
            Some(why) => ("job", format!("{state}: {why}")),
            None => ("job", state.to_string()),
        },
        EventKind::Attempt { state, failure } => match failure {
            Some(failure) => (
                "attempt",
                format!("{state}: {}", report::failure_sentence(failure, context)),
            ),
            None => ("attempt", state.to_string()),
        },
        EventKind::NodeJoined { name, pid, .. } => {
            ("node-joined", format!("{name} (process {pid})"))
        }
        EventKind::NodeLost { name, detail } => ("node-lost", format!("{name}: {detail}")),
        EventKind::ServiceReady {
            node,
            address,
            port,
        } => (
            "service-ready",
            format!("{}: {address}:{port}", node_name(node)),
        ),
        EventKind::RankStarted { rank, node, pid } => (
            "rank-started",
            format!("rank {rank} on {} (process {pid})", node_name(node)),
        ),
        EventKind::RankEnded {
            rank,
            node,
            end,
            stopped,
        } => {
            let by = if *stopped { ", stopped by herd" } else { "" };
            let end = report::end_text(*end);
            (
                "rank-ended",
                format!("rank {rank} on {}: {end}{by}", node_name(node)),
            )
        }
        EventKind::CancelRequested { by } => ("cancel-requested", format!("by {by}")),
        EventKind::BoundExpired { wait, detail } => ("bound-expired", format!("{wait}: {detail}")),
        EventKind::Warning { text } => ("warning", text.clone()),
        EventKind::Unknown => ("unknown", "an event of another release".to_owned()),
    }
}
