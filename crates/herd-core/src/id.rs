//! The identity of a job.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A job's identity, a `UUIDv7`: sorted by time of submission and safe in DNS and Slurm names.
///
/// People see the last eight hex digits ([`JobId::short`]); the first ones repeat for a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(Uuid);

impl JobId {
    /// A new id. The caller passes time and randomness through `uuid`'s own clock.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// The last eight hex digits.
    pub fn short(&self) -> String {
        let text = self.0.simple().to_string();
        text[text.len() - 8..].to_owned()
    }

    /// Milliseconds since the Unix epoch at which the id was made, where the id says so.
    pub fn created_ms(&self) -> Option<u64> {
        let (seconds, nanos) = self.0.get_timestamp()?.to_unix();
        Some(seconds * 1000 + u64::from(nanos) / 1_000_000)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for JobId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::parse_str(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_form_is_the_end_and_text_round_trips() {
        let id = JobId::generate();
        let text = id.to_string();
        assert!(text.ends_with(&id.short()[..]));
        assert_eq!(id.short().len(), 8);
        assert_eq!(text.parse::<JobId>().unwrap(), id);
        assert!(id.created_ms().unwrap() > 1_700_000_000_000);
    }
}
