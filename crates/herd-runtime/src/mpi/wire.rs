//! What a shim and the executor of its node say to each other over a socket of the node: lines of
//! JSON. Who is at the other end, the kernel tells (`SO_PEERCRED`), before a byte is read.

use std::collections::BTreeMap;
use std::io;

use herd_core::exit::ProcessEnd;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
};

/// Most bytes of a line; an environment and an argument vector may be as large as the system allows.
const LINE_MAX: u64 = 8 * 1024 * 1024;

/// From the shim.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FromShim {
    /// First: which rank it is, as its MPI library says.
    Hello { rank: u32, size: u32 },
    /// The rank's process runs.
    Started { pid: u32 },
    /// It ended, or never started.
    Ended {
        end: ProcessEnd,
        ended_ms: u64,
        start_error: Option<String>,
        cpu_ms: u64,
        peak_kib: u64,
    },
}

/// To the shim.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ToShim {
    /// What to run.
    Run(RankCommand),
    /// This is not a rank of this node.
    Refused { reason: String },
    /// Pass this signal on; the end that follows is herd's doing.
    Stop { signal: i32 },
}

/// One rank's process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RankCommand {
    pub(super) argv: Vec<String>,
    /// To be set over the environment that MPI has made.
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: String,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// Whether the batch system's signals reach the rank itself: then it gets none from its shim but what the
    /// executor asks for.
    #[serde(default)]
    pub(super) is_signalled: bool,
}

/// Writes one message.
pub(super) async fn write(
    to: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line).await
}

/// Reads messages.
pub(super) struct Lines<R> {
    from: R,
    /// The line that is being read, kept over a dropped read.
    line: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            line: Vec::new(),
        }
    }

    /// The next message; `None` at the end. Cancel-safe.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let room = LINE_MAX.saturating_sub(self.line.len() as u64);
        let mut bounded = (&mut self.from).take(room);
        bounded.read_until(b'\n', &mut self.line).await?;
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }
}
