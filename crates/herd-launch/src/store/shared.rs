//! What all connections share: the state, their outboxes, and the account of what they hold.
//!
//! One lock, held for one batch of requests and never across an await; the runtime has one thread, so
//! nobody waits for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::error::{Notice, ProtocolError, Refusal};
use super::peers::{Network, Peers};
use super::protocol::{Decoder, Request, STOP_WAITING};
use super::state::{ClientId, State};

const MIB: usize = 1024 * 1024;
/// The most connections that have not said yet what they are.
const UNVALIDATED_MAX: usize = 1024;
/// How long such a connection is safe from being closed for a newcomer.
const SAFE: Duration = Duration::from_millis(250);
/// Answers of this size are sent before more requests of the same client are looked at.
const BATCH_BYTES: usize = 64 * 1024;
/// As many requests of one client are handled before others have their turn.
const BATCH: usize = 256;
/// Notices that are kept until somebody reads them; further ones are dropped.
const NOTICES: usize = 64;

/// Bounds of a store. A client that exceeds one is cut off; the others go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at the same time. A worker has a few.
    pub connections: usize,
    /// Bytes of all keys, values, queues and waits, with what they cost beside their content.
    pub stored_bytes: usize,
    /// Keys and queues.
    pub keys: usize,
    /// Bytes of all requests that are not complete and all answers that are not taken.
    pub under_way_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            stored_bytes: 1024 * MIB,
            keys: 1024 * 1024,
            under_way_bytes: 512 * MIB,
        }
    }
}

/// How a store is to be.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who may connect, besides this machine itself.
    pub peers: Peers,
    /// The bounds.
    pub limits: Limits,
    /// Within this time a connection must have said what it is.
    pub validate_within: Duration,
    /// Within this time a client must take a part at least of an answer.
    pub read_within: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            peers: Peers::default(),
            limits: Limits::default(),
            validate_within: Duration::from_secs(5),
            read_within: Duration::from_secs(30),
        }
    }
}

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The client has gone, or the store was emptied.
    Quiet,
    Protocol(ProtocolError),
    Refused(Refusal),
}

impl From<ProtocolError> for End {
    fn from(reason: ProtocolError) -> Self {
        Self::Protocol(reason)
    }
}

impl From<Refusal> for End {
    fn from(reason: Refusal) -> Self {
        Self::Refused(reason)
    }
}

#[derive(Debug)]
struct Client {
    /// Answers that its task has not taken yet.
    outbox: Vec<u8>,
    /// Something is in the outbox, or the connection is to end.
    changed: Arc<Notify>,
    /// Bytes under way, as its task said last.
    held: usize,
    end: Option<End>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    clients: BTreeMap<ClientId, Client>,
    /// Those that have not said what they are, oldest first, and when they came.
    unvalidated: BTreeMap<ClientId, Instant>,
    next_client: ClientId,
    under_way: usize,
    options: Options,
    notices: mpsc::Sender<Notice>,
    /// The kinds of notices that were told.
    told: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Shared(Arc<Mutex<Inner>>);

/// Whether a newcomer may come in.
#[derive(Debug)]
pub(super) enum Admission {
    /// As this client, woken by this.
    Welcome(ClientId, Arc<Notify>),
    /// Not before then.
    NotBefore(Instant),
    Refused,
}

/// What there was to do for a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Handled {
    Nothing,
    Some,
    /// As much as is done in one turn.
    Batch,
}

