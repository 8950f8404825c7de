//! Reads the `error.json` that a rank may leave (launcher specification §9). What is no such file is
//! a note, never a failure of the launcher (D11).

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use herd_core::result::RankError;
use serde_json::Value;

use crate::python_json;

/// Largest file that is read.
const SIZE_MAX: u64 = 1024 * 1024;

/// Why there is a file but no error could be read from it.
#[derive(Debug, thiserror::Error)]
pub enum ErrorFileProblem {
    /// It cannot be opened or read.
    #[error("cannot read the error file")]
    Read(#[source] io::Error),
    /// It is a directory, a pipe or the like.
    #[error("the error file is no regular file")]
    NotRegular,
    /// It is larger than 1 MiB.
    #[error("the error file is larger than {SIZE_MAX} bytes")]
    TooLarge,
    /// It is no JSON.
    #[error("the error file is not valid JSON")]
    Json(#[source] serde_json::Error),
    /// It has no message.
    #[error("the error file has no message")]
    NoMessage,
}

/// The error a rank wrote, `None` where it wrote none (an absent or empty file, `/dev/null`).
pub fn read_error_file(path: &Path) -> Result<Option<RankError>, ErrorFileProblem> {
    read_bytes(path)?.as_deref().map(parse).transpose()
}

/// What a rank wrote, as it stands there.
pub(crate) fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, ErrorFileProblem> {
    // A pipe that somebody put there must not block.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ErrorFileProblem::Read(error)),
    };
    let metadata = file.metadata().map_err(ErrorFileProblem::Read)?;
    if path == Path::new("/dev/null") {
        return Ok(None);
    }
    if !metadata.is_file() {
        return Err(ErrorFileProblem::NotRegular);
    }
    let mut bytes = Vec::new();
    file.take(SIZE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(ErrorFileProblem::Read)?;
    if bytes.len() as u64 > SIZE_MAX {
        return Err(ErrorFileProblem::TooLarge);
    }
    Ok((!bytes.is_empty()).then_some(bytes))
}

fn parse(bytes: &[u8]) -> Result<RankError, ErrorFileProblem> {
    let value = python_json::parse(bytes).map_err(ErrorFileProblem::Json)?;
    match value.get("message") {
        Some(Value::String(message)) => Ok(RankError {
            message: message.clone(),
            traceback: None,
            timestamp_ms: timestamp(value.get("timestamp")),
        }),
        Some(object @ Value::Object(_)) => {
            let extra = object.get("extraInfo");
            let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
            Ok(RankError {
                message: text(object.get("message")).ok_or(ErrorFileProblem::NoMessage)?,
                traceback: text(extra.and_then(|extra| extra.get("py_callstack"))),
                timestamp_ms: timestamp(extra.and_then(|extra| extra.get("timestamp"))),
            })
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) | None => {
            Err(ErrorFileProblem::NoMessage)
        }
    }
}

/// Whole seconds, as a number or as text; fractions are dropped as the reference drops them.
fn timestamp(value: Option<&Value>) -> Option<u64> {
    let seconds = match value? {
        Value::Number(number) => number.as_u64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => {
            let text = text.trim();
            text.parse().ok().or_else(|| whole(text.parse().ok()?))
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }?;
    seconds.checked_mul(1000)
}

fn whole(seconds: f64) -> Option<u64> {
    /// Seconds above this are no time (the year 33658).
    const LIMIT: f64 = 1e12;
    if !(0.0..LIMIT).contains(&seconds) {
        return None;
    }
    std::time::Duration::try_from_secs_f64(seconds)
        .ok()
        .map(|duration| duration.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let nested = br#"{"message": {"message": "ValueError: no", "extraInfo":
            {"py_callstack": "Traceback", "timestamp": "1700000000"}, "errorCode": 1}}"#;
        let error = parse(nested).unwrap();
        assert_eq!(error.message, "ValueError: no");
        assert_eq!(error.traceback.as_deref(), Some("Traceback"));
        assert_eq!(error.timestamp_ms, Some(1_700_000_000_000));

        let flat = parse(br#"{"message": "text", "timestamp": 17.9}"#).unwrap();
        assert_eq!(
            (flat.message.as_str(), flat.timestamp_ms),
            ("text", Some(17_000))
        );
        assert_eq!(parse(br#"{"message": "x"}"#).unwrap().timestamp_ms, None);
        assert_eq!(
            parse(br#"{"message": "x", "timestamp": -3}"#)
                .unwrap()
                .timestamp_ms,
            None
        );
        assert_eq!(
            parse(br#"{"message": "x", "timestamp": 1e300}"#)
                .unwrap()
                .timestamp_ms,
            None
        );
    }

    #[test]
    fn row35_garbage_is_a_note() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("error.json");
        assert!(matches!(read_error_file(&path), Ok(None)));
        for garbage in [
            &b"{"[..],
            b"\xff\xfe",
            b"[]",
            b"3",
            b"{\"message\": 3}",
            b"{\"message\":{}}",
        ] {
            std::fs::write(&path, garbage).unwrap();
            assert!(read_error_file(&path).is_err(), "{garbage:?}");
        }
        std::fs::write(&path, "[".repeat(500_000)).unwrap();
        assert!(matches!(
            read_error_file(&path),
            Err(ErrorFileProblem::Json(_))
        ));
        std::fs::write(&path, vec![b' '; 1024 * 1024 + 1]).unwrap();
        assert!(matches!(
            read_error_file(&path),
            Err(ErrorFileProblem::TooLarge)
        ));
        std::fs::write(&path, "").unwrap();
        assert!(matches!(read_error_file(&path), Ok(None)));
        assert!(matches!(
            read_error_file(directory.path()),
            Err(ErrorFileProblem::NotRegular | ErrorFileProblem::Read(_))
        ));
        assert!(matches!(read_error_file(Path::new("/dev/null")), Ok(None)));
    }

    #[test]
    fn a_pipe_in_its_place_does_not_block() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("error.json");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(
            read_error_file(&path),
            Err(ErrorFileProblem::NotRegular)
        ));
    }
}
