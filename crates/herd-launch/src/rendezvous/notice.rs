//! What a user should hear while a rendezvous is under way.

use std::fmt;
use std::time::Duration;

/// Something to say on stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The endpoint is reached over a network and there is no key.
    NoKey {
        /// The endpoint.
        endpoint: String,
    },
    /// Somebody has been waited for.
    Waiting {
        /// For so long.
        since: Duration,
        /// At most so long.
        bound: Option<Duration>,
        /// Who, or what went wrong with the last try.
        what: String,
    },
}

impl Notice {
    /// Whether it is a warning, rather than progress.
    pub fn is_warning(&self) -> bool {
        matches!(self, Self::NoKey { .. })
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey { endpoint } => write!(
                formatter,
                "the rendezvous at {endpoint} has no key: whoever reaches it and knows its id can \
                 take part; hint: give all nodes the same HERD_RDZV_KEY (64 hexadecimal digits), or \
                 --rdzv-conf key_file=PATH"
            ),
            Self::Waiting { since, bound, what } => {
                write!(formatter, "waiting for {} s: {what}", since.as_secs())?;
                match bound {
                    Some(bound) => write!(formatter, " (giving up after {} s)", bound.as_secs()),
                    None => Ok(()),
                }
            }
        }
    }
}
