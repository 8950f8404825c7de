//! What is said after runs of every kind.

use herd_core::exit::ProcessEnd;
use herd_core::result::{Rejection, TaskCounts};
use herd_core::state::{AttemptState, JobState, RejectionKind};

use super::*;

fn context() -> Context {
    Context {
        short: "7f3a9c21".to_owned(),
        name: "digits".to_owned(),
        started_ms: Some(1_000),
        why: None,
        nodes: vec!["node0".to_owned(), "node1".to_owned()],
        log: "/home/me/run.log".to_owned(),
        tasks: None,
        note: None,
        output_shown: false,
        width: 60,
        color: false,
    }
}

fn rank(rank: u32, end: ProcessEnd) -> RankResult {
    RankResult::ended(rank, rank / 2, end, 5_000)
}

fn failed(failure: Failure) -> JobResult {
    JobResult {
        state: JobState::Failed,
        rejection: None,
        reason: None,
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
        reason: None,
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
        why: None,
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

/// One rank's output was all there was to see, so it stands right above the report.
#[test]
fn what_was_just_shown_of_the_only_rank_is_not_shown_again() {
    let shown = Context {
        output_shown: true,
        ..context()
    };
    let report = |rank: &RankResult, others: &[RankResult], context: &Context| {
        let end = AttemptEnd {
            why: None,
            state: AttemptState::Failed,
            failure: None,
            exit_code: 1,
            ended_ms: 13_345,
            ranks: [std::slice::from_ref(rank), others].concat(),
        };
        let result = failed(Failure::RankFailed(Box::new(rank.clone())));
        after_run(&result, Some(&end), context)
    };
    let mut only = rank(0, ProcessEnd::Exited(1));
    only.last_lines = [
        "x",
        "Traceback (most recent call last):",
        "  File \"a\"",
        "E: \u{1b}[31mb\u{1b}[0m",
        "",
    ]
    .map(str::to_owned)
    .to_vec();
    let text = report(&only, &[], &shown);
    let first = "herd: rank 0 failed first, on node0: exit code 1: E: b\n";
    assert!(text.starts_with(first), "{text}");
    assert!(!text.contains('│') && text.contains("herd logs"), "{text}");
    // Shown elsewhere, or among the output of others.
    assert!(report(&only, &[], &context()).contains("│ E: b"));
    assert!(report(&only, &[rank(1, ProcessEnd::Exited(0))], &shown).contains("│ E: b"));
    // A traceback that only the error file has.
    only.last_lines = vec!["x".to_owned()];
    let plain = report(&only, &[], &shown);
    let first = "herd: rank 0 failed first, on node0: exit code 1\n";
    assert!(plain.starts_with(first), "{plain}");
    only.error = Some(RankError {
        message: "E: b".to_owned(),
        traceback: Some("Traceback:\n  File \"a\"\nE: b\n".to_owned()),
        timestamp_ms: None,
    });
    assert!(report(&only, &[], &shown).contains("│ E: b"));
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
        why: None,
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
fn arrays_and_refusals_say_so() {
    let mut result = failed(Failure::TimeLimit {
        seconds: 1,
        early_ms: 0,
    });
    result.tasks = Some(TaskCounts {
        total: 10,
        succeeded: 7,
        failed: 2,
        retrying: 0,
        stopped: 1,
    });
    result.attempts = 2;
    let text = summary(&result, &context());
    assert!(
        text.contains("in 2 attempts, 7 of 10 tasks succeeded, 2 failed, 1 stopped, exit code 124"),
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

#[test]
fn what_never_ran_says_so_and_why() {
    let result = JobResult {
        state: JobState::Cancelled,
        rejection: None,
        failure: None,
        reason: None,
        exit_code: 130,
        attempts: 0,
        ended_ms: 3_500,
        tasks: None,
    };
    let context = Context {
        started_ms: None,
        why: Some("asked for by herd cancel".to_owned()),
        ..context()
    };
    assert_eq!(
        summary(&result, &context),
        "herd: digits (7f3a9c21) CANCELLED before it started (asked for by herd cancel), exit code \
         130, log /home/me/run.log"
    );
}
