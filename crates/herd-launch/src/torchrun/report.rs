//! What is said when workers have failed, in torchrun's layout.

use super::failure::{NOT_AVAILABLE, ProcessFailure};

/// Longest rule.
const WIDTH_MAX: usize = 60;

/// One failure of the report.
#[derive(Clone, Copy, Debug)]
pub struct Reported<'a> {
    /// Global rank of the worker.
    pub rank: u32,
    /// Full name of its machine.
    pub host: &'a str,
    /// How it failed.
    pub failure: &'a ProcessFailure,
}

/// The report, without a newline at either end. `root_cause` is the global rank that failed first.
/// `local_time` writes whole seconds since the Unix epoch as [`LOCAL_TIME_FORM`].
pub fn report(
    title: &str,
    failures: &[Reported<'_>],
    root_cause: u32,
    local_time: &dyn Fn(u64) -> String,
) -> String {
    let mut root = Vec::new();
    let mut others = Vec::new();
    for (index, reported) in failures.iter().enumerate() {
        let block = block(index, reported, local_time);
        if reported.rank == root_cause {
            root.extend(block);
        } else {
            others.extend(block);
        }
    }
    if others.is_empty() {
        others.push("  <NO_OTHER_FAILURES>".to_owned());
    }
    let title = format!("{title} FAILED");
    let headings = ["Failures:", "Root Cause (first observed failure):"];
    let width = [title.as_str()]
        .into_iter()
        .chain(headings)
        .chain(root.iter().chain(&others).flat_map(|line| line.split('\n')))
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
        .min(WIDTH_MAX);
    let (border, rule) = ("=".repeat(width), "-".repeat(width));
    let [other_heading, root_heading] = headings.map(str::to_owned);
    let mut lines = vec![border.clone(), title, rule.clone(), other_heading];
    lines.extend(others);
    lines.extend([rule, root_heading]);
    lines.extend(root);
    lines.push(border);
    lines.join("\n")
}

/// The form of the report's times, as `strftime` writes it.
pub const LOCAL_TIME_FORM: &str = "%Y-%m-%d_%H:%M:%S";

fn block(index: usize, reported: &Reported<'_>, local_time: &dyn Fn(u64) -> String) -> Vec<String> {
    let failure = reported.failure;
    let signal = match failure.signal_name() {
        NOT_AVAILABLE => String::new(),
        name => format!(" ({name})"),
    };
    let exit = format!("{} (pid: {}) {signal}", failure.exit_code(), failure.pid);
    let error_file = failure.error_file.as_ref().map_or_else(
        || NOT_AVAILABLE.to_owned(),
        |path| shown(&path.to_string_lossy()),
    );
    let rank = format!("{} (local_rank: {})", reported.rank, failure.local_rank);
    let mut lines = vec![format!("[{index}]:")];
    for (label, value) in [
        ("time", local_time(failure.timestamp())),
        ("host", shown(reported.host)),
        ("rank", rank),
        ("exitcode", exit),
        ("error_file", error_file),
        ("traceback", shown(&failure.traceback())),
    ] {
        // Further lines stand below their label.
        lines.push(format!("  {label:10}: {}", value.replace('\n', "\n  ")));
    }
    if let Some(note) = &failure.note {
        lines.push(format!(
            "  {:10}: {}",
            "note",
            shown(note).replace('\n', "\n  ")
        ));
    }
    lines
}

/// Text of a worker without what a terminal would act on.
fn shown(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            other => herd_core::text::visible(other),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use herd_core::exit::ProcessEnd;

    use super::*;
    use crate::child::ExitInfo;

    fn failed(local_rank: u32, pid: u32, end: ProcessEnd, file: Option<&Path>) -> ProcessFailure {
        let exit = ExitInfo {
            end,
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(100),
            cpu_ms: 0,
            peak_kib: 0,
            stopped: false,
            abandoned: false,
        };
        ProcessFailure::read(local_rank, pid, &exit, file)
    }

    fn text(title: &str, failures: &[(u32, &ProcessFailure)], root: u32) -> String {
        let reported: Vec<_> = failures
            .iter()
            .map(|(rank, failure)| Reported {
                rank: *rank,
                host: "n1.example",
                failure,
            })
            .collect();
        report(title, &reported, root, &|seconds| format!("T{seconds}"))
    }

    #[test]
    fn row38_layout_labels_and_width() {
        let first = failed(0, 10387, ProcessEnd::Signaled(11), None);
        let second = failed(1, 10388, ProcessEnd::Signaled(15), None);
        let expected = "\
=======================================================
train.py FAILED
-------------------------------------------------------
Failures:
[1]:
  time      : T100
  host      : n1.example
  rank      : 5 (local_rank: 1)
  exitcode  : -15 (pid: 10388)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 10388
-------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : T100
  host      : n1.example
  rank      : 4 (local_rank: 0)
  exitcode  : -11 (pid: 10387)  (SIGSEGV)
  error_file: <N/A>
  traceback : Signal 11 (SIGSEGV) received by PID 10387
=======================================================";
        assert_eq!(text("train.py", &[(4, &first), (5, &second)], 4), expected);
    }

    #[test]
    fn row38_one_failure_with_a_traceback() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("error.json");
        let content = r#"{"message": {"message": "E: x", "extraInfo":
            {"py_callstack": "Traceback:\n  File\u001b[2J\nE: x\n", "timestamp": "7"}}}"#;
        fs::write(&path, content).unwrap();
        let failure = failed(0, 9, ProcessEnd::Exited(1), Some(&path));
        let text = text(&"t".repeat(80), &[(0, &failure)], 0);
        let file = format!("  error_file: {}", path.display());
        let lines: Vec<_> = text.split('\n').collect();
        assert_eq!(lines[0], "=".repeat(60));
        assert_eq!(lines[1], format!("{} FAILED", "t".repeat(80)));
        assert_eq!(
            lines[3..6],
            ["Failures:", "  <NO_OTHER_FAILURES>", &"-".repeat(60)]
        );
        assert_eq!(
            lines[7..],
            [
                "[0]:",
                "  time      : T7",
                "  host      : n1.example",
                "  rank      : 0 (local_rank: 0)",
                "  exitcode  : 1 (pid: 9) ",
                &file,
                "  traceback : Traceback:",
                "    File\u{fffd}[2J",
                "  E: x",
                "  ",
                &"=".repeat(60),
            ]
        );
    }

    #[test]
    fn row35_a_bad_error_file_is_noted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("error.json");
        fs::write(&path, "{").unwrap();
        let failure = failed(0, 9, ProcessEnd::Exited(1), Some(&path));
        let text = text("t", &[(0, &failure)], 0);
        assert!(text.contains("  error_file: <N/A>\n  traceback : To enable traceback see: "));
        assert!(text.contains("\n  note      : "), "{text}");
    }
}
