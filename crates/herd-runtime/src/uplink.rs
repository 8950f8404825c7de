//! An executor's conversation with its coordinator, on a task of its own: it outlives connections
//! that break, says once a second that the executor lives, and ends when the coordinator has not
//! been heard for the lease. Nothing here keeps the executor from its ranks: what cannot be sent
//! waits in a bounded queue, and the executor looks for room before it takes more from them.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use herd_link::message::ToCoordinator;
use herd_link::resume::{Inbox, Outbox, Resume, Token, WrongCount};
use herd_link::{Channel, Frame, Key, LinkError, Receiver, Sender};
use serde::Serialize;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};

use crate::executor::{HEARTBEAT, LEASE};

/// Frames that wait in either direction between the executor and this task.
const QUEUE: usize = 16;
/// Frames that may come of one thing that happened on the node.
const ROOM: usize = 4;
/// Bound on one try to reach the coordinator.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that wait for the socket before nothing more is taken to be sent.
const UNWRITTEN: usize = 128 * 1024;
/// Pauses between tries to come back: the first, and the longest.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Bound on taking leave.
const CLOSE_BOUND: Duration = Duration::from_secs(1);

/// Why a conversation ended.
#[derive(Debug, Error)]
pub enum UplinkError {
    /// The link failed, and for longer than the lease.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The coordinator was silent for longer than the lease.
    #[error("the coordinator was silent for {} s", LEASE.as_secs())]
    Silent,
    /// The coordinator does not know this conversation any more.
    #[error("the coordinator has given this node up")]
    GivenUp,
    /// The coordinator has broken the protocol.
    #[error("the coordinator miscounts")]
    Count(#[from] WrongCount),
    /// It has sent something else than an answer.
    #[error("the coordinator did not answer as it must")]
    Answer,
    /// The system has no randomness to give.
    #[error("could not make a name for the conversation")]
    Token(#[source] std::io::Error),
}

/// Where the coordinator is and how to show that one belongs to it.
#[derive(Debug)]
pub(crate) struct Coordinates {
    pub(crate) address: SocketAddr,
    pub(crate) key: Key,
    pub(crate) channel: Channel,
}

/// The executor's end. Dropped, it cuts the connection.
#[derive(Debug)]
pub(crate) struct Uplink {
    outgoing: mpsc::Sender<Frame>,
    incoming: mpsc::Receiver<Frame>,
    task: JoinSet<Result<(), UplinkError>>,
    /// From where the coordinator is reached.
    local_address: Option<IpAddr>,
}

impl Uplink {
    /// Reaches the coordinator; a first connection is tried once.
    pub(crate) async fn open(coordinates: Coordinates) -> Result<Self, UplinkError> {
        let (outgoing, to_send) = mpsc::channel(QUEUE);
        let (received, incoming) = mpsc::channel(QUEUE);
        let mut conversation = Conversation {
            coordinates,
            token: Token::generate().map_err(UplinkError::Token)?,
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            heard: Instant::now(),
            to_send,
            received,
        };
        let ends = conversation.connect().await?;
        let local_address = ends.0.local_address().ok().map(|address| address.ip());
        let mut task = JoinSet::new();
        task.spawn(conversation.last(ends));
        Ok(Self {
            outgoing,
            incoming,
            task,
            local_address,
        })
    }

    /// The address of this node from which the coordinator is reached, where the system tells it.
    pub(crate) fn local_address(&self) -> Option<IpAddr> {
        self.local_address
    }

    /// The next frame; `None` when the coordinator has taken its leave. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Result<Option<Frame>, UplinkError> {
        if let Some(frame) = self.incoming.recv().await {
            return Ok(Some(frame));
        }
        match self.task.join_next().await {
            Some(Ok(Err(error))) => Err(error),
            _ => Ok(None),
        }
    }

    /// Whether [`Uplink::send`] takes a few frames now.
    pub(crate) fn has_room(&self) -> bool {
        self.outgoing.capacity() >= ROOM
    }

    /// Waits until there is room. Cancel-safe.
    pub(crate) fn room(&self) -> impl Future<Output = ()> + use<> {
        let outgoing = self.outgoing.clone();
        async move {
            // Closed, it is the receiving side that tells of it.
            if outgoing.reserve_many(ROOM).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Hands a frame over; where there is no room it waits for it, but no longer than the
    /// conversation lasts.
    pub(crate) async fn send(&mut self, frame: Frame) {
        // A conversation that has ended is told by `recv`.
        drop(self.outgoing.send(frame).await);
    }

    /// Hands a message over.
    pub(crate) async fn send_json<T: Serialize>(&mut self, message: &T) {
        // All parts of a message can be written as JSON.
        if let Ok(json) = serde_json::to_vec(message) {
            self.send(Frame::Control(json)).await;
        }
    }

    /// Sends what waits and takes leave, so that the coordinator does not wait for a return.
    pub(crate) async fn close(self) {
        let Self {
            outgoing,
            incoming,
            mut task,
            ..
        } = self;
        drop((outgoing, incoming));
        let _late = timeout(CLOSE_BOUND, task.join_next()).await;
    }
}

/// Both halves of one connection.
type Ends = (Sender, Receiver);

struct Conversation {
    coordinates: Coordinates,
    token: Token,
    outbox: Outbox,
    inbox: Inbox,
    /// When the coordinator was last heard.
    heard: Instant,
    to_send: mpsc::Receiver<Frame>,
    received: mpsc::Sender<Frame>,
}

impl Conversation {
    /// From the first connection to the end.
    async fn last(mut self, mut ends: Ends) -> Result<(), UplinkError> {
        loop {
            match self.on(&mut ends).await {
                // The connection broke.
                Err(UplinkError::Link(_)) => {}
                // The executor or the coordinator has ended.
                Ok(()) => {
                    let _late = timeout(CLOSE_BOUND, ends.0.close()).await;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            ends = self.come_back().await?;
        }
    }

    /// Moves frames both ways on one connection until it breaks or a side has ended.
    async fn on(&mut self, (sender, receiver): &mut Ends) -> Result<(), UplinkError> {
        let mut beat = interval(HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // How many frames of the conversation are sent, on this connection or before.
        let mut sent = self.outbox.acknowledged();
        loop {
            while let Some(frame) = self
                .outbox
                .after(sent)
                .filter(|_| sender.queued() < UNWRITTEN)
            {
                sender.send(frame).await?;
                sent += 1;
            }
            let all_sent = self.outbox.after(sent).is_none();
            // Every branch is cancel-safe: what is half sent or received stays in its half.
            tokio::select! {
                biased;
                _ = beat.tick() => {
                    if self.heard.elapsed() > LEASE {
                        return Err(UplinkError::Silent);
                    }
                    if all_sent {
                        let beat = serde_json::to_vec(&ToCoordinator::Heartbeat);
                        self.outbox.push(Frame::Control(beat.unwrap_or_default()));
                    }
                }
                frame = receiver.recv() => {
                    self.heard = Instant::now();
                    match frame? {
                        Some(Frame::Received(count)) => self.outbox.acknowledge(count)?,
                        Some(Frame::Resume(_)) => return Err(UplinkError::Answer),
                        Some(frame) => {
                            if let Some(count) = self.inbox.count(&frame) {
                                sender.send(&Frame::Received(count)).await?;
                            }
                            if self.received.send(frame).await.is_err() {
                                return Ok(());
                            }
                        }
                        None => return Ok(()),
                    }
                }
                frame = self.to_send.recv(), if all_sent && self.outbox.has_room() => match frame {
                    Some(frame) => self.outbox.push(frame),
                    None => return Ok(()),
                },
                flushed = sender.flush(), if sender.queued() > 0 => flushed?,
            }
        }
    }

    /// Comes back to the coordinator, again and again, within the lease.
    async fn come_back(&mut self) -> Result<Ends, UplinkError> {
        let deadline = self.heard + LEASE;
        let mut pause = BACK_OFF.0;
        loop {
            match timeout_at(deadline, self.connect()).await {
                Ok(Ok(ends)) => return Ok(ends),
                // The coordinator may be out of reach for a while.
                Ok(Err(UplinkError::Link(_))) => {}
                Ok(Err(error)) => return Err(error),
                Err(_elapsed) => return Err(UplinkError::Silent),
            }
            if Instant::now() + pause >= deadline {
                return Err(UplinkError::Silent);
            }
            sleep(pause).await;
            pause = (pause * 2).min(BACK_OFF.1);
        }
    }

    /// One try: connects, says who one is and learns what did not arrive.
    async fn connect(&mut self) -> Result<Ends, UplinkError> {
        let at = &self.coordinates;
        let (mut sender, mut receiver) =
            herd_link::connect(at.address, &at.key, &at.channel, CONNECT_TIMEOUT).await?;
        let resume = Resume {
            token: self.token,
            received: self.inbox.received(),
        };
        let answer = async {
            sender.send(&Frame::Resume(resume)).await?;
            sender.flush().await?;
            receiver.recv().await
        };
        let answer = timeout(CONNECT_TIMEOUT, answer).await;
        let answer = answer.map_err(|_elapsed| LinkError::TimedOut {
            address: at.address,
            seconds: CONNECT_TIMEOUT.as_secs_f64(),
        })??;
        match answer {
            Some(Frame::Resume(theirs)) if theirs.token == self.token => {
                self.outbox.acknowledge(theirs.received)?;
            }
            Some(_) => return Err(UplinkError::Answer),
            None => return Err(UplinkError::GivenUp),
        }
        self.heard = Instant::now();
        Ok((sender, receiver))
    }
}
