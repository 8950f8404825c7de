//! What is said after a run: the failure box, one summary line, the next useful commands.
//!
//! Pure functions over results; they read no file and write nothing.

use herd_core::exit::ProcessEnd;
use herd_core::result::{AttemptEnd, Failure, JobResult, RankResult};

use crate::error::count;
use crate::printer::table::state_color;
use crate::text;

/// Most lines of output shown of one rank.
const MAX_LINES: usize = 20;
/// Most lines of a traceback; its end says most.
const MAX_TRACEBACK: usize = 40;
/// Most other ranks that get a line of their own.
const MAX_OTHERS: usize = 16;

/// What the report needs to know besides the result.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Short id of the job.
    pub(crate) short: String,
    /// Name of the job.
    pub(crate) name: String,
    /// When the job was handed in, milliseconds since the Unix epoch.
    pub(crate) started_ms: u64,
    /// Names of nodes by index; `node<i>` where one is missing.
    pub(crate) nodes: Vec<String>,
    /// Path of the merged log.
    pub(crate) log: String,
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
        failure_lines(&mut lines, failure, context);
        if let Some(end) = end {
            other_ranks(&mut lines, first_rank(failure), &end.ranks, context);
        }
    }
    if let Some(rejection) = &result.rejection {
        lines.push(format!(
            "herd: the job was refused: {}",
            clean(&rejection.detail)
        ));
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
    let took = text::span(result.ended_ms.saturating_sub(context.started_ms));
    let attempts = if result.attempts > 1 {
        format!(" in {} attempts", result.attempts)
    } else {
        String::new()
    };
    let tasks = result.tasks.map_or_else(String::new, |tasks| {
        format!(", {} of {} tasks succeeded", tasks.succeeded, tasks.total)
    });
    format!(
        "herd: {} ({}) {state} after {took}{attempts}{tasks}, exit code {}, log {}",
        clean(&context.name),
        context.short,
        result.exit_code,
        clean(&context.log)
    )
}

/// One sentence that says why an attempt failed.
pub(crate) fn failure_sentence(failure: &Failure, context: &Context) -> String {
    match failure {
        Failure::SetupFailed {
            node,
            end,
            start_error,
            ..
        } => match start_error {
            Some(error) => format!("setup could not start on {}: {error}", context.node(*node)),
            None => format!(
                "setup failed on {}: {}",
                context.node(*node),
                end_text(*end)
            ),
        },
        Failure::RankFailed(rank) => match &rank.start_error {
            Some(error) => {
                format!(
                    "rank {} could not start on {}: {error}",
                    rank.rank,
                    context.node(rank.node)
                )
            }
            None => format!(
                "rank {} failed first, on {}: {}",
                rank.rank,
                context.node(rank.node),
                end_text(rank.end)
            ),
        },
        Failure::OutOfMemory(rank) => format!(
            "rank {} on {} was ended for want of memory (it had reached {} MiB)",
            rank.rank,
            context.node(rank.node),
            rank.peak_kib / 1024
        ),
        Failure::NodeLost { node, detail, .. } => format!("node {node} was lost: {detail}"),
        Failure::DriverLost { detail } => format!("the driver was lost: {detail}"),
        Failure::TimeLimit { seconds } => {
            format!(
                "the time limit of {} passed",
                text::span(seconds.saturating_mul(1000))
            )
        }
    }
}

/// How a process ended, for people.
pub(crate) fn end_text(end: ProcessEnd) -> String {
    match end {
        ProcessEnd::Exited(code) => format!("exit code {code}"),
        ProcessEnd::Signaled(number) => match text::signal_name(number) {
            Some(name) => format!("signal {number} ({name})"),
            None => format!("signal {number}"),
        },
    }
}

fn first_rank(failure: &Failure) -> Option<&RankResult> {
    match failure {
        Failure::RankFailed(rank) | Failure::OutOfMemory(rank) => Some(rank),
        Failure::SetupFailed { .. }
        | Failure::NodeLost { .. }
        | Failure::DriverLost { .. }
        | Failure::TimeLimit { .. } => None,
    }
}

