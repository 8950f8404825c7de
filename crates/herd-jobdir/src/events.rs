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
    fn a_follower_goes_on_where_it_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = crate::AttemptDir::new(dir.path().to_path_buf(), 1);
        assert_eq!(attempt.read_events_after(0).unwrap(), (vec![], 0));
        attempt.event_writer().unwrap().write(&warning(1)).unwrap();
        let (first, offset) = attempt.read_events_after(0).unwrap();
        assert_eq!(first, [warning(1)]);
        assert_eq!(attempt.read_events_after(offset).unwrap(), (vec![], offset));
        // A line in the making is neither lost nor read in halves.
        let path = dir.path().join("events.jsonl");
        let line = files::json_line(&path, &warning(2)).unwrap();
        let mut file = files::open_append(&path).unwrap();
        file.write_all(&line[..9]).unwrap();
        assert_eq!(attempt.read_events_after(offset).unwrap(), (vec![], offset));
        file.write_all(&line[9..]).unwrap();
        assert_eq!(attempt.read_events_after(offset).unwrap().0, [warning(2)]);
        // A line longer than what is read at once does not stop it for ever.
        let (after, offset) = files::read_lines_after::<Event>(&path, 0, 10).unwrap();
        assert_eq!((after, offset), (vec![], 10));
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
