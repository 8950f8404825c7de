//! The sending half of a link. Buffers up to a bound and never grows beyond it by more than one
//! frame.

use std::io;
use std::net::SocketAddr;

use serde::Serialize;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;

use crate::frame::CLOSE;
use crate::record::{MAX_PLAINTEXT, Sealer};
use crate::{Frame, LinkError};

/// [`Sender::send`] writes out first when more than this is waiting.
const WRITE_OUT: usize = 256 * 1024;

/// Sends frames. Dropping it without [`Sender::close`] looks like a cut to the peer.
#[derive(Debug)]
pub struct Sender {
    socket: OwnedWriteHalf,
    sealer: Sealer,
    /// Plaintext of the record that is being filled.
    plaintext: Vec<u8>,
    /// Sealed records, from `written`.
    records: Vec<u8>,
    written: usize,
    failed: bool,
}

impl Sender {
    pub(crate) fn new(socket: OwnedWriteHalf, sealer: Sealer) -> Self {
        Self {
            socket,
            sealer,
            plaintext: Vec::new(),
            records: Vec::new(),
            written: 0,
            failed: false,
        }
    }

    /// This side's address on the connection.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Queues a frame; [`Sender::flush`] sends it. When more than 256 KiB wait, those are written
    /// out before, which takes as long as the peer needs to read them.
    ///
    /// Cancel-safe: if the future is dropped before it is ready, the frame was not queued.
    /// A frame over [`crate::MAX_FRAME`] is refused and leaves the link usable.
    pub async fn send(&mut self, frame: &Frame) -> Result<(), LinkError> {
        let (head, payload) = frame.encode()?;
        self.make_room().await?;
        self.queue(head.as_bytes())?;
        self.queue(payload)
    }

    /// Queues a control frame with `message` as JSON, as [`Sender::send`] does.
    pub async fn send_json<T: Serialize + ?Sized>(&mut self, message: &T) -> Result<(), LinkError> {
        let json = serde_json::to_vec(message).map_err(LinkError::Encode)?;
        self.send(&Frame::Control(json)).await
    }

    /// Writes everything that is queued to the socket and gives the buffers back.
    ///
    /// Cancel-safe: what was not written yet stays queued. It waits as long as the peer does not
    /// read; the caller sets the bound.
    pub async fn flush(&mut self) -> Result<(), LinkError> {
        self.check()?;
        if !self.plaintext.is_empty() {
            self.seal()?;
        }
        self.plaintext = Vec::new();
        self.write_out().await?;
        self.records = Vec::new();
        Ok(())
    }

    /// Sends what is queued and a close frame, so that the peer sees a clean end. Dropped half way it
    /// looks like a cut; it waits as long as the peer does not read; the caller sets the bound.
    pub async fn close(mut self) -> Result<(), LinkError> {
        self.check()?;
        self.queue(&CLOSE)?;
        self.flush().await?;
        self.socket.shutdown().await.map_err(LinkError::Write)
    }

    /// Bytes that are queued and not yet written.
    pub fn queued(&self) -> usize {
        self.plaintext.len() + self.records.len() - self.written
    }

    fn check(&self) -> Result<(), LinkError> {
        if self.failed {
            Err(LinkError::Failed)
        } else {
            Ok(())
        }
    }

    async fn make_room(&mut self) -> Result<(), LinkError> {
        self.check()?;
        if self.records.len() - self.written > WRITE_OUT {
            self.write_out().await?;
        }
        Ok(())
    }

    /// Appends to the stream; each full record is sealed at once.
    fn queue(&mut self, mut bytes: &[u8]) -> Result<(), LinkError> {
        while !bytes.is_empty() {
            let room = MAX_PLAINTEXT - self.plaintext.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.plaintext.extend_from_slice(now);
            bytes = later;
            if self.plaintext.len() == MAX_PLAINTEXT {
                self.seal()?;
            }
        }
        Ok(())
    }

    fn seal(&mut self) -> Result<(), LinkError> {
        let sealed = self.sealer.seal(&self.plaintext, &mut self.records);
        self.plaintext.clear();
        self.failed |= sealed.is_err();
        sealed
    }

    async fn write_out(&mut self) -> Result<(), LinkError> {
        while self.written < self.records.len() {
            match self.socket.try_write(&self.records[self.written..]) {
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.writable().await.map_err(LinkError::Write)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed = true;
                    self.records = Vec::new();
                    self.written = 0;
                    return Err(LinkError::Write(error));
                }
            }
        }
        self.records.clear();
        self.written = 0;
        // A peer that reads faster than we write must not keep other tasks from running.
        tokio::task::coop::consume_budget().await;
        Ok(())
    }
}
