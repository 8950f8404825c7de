//! Listens, lets peers in, and owns everything that runs for them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::connection::Connection;
use super::error::{BindError, Notice};
use super::peers::Network;
use super::shared::{Admission, Options, Shared};

/// How often a free port is looked for that is free on all addresses.
const PORT_TRIES: usize = 32;
/// The kernel has a maximum of its own, which is lower.
const BACKLOG: u32 = i32::MAX.cast_unsigned();
/// Pause after the system has refused a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A peer whose machine is gone is noticed after about two minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// A store that torch's workers connect to.
///
/// It runs in the tokio runtime in which it was made. Dropping it closes the port and all connections
/// at the runtime's next turn.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    port: u16,
    shared: Shared,
    notices: mpsc::Receiver<Notice>,
    /// One task per address, each of which owns the tasks of its connections.
    #[expect(dead_code, reason = "held, since dropping it ends the tasks")]
    tasks: JoinSet<()>,
}

impl Server {
    /// Listens on these addresses, all with the same port; 0 takes one that is free on all of them.
    /// `[::]` listens everywhere, on IPv4 too, and on IPv4 alone where there is no IPv6.
    ///
    /// To be called inside a tokio runtime, before any worker starts: the port is taken from then on.
    pub fn bind(addresses: &[IpAddr], port: u16, options: Options) -> Result<Self, BindError> {
        Self::over(listen(addresses, port)?, options).map_err(|source| BindError::Listen {
            address: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port),
            source,
        })
    }

    /// Serves at a port that was taken before: a socket that listens and does not block.
    ///
    /// To be called inside a tokio runtime, before any worker starts.
    pub fn of(listener: std::net::TcpListener, options: Options) -> io::Result<Self> {
        Self::over(vec![TcpListener::from_std(listener)?], options)
    }

    fn over(listeners: Vec<TcpListener>, options: Options) -> io::Result<Self> {
        let addresses: io::Result<Vec<_>> = listeners.iter().map(TcpListener::local_addr).collect();
        let addresses = addresses?;
        let port = addresses.first().map_or(0, SocketAddr::port);
        let shared_options = Arc::new(options.clone());
        let (shared, notices) = Shared::new(options);
        let mut tasks = JoinSet::new();
        for listener in listeners {
            tasks.spawn(accept(
                listener,
                shared.clone(),
                Arc::clone(&shared_options),
            ));
        }
        Ok(Self {
            addresses,
            port,
            shared,
            notices,
            tasks,
        })
    }

    /// The port, the same on all addresses.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Lets in another network, that of a node that has joined for example.
    pub fn allow(&self, network: Network) {
        self.shared.allow(network);
    }

    /// Forgets all keys and closes all connections; the port stays. For the next attempt, whose workers
    /// must not meet what those of the last one left: clients of some versions of torch put the number
    /// of the attempt before their keys, others rely on a fresh store.
    pub fn reset(&self) {
        self.shared.reset();
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }

    /// The next thing that a user may want to know. Cancel-safe; waits for ever where there is none.
    pub async fn notice(&mut self) -> Notice {
        match self.notices.recv().await {
            Some(notice) => notice,
            // Not reached: the server itself holds a sender.
            None => std::future::pending().await,
        }
    }
}

fn listen(addresses: &[IpAddr], port: u16) -> Result<Vec<TcpListener>, BindError> {
    if addresses.is_empty() {
        return Err(BindError::NoAddress);
    }
    for _ in 0..PORT_TRIES {
        let mut listeners = Vec::new();
        let mut common = port;
        loop {
            let Some(&address) = addresses.get(listeners.len()) else {
                return Ok(listeners);
            };
            match listen_on(address, common) {
                Ok(listener) => {
                    if common == 0 {
                        common = listener.local_addr().map_or(0, |address| address.port());
                    }
                    listeners.push(listener);
                }
                Err(BindError::Listen { source, .. })
                    if port == 0 && common != 0 && source.kind() == io::ErrorKind::AddrInUse =>
                {
                    // Free on the first address, not on this one: another one.
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Err(BindError::NoCommonPort {
        addresses: addresses.to_vec(),
    })
}

fn listen_on(address: IpAddr, port: u16) -> Result<TcpListener, BindError> {
    let at = |address| SocketAddr::new(address, port);
    let everywhere = address == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match try_listen(at(address), everywhere) {
        Err(error) if everywhere && is_no_ipv6(&error) => {
            let address = at(Ipv4Addr::UNSPECIFIED.into());
            try_listen(address, false).map_err(|source| BindError::Listen { address, source })
        }
        result => result.map_err(|source| BindError::Listen {
            address: at(address),
            source,
        }),
    }
}

fn is_no_ipv6(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL | libc::EPROTONOSUPPORT)
    )
}

fn try_listen(address: SocketAddr, dual_stack: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() {
        let socket = TcpSocket::new_v6()?;
        sockopt::set_ipv6_v6only(&socket, !dual_stack)?;
        socket
    } else {
        TcpSocket::new_v4()?
    };
    // A launcher that has just ended leaves its closed connections behind for a minute.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Lets peers in until its owner ends it, and with it all of its connections.
async fn accept(listener: TcpListener, shared: Shared, options: Arc<Options>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if let Some(connection) = admit(stream, peer, &shared).await {
                    connections.spawn(connection.serve(Arc::clone(&options)));
                }
            }
            Err(error) if is_of_one_peer(&error) => {}
            Err(error) => {
                shared.tell(Notice::Accept(error.to_string()));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The peer went away before it was accepted: its own affair.
fn is_of_one_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

async fn admit(stream: TcpStream, peer: SocketAddr, shared: &Shared) -> Option<Connection> {
    let local = stream.local_addr().ok()?;
    loop {
        match shared.admit(peer, local) {
            Admission::Refused => return None,
            Admission::NotBefore(when) => tokio::time::sleep_until(when).await,
            Admission::Welcome(id, changed) => {
                // Both only make things better.
                stream.set_nodelay(true).ok();
                keep_alive(&stream).ok();
                return Some(Connection {
                    id,
                    peer,
                    stream,
                    changed,
                    shared: shared.clone(),
                });
            }
        }
    }
}

/// A machine that is switched off says nothing; without this its clients would wait here for ever.
fn keep_alive(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)
}
