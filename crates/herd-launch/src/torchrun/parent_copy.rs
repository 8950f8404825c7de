//! The copy of the first failure's error file for the process that started the launcher: its
//! `TORCHELASTIC_ERROR_FILE`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value, json};

use super::failure::ProcessFailure;
use crate::error_file::{ErrorFileProblem, read_bytes};
use crate::python_json;

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
    let content =
        python_json::parse(&bytes).map_err(|error| unreadable(ErrorFileProblem::Json(error)))?;
    let text = with_exit_code(content, root.exit_code()).to_string();
    replace(parent, text.as_bytes()).map_err(|source| CopyError::Write {
        path: parent.to_owned(),
        source,
    })?;
    Ok(true)
}

/// Writes an error of the launcher itself where its own parent looks for one, in the form of an error
/// file. Nothing where that is no regular file.
pub fn record(parent: &Path, message: &str) -> Result<(), CopyError> {
    let occupied = fs::symlink_metadata(parent).is_ok_and(|found| !found.is_file());
    if parent.as_os_str().is_empty() || occupied {
        return Ok(());
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    let extra = json!({ "py_callstack": message, "timestamp": seconds.to_string() });
    let content = json!({ "message": { "message": message, "extraInfo": extra } });
    replace(parent, content.to_string().as_bytes()).map_err(|source| CopyError::Write {
        path: parent.to_owned(),
        source,
    })
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
    use herd_core::exit::ProcessEnd;

    use super::*;
    use crate::child::ExitInfo;

    fn failed(end: ProcessEnd, file: Option<&Path>) -> ProcessFailure {
        let exit = ExitInfo {
            end,
            at: SystemTime::UNIX_EPOCH,
            cpu_ms: 0,
            peak_kib: 0,
            stopped: false,
            abandoned: false,
        };
        ProcessFailure::read(0, 9, &exit, file)
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
            let written = copy_to_parent(&failed(end, Some(&child)), &parent).unwrap();
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
        let failure = failed(ProcessEnd::Exited(1), Some(&child));
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
        let without = failed(ProcessEnd::Exited(1), None);
        assert!(!copy_to_parent(&without, &directory.path().join("p.json")).unwrap());
    }
}
