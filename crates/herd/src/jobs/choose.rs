//! The job that a command acts on: a name that means several is not guessed.

use herd_jobdir::Home;

use super::{Job, open};
use crate::error::ExpectedError;

/// Jobs shown to a person who named several.
const SHOWN: usize = 8;

/// The job a selector means, for a command that changes it. Of several jobs with one name it is the
/// one that has not ended; where none is left the newest, and where several are, none.
pub(crate) fn open_active(home: &Home, selector: &str) -> Result<Job, ExpectedError> {
    let chosen = open(home, selector)?;
    // Names are compared, and `last` and ids are no names.
    if chosen
        .summary
        .as_ref()
        .is_none_or(|summary| summary.name != selector)
    {
        return Ok(chosen);
    }
    let listed = herd_jobdir::listing::list(home, usize::MAX)
        .map_err(|error| ExpectedError::failed("look through the jobs", error))?;
    let active: Vec<_> = listed
        .iter()
        .filter(|job| job.summary.name == selector && !job.brief.settled)
        .collect();
    match active.as_slice() {
        [] => Ok(chosen),
        [only] => open(home, &only.id.to_string()),
        several => Err(ExpectedError::AmbiguousJob {
            selector: selector.to_owned(),
            candidates: several
                .iter()
                .take(SHOWN)
                .map(|job| format!("{} ({})", job.id.short(), job.brief.state))
                .collect(),
        }),
    }
}
