//! What is said when workers have failed, in torchrun's layout, and the copy of the first failure's
//! error file for the process that started the launcher.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::failure::{NOT_AVAILABLE, ProcessFailure};
use crate::error_file::{ErrorFileProblem, read_bytes};

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

/// Why the parent's error file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The worker's file is no longer what it was.
    #[error("cannot read the error file {}", path.display())]
    Read {
        /// The worker's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: ErrorFileProblem,
    },
    /// The parent's file cannot be written.
    #[error("cannot write the error file {} of the process that started this launcher\nhint: TORCHELASTIC_ERROR_FILE names it; its directory must exist and be writable", path.display())]
    Write {
        /// The parent's file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

/// Copies the error file of the worker that failed first to the file that this launcher's own
/// parent looks into (its `TORCHELASTIC_ERROR_FILE`), replacing what is there, with the worker's
/// exit code as `message.errorCode` where `message` is an object. Returns whether it wrote: without
/// a file of the worker, or where the parent's is none (empty, `/dev/null`), nothing is written.
pub fn copy_to_parent(root: &ProcessFailure, parent: &Path) -> Result<bool, CopyError> {
    let Some(child) = &root.error_file else {
        return Ok(false);
    };
    let occupied = fs::symlink_metadata(parent).is_ok_and(|found| !found.is_file());
    if parent.as_os_str().is_empty() || occupied {
        return Ok(false);
    }
    let unreadable = |source| CopyError::Read {
        path: child.clone(),
        source,
    };
    let Some(bytes) = read_bytes(child).map_err(unreadable)? else {
        return Ok(false);
    };
    let content: Value = serde_json::from_slice(&bytes)
        .map_err(|error| unreadable(ErrorFileProblem::Json(error)))?;
    let text = with_exit_code(content, root.exit_code()).to_string();
    replace(parent, text.as_bytes()).map_err(|source| CopyError::Write {
        path: parent.to_owned(),
        source,
    })?;
    Ok(true)
}

fn with_exit_code(mut content: Value, exit_code: i32) -> Value {
    let message = content.get_mut("message").and_then(Value::as_object_mut);
    if let Some(message) = message
        && exit_code != 0
    {
        message.insert("errorCode".to_owned(), Value::from(exit_code));
    }
    content
}

/// Writes a file beside the place and moves it there, so that no reader sees half of it.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to tell.
        drop(fs::remove_file(&temporary));
    }
    written
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn row37_the_parents_copy() {
        let directory = tempfile::tempdir().unwrap();
        let (child, parent) = (
            directory.path().join("c.json"),
            directory.path().join("p.json"),
        );
        let copy = |content: &str, end| {
            fs::write(&child, content).unwrap();
            let written = copy_to_parent(&failed(0, 9, end, Some(&child)), &parent).unwrap();
            let text = fs::read(&parent).ok();
            (
                written,
                text.map(|text| serde_json::from_slice::<Value>(&text).unwrap()),
            )
        };
        fs::write(&parent, "{\"old\": 1}").unwrap();
        let nested =
            r#"{"message": {"message": "E", "extraInfo": {"timestamp": "7"}, "more": [1]}}"#;
        let (written, content) = copy(nested, ProcessEnd::Exited(3));
        let expected = r#"{"message": {"message": "E", "extraInfo": {"timestamp": "7"}, "more": [1], "errorCode": 3}}"#;
        assert!(written);
        assert_eq!(content, Some(serde_json::from_str(expected).unwrap()));
        let (_, content) = copy(nested, ProcessEnd::Signaled(9));
        assert_eq!(content.unwrap()["message"]["errorCode"], -9);
        let (_, content) = copy(r#"{"message": "flat"}"#, ProcessEnd::Exited(3));
        assert_eq!(content, Some(serde_json::json!({"message": "flat"})));
        let (written, content) = copy("garbage", ProcessEnd::Exited(3));
        assert!(!written && content.is_some());
        let names = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names, 2, "a temporary file was left");
    }

    #[test]
    fn row37_no_place_for_a_copy() {
        let directory = tempfile::tempdir().unwrap();
        let child = directory.path().join("c.json");
        fs::write(&child, r#"{"message": "x"}"#).unwrap();
        let failure = failed(0, 9, ProcessEnd::Exited(1), Some(&child));
        for nowhere in [Path::new(""), Path::new("/dev/null"), directory.path()] {
            assert!(
                !copy_to_parent(&failure, nowhere).unwrap(),
                "{}",
                nowhere.display()
            );
        }
        let missing = directory.path().join("missing/p.json");
        let error = copy_to_parent(&failure, &missing).unwrap_err();
        assert!(error.to_string().contains("hint: "), "{error}");
        let without = failed(0, 9, ProcessEnd::Exited(1), None);
        assert!(!copy_to_parent(&without, &directory.path().join("p.json")).unwrap());
    }
}
