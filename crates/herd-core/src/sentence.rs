//! Sentences about how things ended, the same in every list, event and report.

use crate::exit::ProcessEnd;
use crate::result::{Failure, RankResult};
use crate::signal;
use crate::units::Span;

/// Most characters of a program's own message; the rest is in its log.
const MAX_MESSAGE: usize = 200;

/// Why an attempt failed, in one line without what the program itself said.
///
/// `node` names a node by its index.
pub fn failure_title(failure: &Failure, node: &dyn Fn(u32) -> String) -> String {
    match failure {
        Failure::SetupFailed {
            node: index,
            end,
            start_error,
            ..
        } => match start_error {
            Some(error) => format!("setup could not start on {}: {error}", node(*index)),
            None => format!("setup failed on {}: {}", node(*index), process_end(*end)),
        },
        Failure::RankFailed(rank) => match &rank.start_error {
            Some(error) => format!(
                "rank {} could not start on {}: {error}",
                rank.rank,
                node(rank.node)
            ),
            None => format!(
                "rank {} failed first, on {}: {}",
                rank.rank,
                node(rank.node),
                process_end(rank.end)
            ),
        },
        Failure::TaskFailed(task) => {
            let task = &task.result;
            let (index, on) = (task.index, node(task.node));
            if let Some(why) = &task.failure {
                return format!("task {index} failed first: {}", failure_title(why, node));
            }
            match &task.start_error {
                Some(error) => format!("task {index} could not start on {on}: {error}"),
                None if task.out_of_memory => {
                    format!("task {index} failed first, on {on}: it was ended for want of memory")
                }
                None => format!(
                    "task {index} failed first, on {on}: {}",
                    process_end(task.end)
                ),
            }
        }
        Failure::OutOfMemory(rank) => format!(
            "rank {} on {} was ended for want of memory (it had reached {} MiB)",
            rank.rank,
            node(rank.node),
            rank.peak_kib / 1024
        ),
        Failure::NodeLost { node, detail, .. } => format!("node {node} was lost: {detail}"),
        Failure::DriverLost { detail } => format!("the driver was lost: {detail}"),
        Failure::TimeLimit { seconds, early_ms } => {
            let limit = Span::from_secs(*seconds);
            match early_ms {
                0 => format!("the time limit of {limit} passed"),
                ms => format!(
                    "the time limit of {limit} was reached: asked to end {} before it",
                    Span { ms: *ms }
                ),
            }
        }
    }
}

/// Why an attempt failed, with the first line of what the program said about its own failure.
pub fn failure(failure: &Failure, node: &dyn Fn(u32) -> String) -> String {
    let title = failure_title(failure, node);
    match failure {
        Failure::RankFailed(rank) | Failure::OutOfMemory(rank) => match message(rank) {
            Some(message) if rank.start_error.is_none() => format!("{title}: {message}"),
            Some(_) | None => title,
        },
        Failure::SetupFailed { .. }
        | Failure::TaskFailed(_)
        | Failure::NodeLost { .. }
        | Failure::DriverLost { .. }
        | Failure::TimeLimit { .. } => title,
    }
}

/// The first line of what a rank's error file says, cut where it is long.
pub fn message(rank: &RankResult) -> Option<String> {
    let line = rank.error.as_ref()?.message.lines().next()?;
    let mut kept: String = line.chars().take(MAX_MESSAGE).collect();
    if kept.len() < line.len() {
        kept.push('…');
    }
    Some(kept)
}

/// `signal 2 (SIGINT)`.
pub fn signal(number: u8) -> String {
    match signal::name_of(number) {
        Some(name) => format!("signal {number} ({name})"),
        None => format!("signal {number}"),
    }
}

/// `exit code 3` or `signal 9 (SIGKILL)`.
pub fn process_end(end: ProcessEnd) -> String {
    match end {
        ProcessEnd::Exited(code) => format!("exit code {code}"),
        ProcessEnd::Signaled(number) => signal(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{RankError, TaskResult};

    fn rank(end: ProcessEnd, message: Option<&str>) -> Box<RankResult> {
        Box::new(RankResult {
            error: message.map(|message| RankError {
                message: message.to_owned(),
                traceback: None,
                timestamp_ms: None,
            }),
            peak_kib: 2048,
            ..RankResult::ended(3, 1, end, 0)
        })
    }

    fn task(start_error: Option<&str>) -> Failure {
        let result = TaskResult {
            index: 13,
            attempt: 1,
            node: 1,
            end: ProcessEnd::Exited(4),
            started_ms: 0,
            ended_ms: 0,
            start_error: start_error.map(str::to_owned),
            log_offset: 0,
            log_bytes: None,
            stopped: false,
            again: false,
            out_of_memory: false,
            failure: None,
        };
        result.failure()
    }

    #[test]
    fn each_reason_has_its_sentence() {
        let setup = |start_error: Option<&str>| Failure::SetupFailed {
            node: 1,
            end: ProcessEnd::Exited(4),
            last_lines: vec![],
            start_error: start_error.map(str::to_owned),
        };
        let cases = [
            (setup(None), "setup failed on node1: exit code 4"),
            (
                setup(Some("no bash")),
                "setup could not start on node1: no bash",
            ),
            (
                Failure::RankFailed(rank(ProcessEnd::Signaled(11), None)),
                "rank 3 failed first, on node1: signal 11 (SIGSEGV)",
            ),
            (task(None), "task 13 failed first, on node1: exit code 4"),
            (
                task(Some("no such file")),
                "task 13 could not start on node1: no such file",
            ),
            (
                Failure::RankFailed(rank(ProcessEnd::Exited(1), Some("ValueError: no\nmore"))),
                "rank 3 failed first, on node1: exit code 1: ValueError: no",
            ),
            (
                Failure::OutOfMemory(rank(ProcessEnd::Signaled(9), None)),
                "rank 3 on node1 was ended for want of memory (it had reached 2 MiB)",
            ),
            (
                Failure::NodeLost {
                    node: "n7".into(),
                    detail: "silent for 15 s".into(),
                    last_lines: Vec::new(),
                },
                "node n7 was lost: silent for 15 s",
            ),
            (
                Failure::TimeLimit {
                    seconds: 7200,
                    early_ms: 0,
                },
                "the time limit of 2h passed",
            ),
            (
                Failure::TimeLimit {
                    seconds: 30,
                    early_ms: 3000,
                },
                "the time limit of 30s was reached: asked to end 3s before it",
            ),
        ];
        for (reason, sentence) in cases {
            assert_eq!(failure(&reason, &|index| format!("node{index}")), sentence);
        }
    }

    #[test]
    fn a_long_message_is_cut() {
        let rank = rank(ProcessEnd::Exited(1), Some(&"ä".repeat(1000)));
        assert_eq!(message(&rank).unwrap().chars().count(), MAX_MESSAGE + 1);
    }
}
