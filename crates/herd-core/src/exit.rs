//! The exit codes that herd's commands end with (I8), and how a process's end becomes one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// All went well.
pub const SUCCESS: u8 = 0;
/// A fault of the job file or the flags, or something in them that the backend cannot honour (I13):
/// refused before there is a job.
pub const USAGE: u8 = 2;
/// The time limit passed.
pub const TIME_LIMIT: u8 = 124;
/// A node or the driver was lost, a job that had been taken was rejected, or herd itself failed.
pub const HERD_FAILED: u8 = 125;
/// The program was found but could not be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The program was not found.
pub const NOT_FOUND: u8 = 127;
/// The job was cancelled by request rather than by a signal.
pub const CANCELLED: u8 = 130;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessEnd {
    /// It exited with this code.
    Exited(u8),
    /// This signal ended it.
    Signaled(u8),
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signaled(signal) => write!(f, "was ended by signal {signal}"),
        }
    }
}

impl ProcessEnd {
    /// The code a shell would report: the exit code, or 128 + n for signal n.
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => 128u8.saturating_add(signal),
        }
    }

    /// Whether it exited with 0.
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }
}
