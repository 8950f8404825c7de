//! What is said after a run: the failure box, one summary line, the next useful commands.
//!
//! Pure functions over results; they read no file and write nothing.

use herd_core::result::{AttemptEnd, Failure, JobResult, RankError, RankResult, TaskCounts};
use herd_core::sentence;
use herd_core::spec::Array;
use herd_jobdir::status::TaskOverview;

use crate::error::count;
use crate::printer::table::state_color;
use crate::text;

/// Most lines of output shown of one rank.
const MAX_LINES: usize = 20;
/// Most lines of a traceback; its end says most.
const MAX_TRACEBACK: usize = 40;
/// Most other ranks that get a line of their own.
const MAX_OTHERS: usize = 16;

/// Most characters of a list of tasks shown to people.
const MAX_TASK_LIST: usize = 400;
/// Said where nothing can be shown of a rank: of its streams only stderr is.
const NO_STDERR: &str = "it wrote nothing to stderr";

/// What the report needs to know besides the result.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Short id of the job.
    pub(crate) short: String,
    /// Name of the job.
    pub(crate) name: String,
    /// When its first attempt began, milliseconds since the Unix epoch; nothing ran before.
    pub(crate) started_ms: Option<u64>,
    /// Why it ended, where no failure says it.
    pub(crate) why: Option<String>,
    /// Names of nodes by index; `node<i>` where one is missing.
    pub(crate) nodes: Vec<String>,
    /// Path of the merged log.
    pub(crate) log: String,
    /// What else a person should know of the end.
    pub(crate) note: Option<String>,
    /// Whether all output was shown where the report goes.
    pub(crate) output_shown: bool,
    /// The tasks of an array.
    pub(crate) tasks: Option<TaskOverview>,
    /// Columns of the terminal.
    pub(crate) width: usize,
    /// Whether to colour.
    pub(crate) color: bool,
}

impl Context {
    /// The name of a node.
    pub(crate) fn node(&self, index: u32) -> String {
        let name = usize::try_from(index)
            .ok()
            .and_then(|index| self.nodes.get(index));
        name.cloned().unwrap_or_else(|| format!("node{index}"))
    }
}

