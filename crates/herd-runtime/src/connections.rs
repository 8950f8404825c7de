//! The coordinator's connections: one task each, all frames into one bounded queue. An executor's
//! conversation outlives its connections ([`herd_link::resume`]): it keeps its number, and whoever
//! uses this sees neither what was sent twice nor what was lost in between.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use herd_link::message::FromCoordinator;
use herd_link::resume::{Inbox, Outbox, Resume, Token};
use herd_link::{Accepted, Channel, Frame, Key, LinkError, Listener, Receiver, Sender};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::session::bounds;

/// Frames that wait to be handled, over all connections; at 64 KiB of log each, 4 MiB.
const INCOMING: usize = 64;
/// Frames that wait to be written to one connection: all that a node's outbox holds, and what is said
/// of frames received. Their bytes are the outbox's, and to a client its windows.
const OUTGOING: usize = bounds::NODE.frames + INCOMING;
/// Bound on taking leave of a peer.
const CLOSE_BOUND: Duration = Duration::from_secs(1);

/// A connection's number, never used twice in one attempt. A conversation keeps that of its first
/// connection.
pub(crate) type ConnectionId = u64;

/// What a connection brings.
pub(crate) enum Incoming {
    /// A frame.
    Frame(Frame),
    /// Its connection broke; it may come back. The text says how.
    Broken(String),
    /// It ended; the text says how.
    Ended(String),
}

/// What a connection's task tells.
enum Told {
    Frame(Frame),
    /// It begins a conversation or comes back to one.
    Resume(Resume, Box<(Sender, Receiver)>),
    Ended {
        how: String,
        /// The peer has taken its leave.
        clean: bool,
    },
}

/// From a task of this number.
type FromTask = (u64, Told);

/// A connection that stands.
struct Connected {
    task: u64,
    outgoing: mpsc::Sender<Frame>,
    abort: AbortHandle,
}

/// What is remembered of a conversation between its connections.
struct Conversation {
    token: Token,
    inbox: Inbox,
    outbox: Outbox,
}

/// All connections of one coordinator.
pub(crate) struct Connections {
    listener: Listener,
    tasks: JoinSet<()>,
    connected: BTreeMap<ConnectionId, Connected>,
    conversations: BTreeMap<ConnectionId, Conversation>,
    /// Whose frames a task brings. One that is in no use any more is not in here.
    owners: BTreeMap<u64, ConnectionId>,
    queue: mpsc::Sender<FromTask>,
    incoming: mpsc::Receiver<FromTask>,
    next_task: u64,
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
            connected: BTreeMap::new(),
            conversations: BTreeMap::new(),
            owners: BTreeMap::new(),
            queue,
            incoming,
            next_task: 0,
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
                Some(told) = self.incoming.recv() => {
                    if let Some(incoming) = self.take(told) {
                        return incoming;
                    }
                }
                Some(_) = self.tasks.join_next() => {}
                accepted = self.listener.accept() => {
                    if let Ok(Accepted { sender, receiver, .. }) = accepted {
                        let task = self.next_task;
                        self.connect(task, sender, receiver, Vec::new());
                    }
                }
            }
        }
    }

    /// Another frame that is there already.
    pub(crate) fn try_next(&mut self) -> Option<(ConnectionId, Incoming)> {
        loop {
            let told = self.incoming.try_recv().ok()?;
            if let Some(incoming) = self.take(told) {
                return Some(incoming);
            }
        }
    }

    /// Hands a message to a connection's task.
    pub(crate) fn send(&mut self, id: ConnectionId, message: &FromCoordinator) {
        // All parts of a message can be written as JSON.
        if let Ok(json) = serde_json::to_vec(message) {
            self.send_frame(id, Frame::Control(json));
        }
    }

    /// Hands a node what is of a session; `false` where the node has not taken so much yet that
    /// there is no room for it. The coordinator's own messages still find some.
    pub(crate) fn send_of_session(&mut self, id: ConnectionId, frame: Frame) -> bool {
        if let Some(conversation) = self.conversations.get(&id) {
            if !conversation.outbox.fits(&frame, bounds::SESSIONS) {
                return false;
            }
        }
        self.send_frame(id, frame);
        true
    }

    /// Hands a frame to a connection's task, or keeps it for when the peer comes back. A peer that
    /// does not take its frames is cut off.
    pub(crate) fn send_frame(&mut self, id: ConnectionId, frame: Frame) {
        if let Some(conversation) = self.conversations.get_mut(&id) {
            if !conversation.outbox.is_below(bounds::NODE) {
                self.close(id);
                return;
            }
            conversation.outbox.push(frame.clone());
        }
        self.write(id, frame);
    }

    /// Ends a connection or a conversation; its end is told like any other.
    pub(crate) fn close(&mut self, id: ConnectionId) {
        self.conversations.remove(&id);
        // The task takes leave of the peer when it finds its queue closed.
        self.connected.remove(&id);
    }

    fn write(&mut self, id: ConnectionId, frame: Frame) {
        let Some(connected) = self.connected.get(&id) else {
            return;
        };
        if connected.outgoing.try_send(frame).is_ok() {
            return;
        }
        if self.conversations.contains_key(&id) {
            // It has been kept, so a new connection brings it.
            self.cut(id);
        } else {
            self.close(id);
        }
    }

    /// Ends a connection without a word, whose conversation goes on.
    fn cut(&mut self, id: ConnectionId) {
        if let Some(connected) = self.connected.remove(&id) {
            self.owners.remove(&connected.task);
            connected.abort.abort();
        }
    }

    /// What a task has told, in terms of conversations.
    fn take(&mut self, (task, told): FromTask) -> Option<(ConnectionId, Incoming)> {
        match told {
            Told::Resume(resume, ends) => {
                self.owners.remove(&task);
                self.connected.remove(&task);
                self.resume(task, resume, *ends);
                None
            }
            Told::Frame(frame) => {
                // What a connection brings that was replaced comes again on the new one.
                let id = *self.owners.get(&task)?;
                if let Some(conversation) = self.conversations.get_mut(&id) {
                    match &frame {
                        Frame::Received(count) => {
                            if conversation.outbox.acknowledge(*count).is_err() {
                                self.close(id);
                            }
                            return None;
                        }
                        frame => {
                            if let Some(count) = conversation.inbox.count(frame) {
                                self.write(id, Frame::Received(count));
                            }
                        }
                    }
                }
                Some((id, Incoming::Frame(frame)))
            }
            Told::Ended { how, clean } => {
                let id = self.owners.remove(&task)?;
                self.connected.remove(&id);
                if !clean && self.conversations.contains_key(&id) {
                    return Some((id, Incoming::Broken(how)));
                }
                self.conversations.remove(&id);
                Some((id, Incoming::Ended(how)))
            }
        }
    }

    /// A peer begins a conversation, or comes back to one.
    fn resume(&mut self, task: u64, resume: Resume, (sender, receiver): (Sender, Receiver)) {
        let known = self
            .conversations
            .iter()
            .find(|(_, conversation)| conversation.token == resume.token)
            .map(|(&id, _)| id);
        let id = match known {
            Some(id) => id,
            None if resume.received == 0 => {
                let conversation = Conversation {
                    token: resume.token,
                    inbox: Inbox::default(),
                    outbox: Outbox::default(),
                };
                self.conversations.insert(task, conversation);
                task
            }
            // It was given up.
            None => return self.take_leave(sender),
        };
        self.cut(id);
        let Some(conversation) = self.conversations.get_mut(&id) else {
            return;
        };
        if conversation.outbox.acknowledge(resume.received).is_err() {
            self.close(id);
            return self.take_leave(sender);
        }
        let answer = Frame::Resume(Resume {
            token: resume.token,
            received: conversation.inbox.received(),
        });
        let again = conversation.outbox.unacknowledged().cloned();
        let first = std::iter::once(answer).chain(again).collect();
        self.connect(id, sender, receiver, first);
    }

    fn take_leave(&mut self, sender: Sender) {
        self.tasks.spawn(async move {
            let _late = timeout(CLOSE_BOUND, sender.close()).await;
        });
    }

    /// Serves a connection for `id`, beginning with the frames `first`.
    fn connect(&mut self, id: ConnectionId, sender: Sender, receiver: Receiver, first: Vec<Frame>) {
        let task = self.next_task;
        self.next_task += 1;
        let (outgoing, messages) = mpsc::channel(OUTGOING);
        let queue = self.queue.clone();
        let serving = Serving {
            task,
            resumable: first.is_empty(),
            sender,
            receiver,
            messages,
            queue,
        };
        let abort = self.tasks.spawn(serving.serve(first));
        self.owners.insert(task, id);
        self.connected.insert(
            id,
            Connected {
                task,
                outgoing,
                abort,
            },
        );
    }
}

