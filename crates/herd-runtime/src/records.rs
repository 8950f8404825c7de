//! What a driver does when its own records cannot be written: the job goes on, and the user is told
//! once.

use herd_core::text::error_line;
use herd_jobdir::JobDirError;

/// Whether all records of the attempt are whole.
#[derive(Debug)]
pub(crate) struct Records {
    warn: fn(&str),
    told: bool,
    truncation_told: bool,
}

impl Records {
    pub(crate) fn new(warn: fn(&str)) -> Self {
        Self {
            warn,
            told: false,
            truncation_told: false,
        }
    }

    /// Notes how a write ended.
    pub(crate) fn note(&mut self, outcome: Result<(), JobDirError>) {
        if let Err(error) = outcome {
            self.failed(&error);
        }
    }

    /// Tells of the first file that its rank truncated; events have each.
    pub(crate) fn truncated(&mut self, text: &str) {
        if !std::mem::replace(&mut self.truncation_told, true) {
            (self.warn)(text);
        }
    }

    /// Tells of the first write that failed.
    pub(crate) fn failed(&mut self, error: &JobDirError) {
        if !std::mem::replace(&mut self.told, true) {
            (self.warn)(&format!(
                "{}; the job goes on, its merged log and its events are incomplete from here on",
                error_line(error)
            ));
        }
    }
}
