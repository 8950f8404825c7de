//! One client: reads, has its requests handled, writes. It reads nothing more until its answers are
//! taken, so a client that does not read costs one batch of answers, and is cut off after a while.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::{Notice, ProtocolError, Refusal};
use super::protocol::Decoder;
use super::shared::{End, Handled, Options, Shared};
use super::state::ClientId;
use crate::clock::until;

/// A client and its connection. Dropping it removes all that the store has of the client.
pub(super) struct Connection {
    pub(super) id: ClientId,
    pub(super) peer: SocketAddr,
    pub(super) stream: TcpStream,
    pub(super) changed: Arc<Notify>,
    pub(super) shared: Shared,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.remove(self.id);
    }
}

impl Connection {
    /// Serves the client until it leaves or is cut off.
    pub(super) async fn serve(mut self, options: Arc<Options>) {
        let Err(end) = self.converse(&options).await;
        let peer = self.peer;
        match end {
            End::Quiet => {}
            End::Protocol(reason) => self.shared.tell(Notice::Protocol { peer, reason }),
            End::Refused(reason) => self.shared.tell(Notice::Refused { peer, reason }),
        }
    }

    async fn converse(&mut self, options: &Options) -> Result<Infallible, End> {
        // Reading through it asks the kernel once less for each request than `try_read` does.
        let (mut reader, writer) = self.stream.split();
        let mut decoder = Decoder::default();
        let mut output = Vec::new();
        let mut written = 0;
        // Since when the client takes nothing.
        let mut stuck = None;
        let silent_until = Instant::now() + options.validate_within;
        loop {
            if written == output.len() {
                output.clear();
                written = 0;
            }
            self.shared.exchange(self.id, decoder.held(), &mut output)?;
            if let Some(rest) = output.get(written..).filter(|rest| !rest.is_empty()) {
                match writer.try_write(rest) {
                    Ok(count) => {
                        written += count;
                        stuck = None;
                    }
                    Err(error) if would_block(&error) => {
                        let since = *stuck.get_or_insert_with(Instant::now);
                        tokio::select! {
                            _ = writer.writable() => {}
                            () = self.changed.notified() => {}
                            () = tokio::time::sleep_until(since + options.read_within) => {
                                let seconds = options.read_within.as_secs();
                                return Err(Refusal::NotReading(seconds).into());
                            }
                        }
                    }
                    Err(_) => return Err(End::Quiet),
                }
                continue;
            }
            match self.shared.handle(self.id, &mut decoder)? {
                Handled::Nothing => {}
                Handled::Some => continue,
                Handled::Batch => {
                    tokio::task::yield_now().await;
                    continue;
                }
            }
            let silent = (!decoder.validated()).then_some(silent_until);
            let read = tokio::select! {
                read = reader.read_buf(decoder.buffer()) => read,
                () = self.changed.notified() => continue,
                () = until(silent) => {
                    let seconds = options.validate_within.as_secs();
                    return Err(ProtocolError::Silent(seconds).into());
                }
            };
            if !matches!(read, Ok(1..)) {
                return Err(End::Quiet);
            }
        }
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
