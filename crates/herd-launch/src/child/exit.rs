//! What is known of a process that has ended.

use std::time::SystemTime;

use herd_core::exit::ProcessEnd;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitInfo {
    /// Exit code or signal.
    pub end: ProcessEnd,
    /// When its end was observed.
    pub at: SystemTime,
    /// Processor time of it and of the children it waited for, milliseconds.
    pub cpu_ms: u64,
    /// Largest resident memory among them, KiB.
    pub peak_kib: u64,
    /// Whether its end had been asked for while it still ran: such a process is no first cause.
    pub stopped: bool,
    /// Whether it could not be killed (uninterruptible sleep) and was given up; `end` is then what
    /// was asked for, not what was seen.
    pub abandoned: bool,
}

impl ExitInfo {
    /// When its end was observed, milliseconds since the Unix epoch.
    pub fn at_ms(&self) -> u64 {
        self.at
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| {
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            })
    }
}
