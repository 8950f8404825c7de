//! Amounts with a unit: memory sizes and spans of time, as people write them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An amount of memory or disk in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A span of time, whole milliseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Span {
    /// Milliseconds.
    pub ms: u64,
}

impl Span {
    /// A span of whole seconds; saturates.
    pub const fn from_secs(seconds: u64) -> Self {
        Self { ms: seconds.saturating_mul(1000) }
    }

    /// The same span for the standard library.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.ms)
    }
}