fn failure_lines(lines: &mut Vec<String>, failure: &Failure, context: &Context) {
    let title = clean(&failure_sentence(failure, context));
    match failure {
        // What never ran wrote nothing: the sentence says all there is.
        Failure::RankFailed(rank) if rank.start_error.is_some() => {
            lines.push(format!("herd: {title}"));
        }
        Failure::RankFailed(rank) | Failure::OutOfMemory(rank) => {
            let mut sections = vec![("last lines", tail(&rank.last_lines, MAX_LINES))];
            if let Some(error) = &rank.error {
                let traceback = error.traceback.as_deref().unwrap_or(&error.message);
                let traceback: Vec<String> = traceback.lines().map(str::to_owned).collect();
                // A program that died of its exception has printed the traceback already.
                if !ends_with(&rank.last_lines, &traceback) {
                    sections.push(("traceback", tail(&traceback, MAX_TRACEBACK)));
                }
            }
            framed(lines, &title, &sections, context);
        }
        Failure::SetupFailed { last_lines, .. } | Failure::NodeLost { last_lines, .. }
            if !last_lines.is_empty() || matches!(failure, Failure::SetupFailed { .. }) =>
        {
            framed(
                lines,
                &title,
                &[("last lines", tail(last_lines, MAX_LINES))],
                context,
            );
        }
        Failure::SetupFailed { .. }
        | Failure::NodeLost { .. }
        | Failure::DriverLost { .. }
        | Failure::TimeLimit { .. } => {
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
        lines.push(format!(
            "{red}│{reset} {dim}(it wrote nothing to stderr){reset}"
        ));
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
        let what = match (&rank.start_error, &rank.error) {
            (Some(error), _) => format!("could not start: {error}"),
            (None, Some(error)) => {
                let message = error.message.lines().next().unwrap_or_default();
                format!("{}: {message}", end_text(rank.end))
            }
            (None, None) => end_text(rank.end),
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

fn next_commands(result: &JobResult, context: &Context) -> Vec<String> {
    let short = &context.short;
    if result.rejection.is_some() || result.exit_code == 0 {
        return Vec::new();
    }
    match &result.failure {
        Some(Failure::RankFailed(rank)) if rank.start_error.is_some() => {
            vec![format!("herd status {short}")]
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
mod tests {
    use herd_core::result::{RankError, Rejection, TaskCounts};
    use herd_core::state::{AttemptState, JobState, RejectionKind};

    use super::*;

    fn context() -> Context {
        Context {
            short: "7f3a9c21".to_owned(),
            name: "digits".to_owned(),
            started_ms: 1_000,
            nodes: vec!["node0".to_owned(), "node1".to_owned()],
            log: "/home/me/run.log".to_owned(),
            width: 60,
            color: false,
        }
    }

    fn rank(rank: u32, end: ProcessEnd) -> RankResult {
        RankResult {
            rank,
            node: rank / 2,
            end,
            ended_ms: 5_000,
            stopped: false,
            start_error: None,
            error: None,
            last_lines: Vec::new(),
            cpu_ms: 0,
            peak_kib: 0,
            out_of_memory: false,
        }
    }

    fn failed(failure: Failure) -> JobResult {
        JobResult {
            state: JobState::Failed,
            rejection: None,
            exit_code: failure.exit_code(),
            failure: Some(failure),
            attempts: 1,
            ended_ms: 13_345,
            tasks: None,
        }
    }

    #[test]
    fn success_is_one_line() {
        let result = JobResult {
            state: JobState::Succeeded,
            rejection: None,
            failure: None,
            exit_code: 0,
            attempts: 1,
            ended_ms: 3_500,
            tasks: None,
        };
        assert_eq!(
            after_run(&result, None, &context()),
            "herd: digits (7f3a9c21) SUCCEEDED after 2.5 s, exit code 0, log /home/me/run.log\n"
        );
    }

    #[test]
    fn the_first_failing_rank_is_boxed_and_the_others_get_a_line() {
        let mut first = rank(3, ProcessEnd::Exited(1));
        first.last_lines = vec![
            "epoch 1".to_owned(),
            "bad \u{1b}[2J\u{1b}]0;x\u{7}value".to_owned(),
        ];
        first.error = Some(RankError {
            message: "ValueError: no data".to_owned(),
            traceback: Some("Traceback:\n  File \"train.py\"\nValueError: no data".to_owned()),
            timestamp_ms: None,
        });
        let mut second = rank(2, ProcessEnd::Signaled(11));
        second.error = Some(RankError {
            message: "Segmentation fault\nmore".to_owned(),
            traceback: None,
            timestamp_ms: None,
        });
        let mut stopped = rank(0, ProcessEnd::Signaled(15));
        stopped.stopped = true;
        let end = AttemptEnd {
            state: AttemptState::Failed,
            failure: None,
            exit_code: 1,
            ended_ms: 13_345,
            ranks: vec![
                stopped,
                rank(1, ProcessEnd::Exited(0)),
                second,
                first.clone(),
            ],
        };
        let result = failed(Failure::RankFailed(Box::new(first)));
        insta::assert_snapshot!(after_run(&result, Some(&end), &context()), @r#"
        ┌─ rank 3 failed first, on node1: exit code 1 ──────────────
        │ epoch 1
        │ bad value
        ├─ traceback ───────────────────────────────────────────────
        │ Traceback:
        │   File "train.py"
        │ ValueError: no data
        └───────────────────────────────────────────────────────────
          rank 2 on node1 failed too: signal 11 (SIGSEGV): Segmentation fault
          1 rank was stopped by herd
        herd: digits (7f3a9c21) FAILED after 12.3 s, exit code 1, log /home/me/run.log
          herd logs 7f3a9c21 --rank 3
          herd status 7f3a9c21
        "#);
    }

    #[test]
    fn a_traceback_that_was_printed_is_not_shown_twice() {
        let mut first = rank(0, ProcessEnd::Exited(1));
        first.last_lines = ["x", "Traceback:", "  File \"a\"", "E: b"]
            .map(str::to_owned)
            .to_vec();
        first.error = Some(RankError {
            message: "E: b".to_owned(),
            traceback: Some("Traceback:\n  File \"a\"\nE: b\n".to_owned()),
            timestamp_ms: None,
        });
        let text = after_run(
            &failed(Failure::RankFailed(Box::new(first))),
            None,
            &context(),
        );
        assert_eq!(text.matches("Traceback:").count(), 1, "{text}");
    }

    #[test]
    fn a_program_that_never_ran_needs_no_box() {
        let mut first = rank(0, ProcessEnd::Exited(127));
        first.start_error = Some("program \"x\" not found".to_owned());
        let result = failed(Failure::RankFailed(Box::new(first)));
        let text = after_run(&result, None, &context());
        assert!(
            text.starts_with("herd: rank 0 could not start on node0: program"),
            "{text}"
        );
        assert!(!text.contains('│') && !text.contains("herd logs"), "{text}");
    }

    #[test]
    fn long_output_is_cut_at_its_beginning() {
        let mut first = rank(0, ProcessEnd::Exited(1));
        first.last_lines = (0..50).map(|n| format!("line {n}")).collect();
        let text = after_run(
            &failed(Failure::RankFailed(Box::new(first))),
            None,
            &context(),
        );
        assert!(
            text.contains("(30 lines before)") && text.contains("line 49"),
            "{text}"
        );
        assert!(!text.contains("line 29\n"), "{text}");
    }

    #[test]
    fn a_thousand_failing_ranks_do_not_flood_the_terminal() {
        let ranks: Vec<_> = (0..1000).map(|n| rank(n, ProcessEnd::Exited(1))).collect();
        let end = AttemptEnd {
            state: AttemptState::Failed,
            failure: None,
            exit_code: 1,
            ended_ms: 0,
            ranks: ranks.clone(),
        };
        let result = failed(Failure::RankFailed(Box::new(ranks[0].clone())));
        let text = after_run(&result, Some(&end), &context());
        assert!(text.lines().count() < 30);
        assert!(text.contains("983 further ranks failed too"), "{text}");
    }

    #[test]
    fn each_reason_has_its_sentence() {
        let context = context();
        let cases = [
            (
                Failure::SetupFailed {
                    node: 1,
                    end: ProcessEnd::Exited(4),
                    last_lines: vec![],
                    start_error: None,
                },
                "setup failed on node1: exit code 4",
            ),
            (
                Failure::NodeLost {
                    node: "n7".into(),
                    detail: "silent for 15 s".into(),
                    last_lines: vec![],
                },
                "node n7 was lost: silent for 15 s",
            ),
            (
                Failure::TimeLimit { seconds: 7200 },
                "the time limit of 2h00m passed",
            ),
        ];
        for (failure, sentence) in cases {
            assert_eq!(failure_sentence(&failure, &context), sentence);
        }
    }

    #[test]
    fn arrays_and_refusals_say_so() {
        let mut result = failed(Failure::TimeLimit { seconds: 1 });
        result.tasks = Some(TaskCounts {
            total: 10,
            succeeded: 7,
            failed: 3,
            running: 0,
        });
        result.attempts = 2;
        let text = summary(&result, &context());
        assert!(
            text.contains("in 2 attempts, 7 of 10 tasks succeeded, exit code 124"),
            "{text}"
        );

        result.failure = None;
        result.rejection = Some(Rejection {
            kind: RejectionKind::Unsupported,
            detail: "local has no images".to_owned(),
        });
        let text = after_run(&result, None, &context());
        assert!(
            text.starts_with("herd: the job was refused: local has no images\n"),
            "{text}"
        );
    }
}
