//! The listening side. Hands out authenticated connections only, and bounds what all others cost.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use snow::HandshakeState;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::connect::halves;
use crate::{Channel, Key, LinkError, Receiver, Sender, handshake};

/// The most connections in the handshake at once.
pub const MAX_HANDSHAKES: usize = 64;

/// How long a handshake may take.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a silent connection is safe from being closed for a newcomer.
const SAFE: Duration = Duration::from_millis(250);

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// [`Listener::accept`] reports a system that gives no connections after this long.
const REPORT_AFTER: Duration = Duration::from_secs(10);

/// A connection whose peer has shown the key.
#[derive(Debug)]
pub struct Accepted {
    /// Sends to the peer.
    pub sender: Sender,
    /// Receives from the peer.
    pub receiver: Receiver,
    /// Where the peer connected from: for messages only, it proves nothing.
    pub peer: SocketAddr,
}

/// Listens on one address for one attempt of one job.
///
/// Handshakes run in tasks of the listener and go on between calls of [`Listener::accept`].
/// When [`MAX_HANDSHAKES`] are under way and another connection comes, the oldest one that has not
/// shown the key is closed for it, once it has been silent for 250 ms (an honest peer speaks first
/// and at once, but a thousand of them may knock together). Until then the newcomer waits, and
/// those after it stay in the kernel's queue.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    key: Key,
    channel: Channel,
    handshakes: JoinSet<Option<Accepted>>,
    /// The handshakes that may be closed for a newcomer, oldest first.
    waiting: VecDeque<Waiting>,
    /// Accepted, but no place for its handshake yet.
    newcomer: Option<(TcpStream, SocketAddr)>,
    trouble: Option<Trouble>,
    rejected: u64,
}

#[derive(Debug)]
struct Waiting {
    task: AbortHandle,
    shown: Arc<AtomicBool>,
    safe_until: Instant,
}

/// The system gives no connections (out of file descriptors, for example).
#[derive(Debug, Clone, Copy)]
struct Trouble {
    report_at: Instant,
    pause: Duration,
    retry_at: Instant,
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one.
    pub async fn bind(
        address: SocketAddr,
        key: &Key,
        channel: &Channel,
    ) -> Result<Self, LinkError> {
        let failed = |source| LinkError::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Self {
            socket,
            address,
            key: key.clone(),
            channel: channel.clone(),
            handshakes: JoinSet::new(),
            waiting: VecDeque::new(),
            newcomer: None,
            trouble: None,
            rejected: 0,
        })
    }

    /// The address listened on, with its real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Ends listening under the link's protocol and gives the socket away, still listening:
    /// connections given out stay, handshakes under way end.
    pub fn into_socket(self) -> TcpListener {
        self.socket
    }

    /// How many connections ended before they had shown the key.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// The next authenticated connection.
    ///
    /// Cancel-safe. No peer can make it fail. An error says that the system has given no
    /// connection for ten seconds; the listener goes on trying when it is called again.
    pub async fn accept(&mut self) -> Result<Accepted, LinkError> {
        loop {
            if self.handshakes.len() < MAX_HANDSHAKES {
                if let Some((stream, peer)) = self.newcomer.take() {
                    self.start(stream, peer)?;
                }
            }
            let retry_at = self
                .trouble
                .map_or_else(Instant::now, |trouble| trouble.retry_at);
            let full = self.newcomer.is_some();
            let oldest = if full { self.oldest_silent() } else { None };
            let close_at = oldest.map_or_else(Instant::now, |(_, safe_until)| safe_until);
            tokio::select! {
                biased;
                Some(ended) = self.handshakes.join_next() => {
                    self.waiting.retain(|waiting| !waiting.task.is_finished());
                    match ended {
                        Ok(Some(accepted)) => return Ok(accepted),
                        Ok(None) | Err(_) => self.rejected += 1,
                    }
                }
                accepted = accept_after(retry_at, &self.socket), if !full => match accepted {
                    Ok(newcomer) => {
                        self.trouble = None;
                        self.newcomer = Some(newcomer);
                    }
                    Err(error) => self.back_off(error)?,
                },
                () = tokio::time::sleep_until(close_at), if oldest.is_some() => {
                    if let Some((index, _)) = self.oldest_silent() {
                        if let Some(closed) = self.waiting.remove(index) {
                            closed.task.abort();
                        }
                    }
                }
            }
        }
    }

    fn start(&mut self, mut stream: TcpStream, peer: SocketAddr) -> Result<(), LinkError> {
        let noise = handshake::responder(&self.key, &self.channel)?;
        let shown = Arc::new(AtomicBool::new(false));
        let task_shown = Arc::clone(&shown);
        let task = self.handshakes.spawn(async move {
            let handshake = handshaken(noise, &mut stream, &task_shown);
            let (sealer, opener) = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
                .await
                .ok()?
                .ok()?;
            let (sender, receiver) = halves(stream, sealer, opener);
            Some(Accepted {
                sender,
                receiver,
                peer,
            })
        });
        self.waiting.push_back(Waiting {
            task,
            shown,
            safe_until: Instant::now() + SAFE,
        });
        Ok(())
    }

    /// The handshake to close for a newcomer, and from when on. None while one is being closed.
    fn oldest_silent(&self) -> Option<(usize, Instant)> {
        if self.waiting.len() < MAX_HANDSHAKES {
            return None;
        }
        let silent = |waiting: &Waiting| !waiting.shown.load(Ordering::Relaxed);
        let index = self.waiting.iter().position(silent)?;
        Some((index, self.waiting[index].safe_until))
    }

    fn back_off(&mut self, error: io::Error) -> Result<(), LinkError> {
        if matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::Interrupted
        ) {
            // The peer went away while it was queued: its own affair.
            return Ok(());
        }
        let now = Instant::now();
        let mut trouble = self.trouble.unwrap_or(Trouble {
            report_at: now + REPORT_AFTER,
            pause: FIRST_PAUSE,
            retry_at: now,
        });
        trouble.retry_at = now + trouble.pause;
        trouble.pause = (trouble.pause * 2).min(LONGEST_PAUSE);
        let report = now >= trouble.report_at;
        if report {
            trouble.report_at = now + REPORT_AFTER;
        }
        self.trouble = Some(trouble);
        if report {
            Err(LinkError::Accept(error))
        } else {
            Ok(())
        }
    }
}

async fn accept_after(
    instant: Instant,
    socket: &TcpListener,
) -> io::Result<(TcpStream, SocketAddr)> {
    if instant > Instant::now() {
        tokio::time::sleep_until(instant).await;
    }
    socket.accept().await
}

async fn handshaken(
    noise: HandshakeState,
    stream: &mut TcpStream,
    shown: &AtomicBool,
) -> Result<(crate::record::Sealer, crate::record::Opener), LinkError> {
    stream.set_nodelay(true).map_err(LinkError::Read)?;
    handshake::respond(noise, stream, || shown.store(true, Ordering::Relaxed)).await
}
