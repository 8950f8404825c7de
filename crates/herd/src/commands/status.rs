//! `herd status`: one job with its nodes, ranks, attempts and tasks.

use std::fmt::Write as _;
use std::path::Path;

use herd_core::hostlist;
use herd_core::result::Failure;
use herd_core::sentence;
use herd_core::spec::Command;
use herd_core::state::AttemptState;
use herd_jobdir::status::{NodeStatus, RankStatus, TaskOverview};
use herd_slurm::outcome::Condition;
use serde::Serialize;

use super::Outcome;
use crate::cli::query::StatusArgs;
use crate::error::ExpectedError;
use crate::jobs::{self, Job, JobRow};
use crate::printer::table::{Column, Table, state_color};
use crate::printer::{Look, Printer};
use crate::report::{self, Context};
use crate::text;

/// Most ranks in the table for people; JSON has all.
const MAX_RANKS: usize = 64;

/// The answer, with stable keys.
#[derive(Debug, Serialize)]
struct Detail<'a> {
    #[serde(flatten)]
    job: JobRow,
    failure: Option<&'a Failure>,
    tasks: Option<TaskOverview>,
    attempts: Vec<Attempt>,
    node_list: &'a [NodeStatus],
    rank_list: &'a [RankStatus],
    warnings: &'a [String],
    note: Option<&'a str>,
    /// Slurm's name for the job, for people.
    #[serde(skip)]
    slurm: Option<String>,
    /// Nodes of the tasks that run, in Slurm's short form, of an array of Slurm.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes_in_use: Option<String>,
    directory: String,
    /// The same where the job runs, for one behind a login node: host and path.
    #[serde(skip_serializing_if = "Option::is_none")]
    login_directory: Option<String>,
    log: String,
}

/// One attempt.
#[derive(Debug, Serialize)]
struct Attempt {
    number: u32,
    state: Option<AttemptState>,
    exit_code: Option<u8>,
    ended_ms: Option<u64>,
    why: Option<String>,
}

/// Shows the job.
pub(crate) fn run(args: &StatusArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let home = jobs::open_home(home)?;
    let job = jobs::open(&home, &args.job)?;
    let context = job.report_context(printer.out_color());
    let mut row = job.row();
    row.why = job.why();
    // The note of the job says it.
    row.note = None;
    if let Some(command) = whole_command(&job) {
        row.command = command;
    }
    let detail = Detail {
        job: row,
        failure: job.status.failure.as_ref(),
        tasks: job.tasks()?,
        attempts: attempts(&job, &context)?,
        node_list: &job.status.nodes,
        rank_list: &job.status.ranks,
        warnings: &job.status.warnings,
        note: context.note.as_deref(),
        slurm: slurm_name(&job),
        nodes_in_use: nodes_in_use(&job),
        directory: job.dir.path().display().to_string(),
        login_directory: job.login.as_ref().map(|login| {
            let home = login.target.home.as_deref().unwrap_or("~");
            format!("{}:{home}/jobs/{}", login.target.host, job.dir.id())
        }),
        log: job.log_path(),
    };
    printer.one(&detail, &detail.job.id, args.output.output, |look| {
        people(&detail, &context, look)
    })?;
    Ok(0)
}

/// `job 25`, `array 25 on big`.
fn slurm_name(job: &Job) -> Option<String> {
    let record = job.slurm.as_ref()?;
    let kind = match record.parts.len() {
        0 => "job",
        1 => "array",
        _ => "arrays",
    };
    let cluster = record.cluster.as_ref();
    let on = cluster.map_or_else(String::new, |name| format!(" on {name}"));
    Some(format!("{kind} {}{on}", record.name()))
}

/// The nodes of the tasks that run.
fn nodes_in_use(job: &Job) -> Option<String> {
    let running = job.tasks_observed.values().filter(|view| {
        let condition = view.condition;
        matches!(condition, Condition::Running | Condition::Suspended)
    });
    let names: Vec<String> = running
        .filter_map(|view| view.node_list.as_ref())
        .flat_map(|list| hostlist::expand(list).unwrap_or_default())
        .collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| hostlist::fold(&names))
}

