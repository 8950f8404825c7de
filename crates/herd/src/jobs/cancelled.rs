//! Who asked for the end of a job that was cancelled.

use herd_core::event::EventKind;
use herd_core::signal;
use herd_core::state::JobState;

use super::Job;
use crate::text;

impl Job {
    /// By whom and when the job was cancelled, in a sentence; nothing where it was not.
    pub(crate) fn cancellation(&self) -> Option<String> {
        let brief = &self.status.brief;
        if brief.state != JobState::Cancelled.to_string() {
            return None;
        }
        let mut said = match self.asked_by() {
            Some(by) => format!("cancelled by {by}"),
            None => "cancelled".to_owned(),
        };
        match (brief.ended_ms, brief.started_ms) {
            (Some(ended), Some(started)) => {
                said.push_str(" after ");
                said.push_str(&text::span(ended.saturating_sub(started)));
            }
            _ => said.push_str(" before it started"),
        }
        Some(said)
    }

    /// What the events of the latest attempt say.
    fn asked_by(&self) -> Option<String> {
        let attempt = self.dir.latest_attempt().ok().flatten()?;
        let events = attempt.read_events().ok()?;
        let by = events.into_iter().find_map(|event| match event.kind {
            EventKind::CancelRequested { by } => Some(by),
            _ => None,
        })?;
        let number = by
            .strip_prefix("signal ")
            .and_then(|number| number.parse().ok());
        Some(match number.and_then(signal::name_of) {
            Some(name) => format!("{by} ({name})"),
            None if by == "herd cancel" => format!("`{by}`"),
            None => by,
        })
    }
}
