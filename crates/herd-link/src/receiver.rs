//! The receiving half of a link.

use std::io;

use tokio::net::tcp::OwnedReadHalf;

use crate::incoming::{Incoming, Step};
use crate::record::Opener;
use crate::{Frame, LinkError};

/// Receives frames in the order in which the peer sent them.
#[derive(Debug)]
pub struct Receiver {
    socket: OwnedReadHalf,
    incoming: Incoming,
    failed: bool,
}

impl Receiver {
    pub(crate) fn new(socket: OwnedReadHalf, opener: Opener) -> Self {
        Self {
            socket,
            incoming: Incoming::new(opener),
            failed: false,
        }
    }

    /// The next frame, or `None` (again and again) after the peer's clean end.
    ///
    /// Cancel-safe: dropping the future loses nothing. It waits as long as the peer is silent;
    /// the caller knows the heartbeat and sets the bound. After an error the receiver is of no
    /// further use and says [`LinkError::Failed`].
    pub async fn recv(&mut self) -> Result<Option<Frame>, LinkError> {
        if self.failed {
            return Err(LinkError::Failed);
        }
        let received = self.advance().await;
        if received.is_err() {
            self.failed = true;
            self.incoming.release_all();
        }
        received
    }

    /// How many frames of kinds unknown to this release were skipped.
    pub fn skipped(&self) -> u64 {
        self.incoming.skipped()
    }

    async fn advance(&mut self) -> Result<Option<Frame>, LinkError> {
        loop {
            match self.incoming.next()? {
                Step::Frame(frame) => return Ok(Some(frame)),
                Step::Closed => return Ok(None),
                Step::NeedMore => self.fill().await?,
            }
        }
    }

    async fn fill(&mut self) -> Result<(), LinkError> {
        // A peer that sends faster than we read must not keep other tasks from running.
        tokio::task::coop::consume_budget().await;
        loop {
            match self.socket.try_read_buf(self.incoming.space()) {
                Ok(0) => return Err(LinkError::Truncated),
                Ok(bytes) => {
                    self.incoming.received(bytes);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.incoming.release();
                    self.socket.readable().await.map_err(LinkError::Read)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkError::Read(error)),
            }
        }
    }
}
