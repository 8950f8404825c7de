//! `herd why`: what a job waits for, or why it ended as it did, in a sentence.

mod queue;

use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;

use self::queue::Queue;
use super::Outcome;
use crate::backend_login;
use crate::cli::query::WhyArgs;
use crate::jobs::{self, Job};
use crate::printer::Printer;
use crate::report::{self, Context};
use crate::text;

/// The answer.
#[derive(Debug, Serialize)]
struct Why {
    id: String,
    state: String,
    #[serde(rename = "why")]
    reason: String,
    warnings: Vec<String>,
    note: Option<String>,
    /// Of a job that waits in a cluster's queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<Queue>,
}

/// Tells why.
pub(crate) fn run(args: &WhyArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let home = jobs::open_home(home)?;
    let job = jobs::open(&home, &args.job)?;
    if let Some(record) = job.login.as_ref().filter(|_| !job.is_ended()) {
        let format = args.output.output.to_possible_value();
        let format = format.map_or_else(String::new, |format| format.get_name().to_owned());
        let id = job.dir.id().to_string();
        let words = ["why", "-o", &format, &id].map(str::to_owned).to_vec();
        match backend_login::show(record, words, printer) {
            Ok(code) => return Ok(code),
            // What is known here is better than nothing.
            Err(error) => printer.report(&error.render(printer.err_color())),
        }
    }
    let context = job.report_context(false);
    let answer = Why {
        id: job.dir.id().to_string(),
        state: job.status.brief.state.clone(),
        reason: sentence(&job, &context),
        warnings: job.status.warnings.clone(),
        note: context.note.clone(),
        queue: queue::look(&job, &home),
    };
    printer.one(&answer, &answer.id, args.output.output, |_look| {
        let mut said = format!(
            "{} ({}) {}: {}\n",
            report::clean(&context.name),
            context.short,
            answer.state,
            report::clean(&answer.reason)
        );
        if let Some(note) = &answer.note {
            said.push_str("  ");
            said.push_str(&report::clean(note));
            said.push('\n');
        }
        if let Some(queue) = &answer.queue {
            for line in queue.lines() {
                said.push_str("  ");
                said.push_str(&report::clean(&line));
                said.push('\n');
            }
        }
        for warning in &answer.warnings {
            said.push_str("  warning: ");
            said.push_str(&report::clean(warning));
            said.push('\n');
        }
        said
    })?;
    Ok(0)
}

fn sentence(job: &Job, context: &Context) -> String {
    if let Some(failure) = &job.status.failure {
        return report::failure_sentence(failure, context);
    }
    if let Some(why) = job.why() {
        return why;
    }
    let brief = &job.status.brief;
    match (brief.ended_ms, brief.started_ms) {
        (Some(ended), Some(started)) => {
            format!(
                "it ended after {}",
                text::span(ended.saturating_sub(started))
            )
        }
        (Some(_), None) => "it ended before it started".to_owned(),
        (None, Some(started)) => {
            let since = text::now_ms().saturating_sub(started);
            format!("it has run for {}", text::span(since))
        }
        (None, None) => "it was handed in and has not started".to_owned(),
    }
}
