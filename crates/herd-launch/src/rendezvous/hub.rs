//! Serving the endpoint: connections of nodes on one side, [`Membership`] on the other.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use herd_link::{Accepted, Channel, Key, LinkError, Listener};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::membership::{Action, Id, Membership, Rules};
use super::message::{FromHost, Hello, ToHost};
use crate::clock::until;

/// How often each node hears from the hub.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// For a node to say who it is, and to say goodbye after its last message.
const PROMPT: Duration = Duration::from_secs(5);
/// Messages on their way to one node; one that falls so far behind is lost.
const QUEUE: usize = 64;
/// Messages of all nodes on their way to the hub.
const INBOX: usize = 256;
/// Connections besides those of the nodes of a full round: those that stand by, and newcomers.
const MORE: usize = 128;

/// The task that serves the endpoint; it ends with this.
#[derive(Debug)]
pub(super) struct Hub {
    address: SocketAddr,
    tasks: JoinSet<()>,
    end: Option<oneshot::Sender<()>>,
    door: Option<oneshot::Receiver<TcpListener>>,
}

impl Hub {
    /// Begins to serve `address`. A node silent for `lost` is gone.
    pub(super) async fn start(
        address: SocketAddr,
        key: &Key,
        channel: &Channel,
        rules: Rules,
        lost: Duration,
    ) -> Result<Self, LinkError> {
        let listener = Listener::bind(address, key, channel).await?;
        let address = listener.local_addr();
        let (end, ended) = oneshot::channel();
        let (door_out, door) = oneshot::channel();
        let (inbox_in, inbox) = mpsc::channel(INBOX);
        let serving = Serving {
            most: usize::try_from(rules.max_nodes)
                .unwrap_or(usize::MAX)
                .saturating_add(MORE),
            listener: Some(listener),
            membership: Membership::new(rules),
            started: Instant::now(),
            lost,
            outgoing: BTreeMap::new(),
            inbox,
            inbox_in,
            connections: JoinSet::new(),
            next: 0,
            door: Some(door_out),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(serving.run(ended));
        Ok(Self {
            address,
            tasks,
            end: Some(end),
            door: Some(door),
        })
    }

    /// The address listened on.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The listening socket, once no more nodes are expected and where a store is to have it.
    pub(super) async fn door(&mut self) -> Option<TcpListener> {
        let listener = self.door.as_mut()?.await.ok();
        self.door = None;
        listener
    }

    /// Tells all nodes that the rendezvous ends, and returns when they have heard it or `bound` has
    /// passed.
    pub(super) async fn end(mut self, bound: Duration) {
        if let Some(end) = self.end.take() {
            let _gone = end.send(());
        }
        let _late = timeout(bound, self.tasks.join_next()).await;
    }
}

/// What a connection's task tells the hub.
#[derive(Debug)]
enum Heard {
    Hello(Box<Hello>, IpAddr),
    Message(ToHost),
    Gone(String),
}

#[derive(Debug)]
struct Serving {
    listener: Option<Listener>,
    membership: Membership,
    started: Instant,
    lost: Duration,
    most: usize,
    outgoing: BTreeMap<Id, mpsc::Sender<FromHost>>,
    inbox: mpsc::Receiver<(Id, Heard)>,
    inbox_in: mpsc::Sender<(Id, Heard)>,
    connections: JoinSet<()>,
    next: Id,
    door: Option<oneshot::Sender<TcpListener>>,
}

impl Serving {
    async fn run(mut self, mut ended: oneshot::Receiver<()>) {
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ending = false;
        // Who asked for the end bounds it.
        while !(ending && self.connections.is_empty()) {
            let tick = self.membership.next_tick();
            tokio::select! {
                _asked_or_gone = &mut ended, if !ending => {
                    ending = true;
                    self.listener = None;
                    let actions = self.membership.leave();
                    self.act(actions);
                }
                heard = self.inbox.recv() => {
                    if let Some((id, heard)) = heard {
                        self.hear(id, heard);
                    }
                }
                accepted = accept(&mut self.listener) => self.admit(accepted),
                _ended = self.connections.join_next(), if !self.connections.is_empty() => {}
                _ = beat.tick() => self.beat(),
                () = until(tick.map(|tick| self.started + tick)) => {
                    let actions = self.membership.tick(self.now());
                    self.act(actions);
                }
            }
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn admit(&mut self, accepted: Accepted) {
        if self.connections.len() >= self.most {
            return;
        }
        self.next += 1;
        let (id, lost) = (self.next, self.lost);
        let (outgoing, queue) = mpsc::channel(QUEUE);
        self.outgoing.insert(id, outgoing);
        let inbox = self.inbox_in.clone();
        self.connections.spawn(async move {
            let seen = accepted.peer.ip().to_canonical();
            let reason = converse(id, accepted, seen, queue, &inbox, lost).await;
            let _hub_gone = inbox.send((id, Heard::Gone(reason))).await;
        });
    }

    fn hear(&mut self, id: Id, heard: Heard) {
        let now = self.now();
        let asks = matches!(heard, Heard::Message(ToHost::Join { .. }));
        let actions = match heard {
            Heard::Hello(hello, seen) => self.membership.hello(id, *hello, seen),
            Heard::Message(message) => self.membership.receive(id, message, now),
            Heard::Gone(reason) => {
                self.outgoing.remove(&id);
                self.membership.gone(id, &reason, now)
            }
        };
        self.act(actions);
        // Who now waits learns at once for whom, and the others with the next beat.
        if let Some(gathering) = self.membership.gathering(id).filter(|_| asks) {
            let gathering = Some(gathering);
            self.send(id, FromHost::Beat { gathering });
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(id, message) => self.send(id, message),
                Action::CloseDoor { has_store } => self.close_door(has_store),
            }
        }
    }

    /// The connection of a node whose queue is full ends, and reports the node as gone.
    fn send(&mut self, id: Id, message: FromHost) {
        let full = |queue: &mpsc::Sender<FromHost>| queue.try_send(message).is_err();
        if self.outgoing.get(&id).is_some_and(full) {
            self.outgoing.remove(&id);
        }
    }

    fn beat(&mut self) {
        let ids: Vec<Id> = self.outgoing.keys().copied().collect();
        for id in ids {
            let gathering = self.membership.gathering(id);
            self.send(id, FromHost::Beat { gathering });
        }
    }

    /// Workers are to meet at this very port. For a store the socket is handed on, so that the port
    /// is never free in between; where rank 0 opens it, whoever connects too early is to be refused.
    fn close_door(&mut self, has_store: bool) {
        let socket = self.listener.take().map(Listener::into_socket);
        if let (Some(door), Some(socket), true) = (self.door.take(), socket, has_store) {
            if let Ok(socket) = socket.into_std() {
                let _nobody_asked = door.send(socket);
            }
        }
    }
}

/// The next connection; never where nobody listens. A system that gives no connections is asked
/// again: nodes that wait name what they wait for, and give up in time.
async fn accept(listener: &mut Option<Listener>) -> Accepted {
    match listener {
        None => std::future::pending().await,
        Some(listener) => loop {
            if let Ok(accepted) = listener.accept().await {
                return accepted;
            }
        },
    }
}

/// One node's connection. Returns why it ended.
async fn converse(
    id: Id,
    accepted: Accepted,
    seen: IpAddr,
    mut queue: mpsc::Receiver<FromHost>,
    inbox: &mpsc::Sender<(Id, Heard)>,
    lost: Duration,
) -> String {
    let Accepted {
        mut sender,
        mut receiver,
        ..
    } = accepted;
    let first = timeout(PROMPT, receiver.recv()).await;
    let hello = match first {
        Ok(Ok(Some(frame))) => match frame.parse_json() {
            Ok(ToHost::Hello(hello)) => Heard::Hello(Box::new(hello), seen),
            _ => return "it did not say who it is".into(),
        },
        _ => return "it said nothing".into(),
    };
    if inbox.send((id, hello)).await.is_err() {
        return "the hub has ended".into();
    }
    let mut silent_at = Instant::now() + lost;
    loop {
        tokio::select! {
            frame = receiver.recv() => {
                silent_at = Instant::now() + lost;
                let message = match frame {
                    Ok(Some(frame)) => frame.parse_json(),
                    Ok(None) => return "it has ended".into(),
                    Err(_cut) => return "its connection broke".into(),
                };
                let Ok(message) = message else {
                    return "it sent what is no message".into();
                };
                if inbox.send((id, Heard::Message(message))).await.is_err() {
                    return "the hub has ended".into();
                }
            }
            message = queue.recv() => {
                let Some(message) = message else {
                    return "it does not read what it is told".into();
                };
                let sent = async {
                    sender.send_json(&message).await?;
                    sender.flush().await
                };
                match timeout(lost, sent).await {
                    Ok(Ok(())) if message.is_last() => {
                        // The goodbye shows that the message has arrived.
                        let goodbye = async { while let Ok(Some(_)) = receiver.recv().await {} };
                        let _late = timeout(PROMPT, goodbye).await;
                        return "it was told the end".into();
                    }
                    Ok(Ok(())) => {}
                    _ => return "its connection broke".into(),
                }
            }
            () = sleep_until(silent_at) => {
                return format!("it was silent for {} s", lost.as_secs());
            }
        }
    }
}
