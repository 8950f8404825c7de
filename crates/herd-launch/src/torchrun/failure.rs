//! The failure of one worker, as torchrun tells it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use herd_core::exit::ProcessEnd;
use herd_core::result::{RankError, RankResult};
use herd_core::rootcause;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::child::ExitInfo;
use crate::error_file::read_error_file;

/// What stands in the place of something that is not known.
pub const NOT_AVAILABLE: &str = "<N/A>";
/// What torchrun says of a worker that ended with a code and no error file.
const NO_TRACEBACK: &str =
    "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";

/// How one worker failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFailure {
    /// Its local rank.
    pub local_rank: u32,
    /// Its process, 0 where it never ran.
    pub pid: u32,
    /// How it ended.
    pub end: ProcessEnd,
    /// When its end was observed, milliseconds since the Unix epoch.
    pub ended_ms: u64,
    /// Whether the launcher had asked for its end.
    pub stopped: bool,
    /// Why it could not be started, where it never ran.
    pub start_error: Option<String>,
    /// The file in which it told its error.
    pub error_file: Option<PathBuf>,
    /// What stands there.
    pub error: Option<RankError>,
    /// Why an error file that is there tells nothing (D11).
    pub note: Option<String>,
}

impl ProcessFailure {
    /// The failure of a worker that has ended, with what it left in its error file. A file that is
    /// no error file counts as absent, with a note. This reads the file.
    pub fn read(local_rank: u32, pid: u32, exit: &ExitInfo, error_file: Option<&Path>) -> Self {
        let mut failure = Self {
            local_rank,
            pid,
            end: exit.end,
            ended_ms: exit.at_ms(),
            stopped: exit.stopped,
            start_error: None,
            error_file: None,
            error: None,
            note: None,
        };
        let Some(path) = error_file.filter(|path| !path.as_os_str().is_empty()) else {
            return failure;
        };
        match read_error_file(path) {
            Ok(Some(error)) => {
                failure.error_file = Some(path.to_owned());
                failure.error = Some(error);
            }
            Ok(None) => {}
            Err(problem) => {
                failure.note = Some(format!("{}: {problem}", path.display()));
            }
        }
        failure
    }

    /// The failure of a worker that could not be started, with the code a shell would report.
    pub fn not_started(local_rank: u32, code: u8, reason: String, ended_ms: u64) -> Self {
        Self {
            local_rank,
            pid: 0,
            end: ProcessEnd::Exited(code),
            ended_ms,
            stopped: false,
            start_error: Some(reason),
            error_file: None,
            error: None,
            note: None,
        }
    }

    /// Its exit code, or minus the signal that ended it.
    pub fn exit_code(&self) -> i32 {
        match self.end {
            ProcessEnd::Exited(code) => i32::from(code),
            ProcessEnd::Signaled(signal) => -i32::from(signal),
        }
    }

    /// The name of the signal that ended it, [`NOT_AVAILABLE`] where it has none or there was none.
    pub fn signal_name(&self) -> &'static str {
        match self.end {
            ProcessEnd::Signaled(signal) => signal_name(signal),
            ProcessEnd::Exited(_) => NOT_AVAILABLE,
        }
    }

    /// When it failed, whole seconds since the Unix epoch: by its own record, else by its observed
    /// end.
    pub fn timestamp(&self) -> u64 {
        let recorded = self.error.as_ref().and_then(|error| error.timestamp_ms);
        recorded.unwrap_or(self.ended_ms) / 1000
    }

    /// What happened, in a line or more: its own words, else why it did not start, else the signal,
    /// else how to learn more.
    pub fn message(&self) -> String {
        let own = self.error.as_ref().map(|error| error.message.as_str());
        if let Some(message) = own.filter(|message| !message.is_empty()) {
            return message.to_owned();
        }
        if let Some(reason) = &self.start_error {
            return format!("Not started: {reason}");
        }
        match self.end {
            ProcessEnd::Signaled(signal) => format!(
                "Signal {signal} ({}) received by PID {}",
                signal_name(signal),
                self.pid
            ),
            ProcessEnd::Exited(_) => NO_TRACEBACK.to_owned(),
        }
    }

    /// Its traceback where it left one, else [`Self::message`].
    pub fn traceback(&self) -> String {
        let traceback = self
            .error
            .as_ref()
            .and_then(|error| error.traceback.clone())
            .filter(|traceback| !traceback.is_empty());
        traceback.unwrap_or_else(|| self.message())
    }
}

/// The name that Linux programs know a signal by.
fn signal_name(signal: u8) -> &'static str {
    match (Signal::try_from(i32::from(signal)), signal) {
        (Ok(known), _) => known.as_str(),
        (Err(_), 34) => "SIGRTMIN",
        (Err(_), 64) => "SIGRTMAX",
        (Err(_), _) => NOT_AVAILABLE,
    }
}

