//! The coordinator's connections: one task each, all frames into one bounded queue.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use herd_link::message::FromCoordinator;
use herd_link::{Accepted, Channel, Frame, Key, LinkError, Listener, Receiver, Sender};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Frames that wait to be handled, over all connections; at 64 KiB of log each, 4 MiB.
const INCOMING: usize = 64;
/// Frames that wait to be written to one connection. The coordinator sends few of its own; sessions
/// add their windows (16 of them at most on a node, each four chunks of input and the
/// acknowledgements of as much output).
const OUTGOING: usize = 256;

/// A connection's number, never used twice in one attempt.
pub(crate) type ConnectionId = u64;

/// What a connection brings.
pub(crate) enum Incoming {
    /// A frame.
    Frame(Frame),
    /// It ended; the text says how.
    Ended(String),
}

/// All connections of one coordinator.
pub(crate) struct Connections {
    listener: Listener,
    tasks: JoinSet<()>,
    outgoing: BTreeMap<ConnectionId, mpsc::Sender<Frame>>,
    queue: mpsc::Sender<(ConnectionId, Incoming)>,
    incoming: mpsc::Receiver<(ConnectionId, Incoming)>,
    next_id: ConnectionId,
}

impl Connections {
    /// Listens on `address`; only holders of `key` get further than the handshake.
    pub(crate) async fn bind(
        address: SocketAddr,
        key: &Key,
        channel: &Channel,
    ) -> Result<Self, LinkError> {
        let listener = Listener::bind(address, key, channel).await?;
        let (queue, incoming) = mpsc::channel(INCOMING);
        Ok(Self {
            listener,
            tasks: JoinSet::new(),
            outgoing: BTreeMap::new(),
            queue,
            incoming,
            next_id: 0,
        })
    }

    /// Where it listens.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// The next frame or end of any connection. Cancel-safe.
    pub(crate) async fn next(&mut self) -> (ConnectionId, Incoming) {
        loop {
            tokio::select! {
                // What registered nodes say comes first: strangers cannot hold it up.
                biased;
                Some(incoming) = self.incoming.recv() => {
                    if matches!(incoming.1, Incoming::Ended(_)) {
                        self.outgoing.remove(&incoming.0);
                    }
                    return incoming;
                }
                Some(_) = self.tasks.join_next() => {}
                accepted = self.listener.accept() => {
                    if let Ok(accepted) = accepted {
                        self.adopt(accepted);
                    }
                }
            }
        }
    }

    /// Another frame that is there already.
    pub(crate) fn try_next(&mut self) -> Option<(ConnectionId, Incoming)> {
        let incoming = self.incoming.try_recv().ok()?;
        if matches!(incoming.1, Incoming::Ended(_)) {
            self.outgoing.remove(&incoming.0);
        }
        Some(incoming)
    }

    /// Hands a message to a connection's task.
    pub(crate) fn send(&mut self, id: ConnectionId, message: &FromCoordinator) {
        // All parts of a message can be written as JSON.
        if let Ok(json) = serde_json::to_vec(message) {
            self.send_frame(id, Frame::Control(json));
        }
    }

    /// Hands a frame to a connection's task. A peer that does not take its frames has a full
    /// queue; it is cut off, which its node notices as a broken connection.
    pub(crate) fn send_frame(&mut self, id: ConnectionId, frame: Frame) {
        let Some(outgoing) = self.outgoing.get(&id) else {
            return;
        };
        if outgoing.try_send(frame).is_err() {
            self.close(id);
        }
    }

    /// Ends a connection; its end is told like any other.
    pub(crate) fn close(&mut self, id: ConnectionId) {
        self.outgoing.remove(&id);
    }

    fn adopt(&mut self, accepted: Accepted) {
        let id = self.next_id;
        self.next_id += 1;
        let (outgoing, messages) = mpsc::channel(OUTGOING);
        self.outgoing.insert(id, outgoing);
        let queue = self.queue.clone();
        self.tasks.spawn(async move {
            let end = serve(id, accepted.sender, accepted.receiver, messages, &queue).await;
            // The queue is closed only when the coordinator itself is gone.
            drop(queue.send((id, Incoming::Ended(end))).await);
        });
    }
}

/// Moves frames both ways until the connection ends; returns how it ended.
async fn serve(
    id: ConnectionId,
    mut sender: Sender,
    mut receiver: Receiver,
    mut messages: mpsc::Receiver<Frame>,
    queue: &mpsc::Sender<(ConnectionId, Incoming)>,
) -> String {
    loop {
        tokio::select! {
            frame = receiver.recv() => match frame {
                Ok(Some(frame)) => {
                    if queue.send((id, Incoming::Frame(frame))).await.is_err() {
                        return "the coordinator ended".to_owned();
                    }
                }
                Ok(None) => return "its connection was closed".to_owned(),
                Err(error) => return format!("its connection broke: {error}"),
            },
            message = messages.recv() => {
                let Some(message) = message else {
                    return "it did not take its messages".to_owned();
                };
                let written = async {
                    sender.send(&message).await?;
                    sender.flush().await
                };
                if let Err(error) = written.await {
                    return format!("its connection broke: {error}");
                }
            }
        }
    }
}
