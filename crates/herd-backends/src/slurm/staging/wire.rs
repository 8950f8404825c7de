//! What the two sides say to each other: a line of JSON, and the bytes that it announces.

use std::io::{self, BufRead, Read as _, Write};

use serde::{Deserialize, Serialize};

/// Bytes of one part of a file.
pub(super) const PART: u64 = 256 * 1024;
/// Most bytes of a file that travels whole: records, keys, plans.
pub(super) const MOST_WHOLE: u64 = 64 * 1024 * 1024;
/// Most bytes of a line that announces.
const MOST_HEAD: u64 = 64 * 1024;

/// One message, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum Head {
    /// The node's side is there; whether it had everything before.
    Here {
        /// Whether the driver was let go already.
        ready: bool,
    },
    /// The content of a file follows.
    Whole {
        /// Below the job's directory.
        path: String,
        /// Bytes that follow.
        length: u64,
    },
    /// A part of a file that only grows follows. At offset 0 the file begins anew.
    Part {
        /// Below the job's directory.
        path: String,
        /// Where it belongs.
        offset: u64,
        /// Bytes that follow.
        length: u64,
    },
    /// The submitting side has so much of a file that only grows.
    Has {
        /// Below the job's directory.
        path: String,
        /// Its length there.
        length: u64,
    },
    /// All that the driver needs has come.
    Ready,
    /// The job's directory of work has come, as parts of a file that is no record; or it does not come.
    Left {
        /// Why not.
        why: Option<String>,
    },
    /// All was sent that there was; the answer is [`Head::Kept`].
    AllSent,
    /// All that had come is kept.
    Kept,
    /// Nothing more comes: this run of the job is over.
    Over {
        /// Whether another is to follow, which the submitting side asks Slurm for.
        requeue: bool,
    },
    /// A request for the job's end.
    Cancel {
        /// Signal for the ranks.
        signal: i32,
        /// How long they may take, milliseconds.
        grace_ms: Option<u64>,
        /// Who asks.
        by: String,
    },
    /// The speaker lives.
    Alive,
    /// A type that this release does not know.
    #[serde(other)]
    Unknown,
}

impl Head {
    fn follows(&self) -> io::Result<u64> {
        let (length, most) = match self {
            Self::Whole { length, .. } => (*length, MOST_WHOLE),
            Self::Part { length, .. } => (*length, PART),
            _ => return Ok(0),
        };
        if length > most {
            return Err(io::Error::other(format!(
                "{length} bytes at once are too many"
            )));
        }
        Ok(length)
    }
}

/// Writes one message; `bytes` are those that it announces.
pub(super) fn write(to: &mut impl Write, head: &Head, bytes: &[u8]) -> io::Result<()> {
    let mut line = serde_json::to_vec(head)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.write_all(bytes)?;
    to.flush()
}

/// Reads one message with its bytes; nothing at the end.
pub(super) fn read(from: &mut impl BufRead) -> io::Result<Option<(Head, Vec<u8>)>> {
    let mut line = Vec::new();
    from.take(MOST_HEAD).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    let head: Head = serde_json::from_slice(&line)?;
    let mut bytes = vec![0; usize::try_from(head.follows()?).unwrap_or(usize::MAX)];
    from.read_exact(&mut bytes)?;
    Ok(Some((head, bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_through_with_their_bytes() {
        let part = Head::Part {
            path: "a b/ü".to_owned(),
            offset: 7,
            length: 3,
        };
        let mut wire = Vec::new();
        write(&mut wire, &part, b"\n{\0").unwrap();
        write(&mut wire, &Head::Ready, b"").unwrap();
        let mut from = wire.as_slice();
        assert_eq!(read(&mut from).unwrap(), Some((part, b"\n{\0".to_vec())));
        assert_eq!(read(&mut from).unwrap(), Some((Head::Ready, Vec::new())));
        assert_eq!(read(&mut from).unwrap(), None);
    }

    #[test]
    fn what_is_no_message_or_too_large_is_an_error() {
        for text in [
            "hello\n".to_owned(),
            r#"{"type":"part","path":"a","offset":0,"length":99999999999}"#.to_owned() + "\n",
            "x".repeat(100_000),
            r#"{"type":"whole","path":"a","length":5}"#.to_owned() + "\nabc",
        ] {
            assert!(read(&mut text.as_bytes()).is_err(), "{text:.50}");
        }
        let later = "{\"type\":\"later\"}\n";
        let read = read(&mut later.as_bytes()).unwrap();
        assert_eq!(read, Some((Head::Unknown, Vec::new())));
    }
}