/// The global rank that failed first, by the rules of [`herd_core::rootcause`] (D12).
pub fn root_cause(failures: &BTreeMap<u32, ProcessFailure>) -> Option<u32> {
    let results: Vec<_> = failures
        .iter()
        .map(|(rank, failure)| RankResult {
            stopped: failure.stopped,
            start_error: failure.start_error.clone(),
            error: failure.error.clone(),
            ..RankResult::ended(*rank, 0, failure.end, failure.ended_ms)
        })
        .collect();
    let first = rootcause::first_cause(&results).map(|result| result.rank);
    first.or_else(|| failures.keys().next().copied())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn exit(end: ProcessEnd) -> ExitInfo {
        ExitInfo {
            end,
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_123_900),
            cpu_ms: 0,
            peak_kib: 0,
            stopped: false,
            abandoned: false,
        }
    }

    fn left(content: &str) -> ProcessFailure {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("error.json");
        std::fs::write(&path, content).unwrap();
        ProcessFailure::read(1, 77, &exit(ProcessEnd::Exited(1)), Some(&path))
    }

    #[test]
    fn row33_signal_death() {
        let failure = ProcessFailure::read(0, 77, &exit(ProcessEnd::Signaled(11)), None);
        assert_eq!(failure.exit_code(), -11);
        assert_eq!(failure.signal_name(), "SIGSEGV");
        assert_eq!(failure.message(), "Signal 11 (SIGSEGV) received by PID 77");
        assert_eq!(failure.timestamp(), 1_700_000_123);
        let named = |signal| {
            ProcessFailure::read(0, 7, &exit(ProcessEnd::Signaled(signal)), None).signal_name()
        };
        for (signal, name) in [
            (6, "SIGABRT"),
            (9, "SIGKILL"),
            (16, "SIGSTKFLT"),
            (29, "SIGIO"),
            (31, "SIGSYS"),
            (34, "SIGRTMIN"),
            (64, "SIGRTMAX"),
            (40, NOT_AVAILABLE),
        ] {
            assert_eq!(named(signal), name, "{signal}");
        }
    }

    #[test]
    fn row33_exit_without_a_file() {
        let path = Path::new("/nonexistent/error.json");
        for file in [
            None,
            Some(Path::new("")),
            Some(Path::new("/dev/null")),
            Some(path),
        ] {
            let failure = ProcessFailure::read(0, 77, &exit(ProcessEnd::Exited(3)), file);
            assert_eq!(failure.exit_code(), 3);
            assert_eq!(
                (failure.error_file.as_ref(), failure.note.as_ref()),
                (None, None)
            );
            assert!(
                failure
                    .message()
                    .starts_with("To enable traceback see: https://")
            );
            assert_eq!(failure.signal_name(), NOT_AVAILABLE);
        }
    }

    #[test]
    fn row34_error_files_of_both_forms() {
        let failure = left(
            r#"{"message": {"message": "ValueError: x", "extraInfo":
               {"py_callstack": "Traceback\n  x", "timestamp": "1700000000"}}}"#,
        );
        assert_eq!(failure.message(), "ValueError: x");
        assert_eq!(failure.traceback(), "Traceback\n  x");
        assert_eq!(failure.timestamp(), 1_700_000_000);
        assert!(failure.error_file.is_some());
        let failure = left(r#"{"message": "text", "timestamp": 5}"#);
        assert_eq!(
            (failure.traceback().as_str(), failure.timestamp()),
            ("text", 5)
        );
        let failure = left(r#"{"message": ""}"#);
        assert!(failure.message().starts_with("To enable traceback"));
        assert_eq!(failure.timestamp(), 1_700_000_123);
    }

    #[test]
    fn row35_d11_a_bad_error_file_is_a_note() {
        for content in [
            "{",
            "[]",
            r#"{"message": {}}"#,
            "\u{0}",
            r#"{"message": 3}"#,
        ] {
            let failure = left(content);
            assert_eq!(
                (failure.error_file.as_ref(), failure.error.as_ref()),
                (None, None)
            );
            assert!(
                failure.note.clone().unwrap().contains("error.json"),
                "{content}"
            );
            assert!(failure.message().starts_with("To enable traceback"));
        }
    }

    #[test]
    fn row36_d12_root_cause() {
        let recorded = |timestamp: u64| {
            left(&format!(
                r#"{{"message": "x", "timestamp": "{timestamp}"}}"#
            ))
        };
        let of = |failures: Vec<(u32, ProcessFailure)>| root_cause(&failures.into_iter().collect());
        assert_eq!(of(vec![(0, recorded(200)), (3, recorded(100))]), Some(3));
        let mut stopped = ProcessFailure::read(0, 7, &exit(ProcessEnd::Signaled(15)), None);
        stopped.ended_ms -= 5000;
        stopped.stopped = true;
        assert_eq!(of(vec![(0, stopped.clone()), (1, left(""))]), Some(1));
        assert_eq!(of(vec![(4, stopped)]), Some(4));
        let never = ProcessFailure::not_started(2, 127, "no such file".to_owned(), 5);
        assert_eq!(never.message(), "Not started: no such file");
        assert_eq!(of(vec![(0, left("")), (2, never)]), Some(2));
        assert_eq!(of(Vec::new()), None);
    }
}