/// The whole of the command; lists have its first line.
fn whole_command(job: &Job) -> Option<String> {
    // Every attempt runs what the first one does. Without its plan, what lists have will do.
    let plan = job.dir.attempt(1).read_plan().ok().flatten()?;
    Some(match plan.run? {
        Command::Shell(text) => text,
        Command::Argv(words) => words.join(" "),
    })
}

/// The command as a value of the table: its first line, and how many there are besides.
fn command_lines(command: &str, look: Look) -> String {
    let mut lines = command.trim_end().lines();
    let mut shown = lines.next().map(report::clean).unwrap_or_default();
    if look.wide {
        for line in lines {
            let line = format!("{:<10} {}", "", report::clean(line));
            shown.push('\n');
            shown.push_str(line.trim_end());
        }
        return shown;
    }
    match lines.count() {
        0 => {}
        more => {
            let more = crate::error::count(more, "more line");
            write!(shown, " … and {more}").expect("a String takes all");
        }
    }
    shown
}

fn attempts(job: &Job, context: &Context) -> Result<Vec<Attempt>, ExpectedError> {
    let mut attempts = Vec::new();
    if job.tasks_apart()?.is_some() {
        return Ok(attempts);
    }
    for number in 1..=job.status.brief.attempt {
        let end = job
            .dir
            .attempt(number)
            .read_end()
            .map_err(|error| ExpectedError::failed("read how an attempt ended", error))?;
        attempts.push(Attempt {
            number,
            state: end.as_ref().map(|end| end.state),
            exit_code: end.as_ref().map(|end| end.exit_code),
            ended_ms: end.as_ref().map(|end| end.ended_ms),
            why: end.and_then(|end| {
                let of = |failure| report::failure_sentence(failure, context);
                end.failure.as_ref().map(of).or(end.why)
            }),
        });
    }
    Ok(attempts)
}

/// A name and its value, which is text from outside.
fn field(out: &mut String, name: &str, value: &str) {
    lines(out, name, &report::clean(value));
}

/// A name and its value, which may be several lines and is fit to be shown.
fn lines(out: &mut String, name: &str, value: &str) {
    writeln!(out, "{:<10} {value}", format!("{name}:")).expect("a String takes everything");
}

