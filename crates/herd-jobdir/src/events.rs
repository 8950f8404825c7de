//! `events.jsonl`: one JSON object a line, appended by the driver alone.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use herd_core::event::Event;

use crate::error::JobDirError;
use crate::files;

/// Appends events. Each is one `write`, so a crash tears at most the last line.
#[derive(Debug)]
pub struct EventWriter {
    file: File,
    path: PathBuf,
    /// A full disk has taken the beginning of a line.
    torn: bool,
}

impl EventWriter {
    /// Opens the file for appending.
    pub(crate) fn open(path: &Path) -> Result<Self, JobDirError> {
        Ok(Self {
            file: files::open_append(path)?,
            path: path.to_path_buf(),
            torn: false,
        })
    }

    /// Appends one event.
    pub fn write(&mut self, event: &Event) -> Result<(), JobDirError> {
        let mut line = files::json_line(&self.path, event)?;
        if self.torn {
            // What is left of the earlier one must not swallow this one.
            line.insert(0, b'\n');
        }
        let written = self.file.write_all(&line);
        self.torn = written.is_err();
        written.map_err(JobDirError::at("append to", &self.path))
    }
}

/// All events of a file; none where it does not exist. Lines that cannot be read (a torn end, a
/// newer release's states) are skipped.
pub fn read_events(path: &Path) -> Result<Vec<Event>, JobDirError> {
    files::read_lines(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use herd_core::event::EventKind;

    fn warning(time_ms: u64) -> Event {
        Event {
            time_ms,
            kind: EventKind::Warning {
                text: String::from("disk is slow"),
            },
        }
    }

    #[test]
    fn a_torn_line_is_skipped_and_does_not_swallow_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        EventWriter::open(&path)
            .unwrap()
            .write(&warning(1))
            .unwrap();
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"time_ms\":2,\"ev")
            .unwrap();
        assert_eq!(read_events(&path).unwrap(), [warning(1)]);
        EventWriter::open(&path)
            .unwrap()
            .write(&warning(3))
            .unwrap();
        assert_eq!(read_events(&path).unwrap(), [warning(1), warning(3)]);
    }

    #[test]
    fn unknown_kinds_are_kept_as_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        std::fs::write(
            &path,
            "{\"time_ms\":5,\"event\":\"eclipse\",\"deep\":{\"a\":1}}\n",
        )
        .unwrap();
        assert_eq!(
            read_events(&path).unwrap(),
            [Event {
                time_ms: 5,
                kind: EventKind::Unknown
            }]
        );
        assert!(read_events(&dir.path().join("absent")).unwrap().is_empty());
    }
}