/// All that is said after a run; every line ends with a newline.
pub(crate) fn after_run(result: &JobResult, end: Option<&AttemptEnd>, context: &Context) -> String {
    let mut lines = Vec::new();
    if let Some(failure) = &result.failure {
        match just_shown(failure, end, context) {
            Some(line) => lines.push(line),
            None => failure_lines(&mut lines, failure, context),
        }
        if let Some(end) = end {
            other_ranks(&mut lines, first_rank(failure), &end.ranks, context);
        }
    }
    if let Some(tasks) = &context.tasks {
        failed_tasks(&mut lines, tasks, context);
    }
    if let Some(rejection) = &result.rejection {
        lines.push(format!(
            "herd: the job was refused: {}",
            clean(&rejection.detail)
        ));
    }
    if let Some(note) = &context.note {
        lines.push(format!("herd: {}", clean(note)));
    }
    lines.push(summary(result, context));
    for command in next_commands(result, context) {
        lines.push(format!("  {command}"));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// State, time, exit code and log path in one line.
pub(crate) fn summary(result: &JobResult, context: &Context) -> String {
    let state = result.state.to_string();
    let state = if context.color {
        format!("{}{state}\x1b[0m", state_color(&state))
    } else {
        state
    };
    let took = match context.started_ms {
        Some(started) => {
            let took = result.ended_ms.saturating_sub(started);
            format!("after {}", text::span(took))
        }
        None => "before it started".to_owned(),
    };
    let why = match &context.why {
        Some(why) if result.failure.is_none() && result.rejection.is_none() => {
            format!(" ({})", clean(why))
        }
        Some(_) | None => String::new(),
    };
    let attempts = if result.attempts > 1 {
        format!(" in {} attempts", result.attempts)
    } else {
        String::new()
    };
    let tasks = result.tasks.map_or_else(String::new, |tasks| {
        let begun = tasks.succeeded + tasks.failed + tasks.stopped;
        let others = [
            (tasks.failed, "failed"),
            (tasks.stopped, "stopped"),
            (tasks.total.saturating_sub(begun), "not started"),
        ];
        let others = counted(&others);
        let TaskCounts {
            succeeded, total, ..
        } = tasks;
        format!(", {succeeded} of {total} tasks succeeded{others}")
    });
    format!(
        "herd: {} ({}) {state} {took}{attempts}{why}{tasks}, exit code {}, log {}",
        clean(&context.name),
        context.short,
        result.exit_code,
        clean(&context.log)
    )
}

/// The counts that are not zero, each with its word and a comma before it.
pub(crate) fn counted(counts: &[(u32, &str)]) -> String {
    let mut text = String::new();
    for (number, what) in counts.iter().filter(|(number, _)| *number > 0) {
        for part in [", ", &number.to_string(), " ", what] {
            text.push_str(part);
        }
    }
    text
}

/// One sentence that says why an attempt failed.
pub(crate) fn failure_sentence(failure: &Failure, context: &Context) -> String {
    sentence::failure(failure, &|index| context.node(index))
}

fn first_rank(failure: &Failure) -> Option<&RankResult> {
    match failure {
        Failure::RankFailed(rank) | Failure::OutOfMemory(rank) => Some(rank),
        Failure::SetupFailed { .. }
        | Failure::TaskFailed(_)
        | Failure::NodeLost { .. }
        | Failure::DriverLost { .. }
        | Failure::TimeLimit { .. } => None,
    }
}

/// One line in place of the box, where the box would repeat what stands right above it: the output
/// of the job's only rank, all of which was shown. Several ranks' output comes mixed, with the
/// reason somewhere in it, and a traceback that only the error file has was not shown.
fn just_shown(failure: &Failure, end: Option<&AttemptEnd>, context: &Context) -> Option<String> {
    let (Failure::RankFailed(rank), Some(end)) = (failure, end) else {
        return None;
    };
    if !context.output_shown || end.ranks.len() != 1 || rank.start_error.is_some() {
        return None;
    }
    if rank
        .error
        .as_ref()
        .is_some_and(|error| !ends_with(&rank.last_lines, &traceback(error)))
    {
        return None;
    }
    let title = sentence::failure_title(failure, &|index| context.node(index));
    let mut line = format!("herd: {}", clean(&title));
    let is_traceback = |line: &String| line.trim_start().starts_with("Traceback");
    if rank.last_lines.iter().any(is_traceback) {
        let mut lines = rank.last_lines.iter().rev().map(|line| clean(line));
        if let Some(last) = lines.find(|line| !line.trim().is_empty()) {
            line.push_str(": ");
            line.push_str(last.trim());
        }
    }
    Some(line)
}

/// The lines of a rank's traceback, or of the message where it has none.
fn traceback(error: &RankError) -> Vec<String> {
    let text = error.traceback.as_deref().unwrap_or(&error.message);
    text.lines().map(str::to_owned).collect()
}

fn failure_lines(lines: &mut Vec<String>, failure: &Failure, context: &Context) {
    let title = sentence::failure_title(failure, &|index| context.node(index));
    let title = clean(&title);
    match failure {
        // What never ran wrote nothing: the sentence says all there is.
        Failure::RankFailed(rank) if rank.start_error.is_some() => {
            lines.push(format!("herd: {title}"));
        }
        Failure::TaskFailed(task) if task.result.start_error.is_some() => {
            lines.push(format!("herd: {title}"));
        }
        Failure::TaskFailed(task) => {
            let sections = [("last lines", tail(&task.last_lines, MAX_LINES))];
            framed(lines, &title, &sections, "it wrote nothing", context);
        }
        Failure::RankFailed(rank) | Failure::OutOfMemory(rank) => {
            let mut sections = vec![("last lines", tail(&rank.last_lines, MAX_LINES))];
            if let Some(error) = &rank.error {
                let traceback = traceback(error);
                // A program that died of its exception has printed the traceback already.
                if !ends_with(&rank.last_lines, &traceback) {
                    sections.push(("traceback", tail(&traceback, MAX_TRACEBACK)));
                }
            }
            framed(lines, &title, &sections, NO_STDERR, context);
        }
        // A daemon of the job that was the node's loss has written something.
        Failure::NodeLost { last_lines, .. } if last_lines.is_empty() => {
            lines.push(format!("herd: {title}"));
        }
        Failure::SetupFailed { last_lines, .. } | Failure::NodeLost { last_lines, .. } => {
            framed(
                lines,
                &title,
                &[("last lines", tail(last_lines, MAX_LINES))],
                "it wrote nothing",
                context,
            );
        }
        Failure::DriverLost { .. } | Failure::TimeLimit { .. } => {
            lines.push(format!("herd: {title}"));
        }
    }
}

fn ends_with(lines: &[String], end: &[String]) -> bool {
    let end: Vec<&str> = end
        .iter()
        .map(|line| line.trim())
        .filter(|line| !line.is_empty())
        .collect();
    let lines: Vec<&str> = lines
        .iter()
        .map(|line| line.trim())
        .filter(|line| !line.is_empty())
        .collect();
    !end.is_empty() && lines.windows(end.len()).any(|window| window == end)
}

fn tail(lines: &[String], most: usize) -> Vec<String> {
    let skipped = lines.len().saturating_sub(most);
    let mut kept = Vec::with_capacity(lines.len() - skipped + 1);
    if skipped > 0 {
        kept.push(format!("({skipped} lines before)"));
    }
    kept.extend(lines[skipped..].iter().cloned());
    kept
}

/// A box open to the right, so that long lines stay whole and can be copied.
fn framed(
    lines: &mut Vec<String>,
    title: &str,
    sections: &[(&str, Vec<String>)],
    empty: &str,
    context: &Context,
) {
    let (red, dim, reset) = if context.color {
        ("\x1b[1;31m", "\x1b[2m", "\x1b[0m")
    } else {
        ("", "", "")
    };
    let shown: Vec<_> = sections
        .iter()
        .filter(|(_, content)| !content.is_empty())
        .collect();
    let rule = |label: &str| {
        let used = label.chars().count() + 4;
        "─".repeat(context.width.clamp(24, 100).saturating_sub(used).max(2))
    };
    lines.push(format!("{red}┌─ {title} {}{reset}", rule(title)));
    for (number, (label, content)) in shown.iter().enumerate() {
        // A single section of last lines needs no heading.
        if number > 0 || *label != "last lines" {
            lines.push(format!("{red}├─ {label} {}{reset}", rule(label)));
        }
        for line in content {
            lines.push(format!("{red}│{reset} {}", clean(line)));
        }
    }
    if shown.is_empty() {
        lines.push(format!("{red}│{reset} {dim}({empty}){reset}"));
    }
    lines.push(format!(
        "{red}└{}{reset}",
        "─".repeat(context.width.clamp(24, 100) - 1)
    ));
}

fn other_ranks(
    lines: &mut Vec<String>,
    first: Option<&RankResult>,
    ranks: &[RankResult],
    context: &Context,
) {
    let is_first = |rank: &RankResult| first.is_some_and(|first| first.rank == rank.rank);
    let others: Vec<&RankResult> = ranks
        .iter()
        .filter(|rank| !is_first(rank) && !rank.stopped)
        .filter(|rank| !rank.end.is_success() || rank.start_error.is_some())
        .collect();
    for rank in others.iter().take(MAX_OTHERS) {
        let end = sentence::process_end(rank.end);
        let what = match (&rank.start_error, sentence::message(rank)) {
            (Some(error), _) => format!("could not start: {error}"),
            (None, Some(message)) => format!("{end}: {message}"),
            (None, None) => end,
        };
        let line = format!(
            "rank {} on {} failed too: {what}",
            rank.rank,
            context.node(rank.node)
        );
        lines.push(format!("  {}", clean(&line)));
    }
    if others.len() > MAX_OTHERS {
        lines.push(format!(
            "  {} failed too",
            count(others.len() - MAX_OTHERS, "further rank")
        ));
    }
    let stopped = ranks
        .iter()
        .filter(|rank| rank.stopped && !is_first(rank))
        .count();
    if stopped > 0 {
        let were = if stopped == 1 { "was" } else { "were" };
        lines.push(format!(
            "  {} {were} stopped by herd",
            count(stopped, "rank")
        ));
    }
}

/// The tasks that failed, in the form in which a job file runs them again.
fn failed_tasks(lines: &mut Vec<String>, tasks: &TaskOverview, context: &Context) {
    let Some(failed) = &tasks.failed_tasks else {
        return;
    };
    let number = count(failed.indices.len(), "task");
    lines.push(match task_list(failed) {
        Ok(list) => {
            let them = if failed.indices.len() == 1 {
                "it"
            } else {
                "them"
            };
            format!("  {number} failed; to run {them} again: `array: {list}`")
        }
        Err(list) => format!(
            "  {number} failed: {list} (`herd status {} -o json` has all)",
            context.short
        ),
    });
}

/// Indices as a job file takes them; as an error, where there are too many to show, the first ones.
pub(crate) fn task_list(array: &Array) -> Result<String, String> {
    let list = array.to_string();
    if list.len() <= MAX_TASK_LIST {
        return Ok(list);
    }
    let shown = list.get(..MAX_TASK_LIST).unwrap_or_default();
    let shown = shown.rsplit_once(',').map_or(shown, |(whole, _)| whole);
    Err(format!("{shown},…"))
}

fn next_commands(result: &JobResult, context: &Context) -> Vec<String> {
    let short = &context.short;
    if result.rejection.is_some() || result.exit_code == 0 {
        return Vec::new();
    }
    match &result.failure {
        Some(Failure::RankFailed(rank)) if rank.start_error.is_some() => {
            vec![format!("herd status {short}")]
        }
        Some(Failure::TaskFailed(task)) => {
            let mut commands = vec![format!("herd status {short}")];
            if task.result.start_error.is_none() {
                let index = task.result.index;
                commands.insert(0, format!("herd logs {short} --task {index}"));
            }
            commands
        }
        Some(Failure::RankFailed(rank) | Failure::OutOfMemory(rank)) => {
            vec![
                format!("herd logs {short} --rank {}", rank.rank),
                format!("herd status {short}"),
            ]
        }
        Some(
            Failure::SetupFailed { .. }
            | Failure::NodeLost { .. }
            | Failure::DriverLost { .. }
            | Failure::TimeLimit { .. },
        ) => vec![format!("herd logs {short}"), format!("herd events {short}")],
        None => vec![format!("herd status {short}")],
    }
}

/// A line without control sequences; colour goes too, since the box has its own.
pub(crate) fn clean(line: &str) -> String {
    let bytes = herd_jobdir::sanitize::sanitize(line.as_bytes());
    let text = String::from_utf8_lossy(&bytes);
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            // The filter leaves colours alone, and they end with their letter.
            rest.by_ref().find(|c| *c == 'm');
        } else if c == '\t' || !c.is_control() {
            kept.push(c);
        }
    }
    kept
}

#[cfg(test)]
mod tests;