impl Shared {
    pub(super) fn new(options: Options) -> (Self, mpsc::Receiver<Notice>) {
        let (notices, receiver) = mpsc::channel(NOTICES);
        let limits = &options.limits;
        let shared = Inner {
            state: State::new(limits.stored_bytes, limits.keys),
            clients: BTreeMap::new(),
            unvalidated: BTreeMap::new(),
            next_client: 0,
            under_way: 0,
            options,
            notices,
            told: Vec::new(),
        };
        (Self(Arc::new(Mutex::new(shared))), receiver)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn allow(&self, network: Network) {
        self.lock().options.peers.allow(network);
    }

    pub(super) fn tell(&self, notice: Notice) {
        self.lock().tell(notice);
    }

    /// How many connections there are.
    pub(super) fn connections(&self) -> usize {
        self.lock().clients.len()
    }

    /// Forgets all keys and ends all connections.
    pub(super) fn reset(&self) {
        let mut inner = self.lock();
        inner.state.clear();
        for client in inner.clients.values_mut() {
            client.end(End::Quiet);
        }
    }

    pub(super) fn admit(&self, peer: SocketAddr, local: SocketAddr) -> Admission {
        let mut inner = self.lock();
        if !inner.options.peers.admits(peer, local) {
            inner.tell(Notice::NotAllowed(peer.ip().to_canonical()));
            return Admission::Refused;
        }
        let limit = inner.options.limits.connections;
        if inner.unvalidated.len() >= UNVALIDATED_MAX.min(limit) {
            if let Some((&oldest, &came)) = inner.unvalidated.first_key_value() {
                let safe_until = came + SAFE;
                if Instant::now() < safe_until {
                    return Admission::NotBefore(safe_until);
                }
                inner.unvalidated.remove(&oldest);
                inner.end(oldest, End::Quiet);
            }
        }
        if inner.clients.len() >= limit {
            inner.tell(Notice::TooManyConnections { peer, limit });
            return Admission::Refused;
        }
        let id = inner.next_client;
        inner.next_client += 1;
        let changed = Arc::new(Notify::new());
        let client = Client {
            outbox: Vec::new(),
            changed: Arc::clone(&changed),
            held: 0,
            end: None,
        };
        inner.clients.insert(id, client);
        inner.unvalidated.insert(id, Instant::now());
        Admission::Welcome(id, changed)
    }

    /// A connection is over; nothing of it is left.
    pub(super) fn remove(&self, id: ClientId) {
        let mut inner = self.lock();
        inner.state.forget(id);
        inner.unvalidated.remove(&id);
        if let Some(client) = inner.clients.remove(&id) {
            inner.under_way -= client.held;
        }
    }

    /// A connection's task says what it holds, and takes its outbox where `output` is empty.
    pub(super) fn exchange(
        &self,
        id: ClientId,
        held: usize,
        output: &mut Vec<u8>,
    ) -> Result<(), End> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let client = inner.clients.get_mut(&id).ok_or(End::Quiet)?;
        if output.is_empty() {
            // Small buffers are used again: most answers are a few bytes.
            output.shrink_to(BATCH_BYTES);
            std::mem::swap(output, &mut client.outbox);
        }
        let held = held + output.capacity() + client.outbox.capacity();
        inner.under_way = inner.under_way - client.held + held;
        client.held = held;
        let limit = inner.options.limits.under_way_bytes;
        if inner.under_way > limit {
            let most = inner.clients.iter().max_by_key(|(_, client)| client.held);
            if let Some((&most, _)) = most {
                inner.end(most, Refusal::Crowded(limit / MIB).into());
            }
        }
        let client = inner.clients.get_mut(&id).ok_or(End::Quiet)?;
        client.end.take().map_or(Ok(()), Err)
    }

    /// Handles requests that are complete, a batch of them at most.
    pub(super) fn handle(&self, id: ClientId, decoder: &mut Decoder) -> Result<Handled, End> {
        let mut inner = self.lock();
        let mut handled = Handled::Nothing;
        for _ in 0..BATCH {
            let Some(request) = decoder.next()? else {
                return Ok(handled);
            };
            handled = Handled::Some;
            if inner.handle(id, request)? > BATCH_BYTES {
                return Ok(handled);
            }
        }
        Ok(Handled::Batch)
    }
}

impl Inner {
    /// The size of the client's outbox after one request.
    fn handle(&mut self, id: ClientId, request: Request) -> Result<usize, End> {
        if request == Request::Validate {
            self.unvalidated.remove(&id);
        }
        let client = self.clients.get_mut(&id).ok_or(End::Quiet)?;
        if client.end.is_some() {
            return Err(client.end.take().unwrap_or(End::Quiet));
        }
        let woken = self.state.apply(id, request, &mut client.outbox)?;
        for id in woken {
            if let Some(client) = self.clients.get_mut(&id) {
                client.outbox.push(STOP_WAITING);
                client.changed.notify_one();
            }
        }
        Ok(self
            .clients
            .get(&id)
            .map_or(0, |client| client.outbox.len()))
    }

    fn end(&mut self, id: ClientId, end: End) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.end(end);
        }
    }

    fn tell(&mut self, notice: Notice) {
        let kind = notice.kind();
        if self.told.len() < NOTICES && !self.told.contains(&kind) {
            // Nobody may be listening; as many as fit are kept.
            if self.notices.try_send(notice).is_ok() {
                self.told.push(kind);
            }
        }
    }
}

impl Client {
    fn end(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.changed.notify_one();
    }
}
