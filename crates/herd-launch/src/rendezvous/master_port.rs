//! The port at which workers meet, taken before any of them starts so that no other program gets it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::machine::is_localhost;

const BACKLOG: i32 = 1024;

/// A TCP port that is taken. Dropping it gives the port back; workers that open it themselves are
/// started right after that.
#[derive(Debug)]
pub struct MasterPort {
    socket: OwnedFd,
    port: u16,
    listening: bool,
}

impl MasterPort {
    /// Takes `port` (0: a free one) for workers that will connect to `host`. Nothing listens yet:
    /// whoever connects too early is refused at once and tries again, rather than being accepted by
    /// a queue that goes away.
    pub(super) fn take(host: &str, port: u16) -> io::Result<Self> {
        let mut refused = None;
        for ip in listen_candidates(host) {
            match bind(SocketAddr::new(ip, port)) {
                Ok(socket) => return Self::bound(socket),
                // An address that is translated on the way, or no IPv6 here: the next one.
                Err(error) if not_here(&error) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(refused.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
    }

    fn bound(socket: OwnedFd) -> io::Result<Self> {
        let address = rustix::net::getsockname(&socket)?;
        let address = SocketAddr::try_from(address)?;
        Ok(Self {
            socket,
            port: address.port(),
            listening: false,
        })
    }

    /// Goes on with a socket at which launchers have met.
    pub(super) fn of(listener: TcpListener) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        Ok(Self {
            socket: listener.into(),
            port,
            listening: true,
        })
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.port
    }

    /// A listening socket on the port, non-blocking, for a store that the launcher serves.
    pub fn listen(self) -> io::Result<TcpListener> {
        if !self.listening {
            rustix::net::listen(&self.socket, BACKLOG)?;
        }
        let listener = TcpListener::from(self.socket);
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}

/// Where to listen so that `host` is reached: an address is itself, loopback stays on loopback, and
/// a name, which others may resolve to another address than this machine does, is all interfaces.
fn listen_candidates(host: &str) -> Vec<IpAddr> {
    match host.parse() {
        Ok(ip @ IpAddr::V4(_)) => vec![ip, Ipv4Addr::UNSPECIFIED.into()],
        Ok(ip @ IpAddr::V6(_)) => vec![ip, Ipv6Addr::UNSPECIFIED.into()],
        Err(_name) if is_localhost(host) => vec![Ipv4Addr::LOCALHOST.into()],
        Err(_name) => vec![Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()],
    }
}

fn not_here(error: &io::Error) -> bool {
    let no_family = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(no_family)
}

fn bind(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_taken_port_refuses_until_it_is_listened_on() {
        let taken = MasterPort::take("127.0.0.1", 0).unwrap();
        let number = taken.number();
        let early = TcpStream::connect(("127.0.0.1", number)).unwrap_err();
        assert_eq!(early.kind(), io::ErrorKind::ConnectionRefused);
        let listener = taken.listen().unwrap();
        TcpStream::connect(("127.0.0.1", number)).unwrap();
        drop(listener);
        let again = MasterPort::take("localhost", number).unwrap();
        assert_eq!(again.number(), number);
        drop(again);
        MasterPort::take("some-name", 0).unwrap();
    }
}
