//! How a job ended, as Slurm writes it: `code:signal`.

use herd_core::exit::ProcessEnd;
use serde::{Deserialize, Serialize};

/// `7:0`, `0:9`; the batch script's own end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExitCode {
    /// Exit status.
    pub code: u8,
    /// Signal; 0 for none.
    pub signal: u8,
}

impl ExitCode {
    /// Reads `7:0`. The third number that derived codes may have is left out.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split(':');
        let code: u16 = parts.next()?.parse().ok()?;
        let signal: u16 = match parts.next() {
            Some(signal) => signal.parse().ok()?,
            None => 0,
        };
        Some(Self {
            // Slurm's own codes above 255 mean a failure of Slurm, not of the script.
            code: u8::try_from(code).unwrap_or(u8::MAX),
            // 128 is the mark of a core dump.
            signal: u8::try_from(signal & 127).unwrap_or(0),
        })
    }

    /// The end of the batch script's process.
    pub fn end(self) -> ProcessEnd {
        if self.signal == 0 {
            ProcessEnd::Exited(self.code)
        } else {
            ProcessEnd::Signaled(self.signal)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_count() {
        let end = |text| ExitCode::parse(text).unwrap().end();
        assert_eq!(end("7:0"), ProcessEnd::Exited(7));
        assert_eq!(end("0:11"), ProcessEnd::Signaled(11));
        assert_eq!(end("0:139"), ProcessEnd::Signaled(11));
        assert_eq!(end("0:0"), ProcessEnd::Exited(0));
        assert_eq!(end("1"), ProcessEnd::Exited(1));
        assert_eq!(end("300:0"), ProcessEnd::Exited(255));
        for text in ["", "a:b", "1:", ":1", "-1:0"] {
            assert_eq!(ExitCode::parse(text), None, "{text}");
        }
    }
}
