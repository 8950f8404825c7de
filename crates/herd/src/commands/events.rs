//! `herd events`: what happened to a job, attempt by attempt.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use herd_core::event::{Event, EventKind};
use herd_core::sentence;
use herd_jobdir::{JobDir, JobDirError};
use serde::Serialize;

use super::{Outcome, interrupt};
use crate::backend_login;
use crate::cli::Format;
use crate::cli::query::EventsArgs;
use crate::error::ExpectedError;
use crate::jobs;
use crate::printer::Printer;
use crate::report;
use crate::text;
use crate::watch::{BOUND, Watch};

/// An event with its attempt; a line of `-o json`.
#[derive(Debug, Serialize)]
struct Line {
    /// The task, where tasks have drivers of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<u32>,
    attempt: u32,
    #[serde(flatten)]
    event: Event,
    #[serde(skip)]
    name: &'static str,
    #[serde(skip)]
    detail: String,
}

/// Prints events, and follows where asked. JSON is one object a line, so that it can be followed.
pub(crate) fn run(args: &EventsArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let home = jobs::open_home(home)?;
    let job = jobs::open(&home, &args.job)?;
    if args.follow {
        interrupt::tell_that_it_goes_on(&job);
        backend_login::follow(&[&job], false);
    }
    let apart = job.tasks_apart()?.is_some();
    let job = job.dir;
    let failed = |error| ExpectedError::failed("read the events", error);
    let watch = Watch::new();
    watch.add(job.path());
    let mut tails: BTreeMap<Option<u32>, Tail> = BTreeMap::new();
    if !apart {
        tails.insert(None, Tail::new(job.clone()));
    }
    loop {
        jobs::require_present(&job)?;
        // Before reading: what was written before the end is then certainly read.
        let over = herd_jobdir::status::is_over(&job).map_err(failed)?;
        if apart {
            for index in herd_jobdir::apart::begun(&job) {
                let tail = || Tail::new(job.task(index));
                tails.entry(Some(index)).or_insert_with(tail);
            }
        }
        let mut lines = Vec::new();
        for (task, tail) in &mut tails {
            tail.read(*task, &watch, &mut lines).map_err(failed)?;
        }
        // Those of several tasks as they happened.
        lines.sort_by_key(|line| line.event.time_ms);
        for line in &lines {
            print(line, args.output.output, printer)?;
        }
        if !args.follow || over || printer.is_closed() {
            return Ok(0);
        }
        printer.flush();
        watch.wait(BOUND);
    }
}

/// How far the events of a job, or of a task with a driver of its own, were read.
struct Tail {
    dir: JobDir,
    attempt: u32,
    offset: u64,
    names: Names,
    watched: u32,
}

impl Tail {
    fn new(dir: JobDir) -> Self {
        Self {
            dir,
            attempt: 1,
            offset: 0,
            names: Names::default(),
            watched: 0,
        }
    }

    /// Adds what is new.
    fn read(
        &mut self,
        task: Option<u32>,
        watch: &Watch,
        lines: &mut Vec<Line>,
    ) -> Result<(), JobDirError> {
        let latest = self.dir.latest_attempt()?;
        let latest = latest.map_or(0, |attempt| attempt.number());
        while self.attempt <= latest {
            let directory = self.dir.attempt(self.attempt);
            if self.watched < self.attempt {
                watch.add(directory.path());
                self.watched = self.attempt;
            }
            let (events, next) = directory.read_events_after(self.offset)?;
            for event in events {
                self.names.learn(&event.kind);
                let (name, detail) = describe(&event.kind, &self.names);
                lines.push(Line {
                    task,
                    attempt: self.attempt,
                    event,
                    name,
                    detail,
                });
            }
            if next != self.offset {
                self.offset = next;
            } else if self.attempt == latest {
                break;
            } else {
                self.attempt += 1;
                self.offset = 0;
                self.names = Names::default();
            }
        }
        Ok(())
    }
}

/// Names of an attempt's nodes, as its events tell them.
#[derive(Debug, Default)]
struct Names(BTreeMap<u32, String>);

impl Names {
    fn learn(&mut self, kind: &EventKind) {
        if let EventKind::NodeJoined { node, name, .. } = kind {
            self.0.insert(*node, name.clone());
        }
    }

    fn of(&self, node: u32) -> String {
        let known = self.0.get(&node).cloned();
        known.unwrap_or_else(|| format!("node{node}"))
    }
}

fn print(line: &Line, format: Format, printer: &mut Printer) -> Result<(), ExpectedError> {
    let Line {
        task,
        attempt,
        event,
        name,
        detail,
    } = line;
    match format {
        Format::Table | Format::Wide => {
            let time = if format == Format::Wide {
                text::moment(event.time_ms)
            } else {
                text::clock(event.time_ms)
            };
            let task = task.map_or_else(String::new, |index| format!("task {index}  "));
            let detail = report::clean(detail);
            printer.line(format!("{time}  {task}{attempt}  {name:<16} {detail}").trim_end());
        }
        Format::Id => printer.line(name),
        Format::Json => {
            let line = serde_json::to_string(line)
                .map_err(|error| ExpectedError::failed("write JSON", error))?;
            printer.line(&line);
        }
        Format::Yaml => {
            let value = serde_json::to_value([line])
                .map_err(|error| ExpectedError::failed("write YAML", error))?;
            printer.data(crate::printer::yaml::render(&value).as_bytes());
        }
    }
    Ok(())
}

fn describe(kind: &EventKind, names: &Names) -> (&'static str, String) {
    let node_name = |index: &u32| names.of(*index);
    match kind {
        EventKind::Job { state, why } => match why {
            Some(why) => ("job", format!("{state}: {why}")),
            None => ("job", state.to_string()),
        },
        EventKind::Attempt { state, failure } => match failure {
            Some(failure) => (
                "attempt",
                format!(
                    "{state}: {}",
                    sentence::failure(failure, &|node| names.of(node))
                ),
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
            let end = sentence::process_end(*end);
            (
                "rank-ended",
                format!("rank {rank} on {}: {end}{by}", node_name(node)),
            )
        }
        EventKind::TaskRetried {
            task,
            attempt,
            end,
            after_ms,
        } => {
            let pause = Duration::from_millis(*after_ms).as_secs_f64();
            let end = sentence::process_end(*end);
            (
                "task-retried",
                format!("task {task}, attempt {attempt}: {end}, runs again after {pause} s"),
            )
        }
        EventKind::PreemptionNotice { by } => ("preemption-notice", by.clone()),
        EventKind::CancelRequested { by } => ("cancel-requested", format!("by {by}")),
        EventKind::Paused => ("paused", "stopped from its terminal".to_owned()),
        EventKind::Resumed => ("resumed", "goes on".to_owned()),
        EventKind::BoundExpired { wait, detail } => ("bound-expired", format!("{wait}: {detail}")),
        EventKind::Warning { text } => ("warning", text.clone()),
        EventKind::Unknown => ("unknown", "an event of another release".to_owned()),
    }
}