/// One connection's task.
struct Serving {
    task: u64,
    /// Nothing has been received yet: the first frame may begin a conversation.
    resumable: bool,
    sender: Sender,
    receiver: Receiver,
    messages: mpsc::Receiver<Frame>,
    queue: mpsc::Sender<FromTask>,
}

impl Serving {
    /// Moves frames both ways until the connection ends, and tells how it ended.
    async fn serve(mut self, first: Vec<Frame>) {
        let broke = |error: &LinkError| Told::Ended {
            how: format!("its connection broke: {error}"),
            clean: false,
        };
        let sent = async {
            for frame in &first {
                self.sender.send(frame).await?;
            }
            self.sender.flush().await
        };
        let mut end = sent.await.err().map(|error| broke(&error));
        drop(first);
        while end.is_none() {
            tokio::select! {
                frame = self.receiver.recv() => match frame {
                    Ok(Some(Frame::Resume(resume))) if self.resumable => {
                        let ends = Box::new((self.sender, self.receiver));
                        // The queue is closed only when the coordinator itself is gone.
                        drop(self.queue.send((self.task, Told::Resume(resume, ends))).await);
                        return;
                    }
                    Ok(Some(frame)) => {
                        self.resumable = false;
                        if self.queue.send((self.task, Told::Frame(frame))).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => end = Some(Told::Ended {
                        how: "its connection was closed".to_owned(),
                        clean: true,
                    }),
                    Err(error) => end = Some(broke(&error)),
                },
                message = self.messages.recv() => {
                    let Some(message) = message else {
                        let _late = timeout(CLOSE_BOUND, self.sender.close()).await;
                        let how = "it did not take its messages".to_owned();
                        drop(self.queue.send((self.task, Told::Ended { how, clean: true })).await);
                        return;
                    };
                    let written = async {
                        self.sender.send(&message).await?;
                        self.sender.flush().await
                    };
                    end = written.await.err().map(|error| broke(&error));
                }
            }
        }
        if let Some(end) = end {
            drop(self.queue.send((self.task, end)).await);
        }
    }
}