fn people(detail: &Detail<'_>, context: &Context, look: Look) -> String {
    let mut out = String::new();
    let job = &detail.job;
    let now = text::now_ms();
    field(&mut out, "Job", &format!("{} ({})", job.name, job.id));
    field(&mut out, "State", &job.state);
    match (detail.failure, &job.why) {
        (Some(failure), _) => field(&mut out, "Why", &report::failure_sentence(failure, context)),
        (None, Some(why)) => field(&mut out, "Why", why),
        (None, None) => {}
    }
    if let Some(note) = &context.note {
        field(&mut out, "Note", note);
    }
    let kind = jobs::type_name(job.job_type);
    field(
        &mut out,
        "Type",
        &format!(
            "{kind}, {} on {}",
            crate::error::count(job.nodes as usize, "node"),
            job.backend
        ),
    );
    if let Some(number) = &detail.slurm {
        field(&mut out, "Slurm", number);
    }
    if let Some(nodes) = &detail.nodes_in_use {
        field(&mut out, "Nodes", nodes);
    }
    if !job.command.is_empty() {
        let shown = command_lines(&job.command, look);
        lines(&mut out, "Command", &shown);
    }
    field(&mut out, "Submitted", &text::moment(job.created_ms));
    if let Some(started) = job.started_ms {
        field(&mut out, "Started", &text::moment(started));
    }
    if let Some(ended) = job.ended_ms {
        field(&mut out, "Ended", &text::moment(ended));
    }
    if let Some(time) = job.time(now) {
        field(&mut out, "Time", &time);
    }
    if let Some(code) = job.exit_code {
        field(&mut out, "Exit code", &code.to_string());
    }
    if let Some(tasks) = &detail.tasks {
        field(&mut out, "Tasks", &task_counts(tasks));
        for (name, list) in [
            ("Failed", &tasks.failed_tasks),
            ("Stopped", &tasks.stopped_tasks),
            ("Unstarted", &tasks.not_started_tasks),
        ] {
            match list.as_ref().map(report::task_list) {
                Some(Ok(list)) => field(&mut out, name, &list),
                Some(Err(list)) => field(&mut out, name, &format!("{list} (-o json has all)")),
                None => {}
            }
        }
    }
    field(&mut out, "Log", &detail.log);
    if let Some(place) = &detail.login_directory {
        field(&mut out, "There", place);
    }
    for warning in detail.warnings {
        field(&mut out, "Warning", warning);
    }
    if look.color {
        let state = format!("{}{}\x1b[0m", state_color(&job.state), job.state);
        out = out.replacen(
            &format!("State:     {}", job.state),
            &format!("State:     {state}"),
            1,
        );
    }
    if detail.attempts.len() > 1 {
        out.push('\n');
        out.push_str(&attempt_table(&detail.attempts).render(look));
    }
    if !detail.node_list.is_empty() {
        out.push('\n');
        out.push_str(&node_table(detail.node_list).render(look));
    }
    if !detail.rank_list.is_empty() {
        out.push('\n');
        out.push_str(&rank_table(detail.rank_list, context).render(look));
        if detail.rank_list.len() > MAX_RANKS {
            let more = detail.rank_list.len() - MAX_RANKS;
            writeln!(out, "({more} more ranks; -o json has them)").expect("a String takes all");
        }
    }
    out
}

/// How many tasks stand where.
fn task_counts(tasks: &TaskOverview) -> String {
    let counts = tasks.counts;
    let others = [
        (tasks.running, "running"),
        (counts.retrying, "failed and to run again"),
        (counts.stopped, "stopped"),
        (tasks.not_started, "not started"),
    ];
    let others = report::counted(&others);
    format!(
        "{} succeeded, {} failed{others}, of {}",
        counts.succeeded, counts.failed, counts.total
    )
}

fn attempt_table(attempts: &[Attempt]) -> Table {
    let mut table = Table::new(
        &[
            Column::new("ATTEMPT"),
            Column::new("STATE"),
            Column::new("EXIT"),
            Column::text("WHY"),
        ],
        false,
    );
    for attempt in attempts {
        table.row(vec![
            attempt.number.to_string(),
            attempt
                .state
                .map_or_else(|| "-".to_owned(), |state| state.to_string()),
            attempt
                .exit_code
                .map_or_else(|| "-".to_owned(), |code| code.to_string()),
            attempt.why.clone().unwrap_or_default(),
        ]);
    }
    table
}

fn node_table(nodes: &[NodeStatus]) -> Table {
    let mut table = Table::new(
        &[
            Column::new("NODE"),
            Column::text("NAME"),
            Column::new("PROCESS"),
            Column::text("LOST"),
        ],
        false,
    );
    for node in nodes {
        table.row(vec![
            node.index.to_string(),
            node.name.clone(),
            node.pid.to_string(),
            node.lost.clone().unwrap_or_default(),
        ]);
    }
    table
}

fn rank_table(ranks: &[RankStatus], context: &Context) -> Table {
    let mut table = Table::new(
        &[
            Column::new("RANK"),
            Column::new("NODE"),
            Column::new("PROCESS"),
            Column::text("END"),
        ],
        false,
    );
    for rank in ranks.iter().take(MAX_RANKS) {
        let end = match (rank.end, rank.stopped) {
            (None, _) => "running".to_owned(),
            (Some(end), true) => format!("{}, stopped by herd", sentence::process_end(end)),
            (Some(end), false) => sentence::process_end(end),
        };
        table.row(vec![
            rank.rank.to_string(),
            context.node(rank.node),
            rank.pid
                .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            end,
        ]);
    }
    table
}
