//! This machine among those an endpoint may mean: whether it is here, and what to listen on.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// What this machine is called and reached by.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    pub(super) name: String,
    /// Addresses of its interfaces, loopback left out.
    pub(super) addresses: BTreeSet<IpAddr>,
}

impl Machine {
    /// Looks at this machine. What the system does not tell is left empty.
    pub(super) fn look() -> Self {
        let system = rustix::system::uname();
        let interfaces = nix::ifaddrs::getifaddrs().ok();
        let addresses = interfaces.into_iter().flatten().filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        });
        Self {
            name: system.nodename().to_string_lossy().into_owned(),
            addresses: addresses.filter(|address| !address.is_loopback()).collect(),
        }
    }

    fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_loopback() || self.addresses.contains(&address)
    }

    /// Whether `host`, which resolves to `resolved`, is this machine. A name that stands for several
    /// machines (a headless service of a cluster) is none of them.
    pub(super) fn is(&self, host: &str, resolved: &[IpAddr]) -> bool {
        is_localhost(host)
            || (!self.name.is_empty() && host.eq_ignore_ascii_case(&self.name))
            || (!resolved.is_empty() && resolved.iter().all(|&address| self.has(address)))
    }

    /// The address on which to serve an endpoint at `host`: the one that it means, where that is
    /// certain. Often a machine's own name is a loopback address to itself and another one to
    /// others; then, and where the endpoint's address is translated on the way, all interfaces.
    pub(super) fn listen_on(&self, host: &str, resolved: &[IpAddr]) -> IpAddr {
        if is_localhost(host) {
            let v4 = resolved.iter().find(|address| address.is_ipv4());
            let any = v4.or_else(|| resolved.first()).copied();
            return any
                .filter(IpAddr::is_loopback)
                .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        match resolved {
            &[address] if self.has(address) && !address.is_loopback() => address,
            addresses if addresses.iter().any(IpAddr::is_ipv6) => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        }
    }
}

/// Whether a host means whatever machine it is said on.
pub(super) fn is_localhost(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// How to reach on this machine what listens on `address`.
pub(super) fn from_here(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The address of this machine on the way to `peer`: what the kernel's routes say. No packet is sent.
pub(super) fn on_the_way_to(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match peer.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn machine() -> Machine {
        Machine {
            name: "h0".into(),
            addresses: [ip("10.0.0.1"), ip("fd00::1")].into(),
        }
    }

    #[test]
    fn an_endpoint_is_here_by_name_or_by_address() {
        let here = |host, resolved: &[&str]| {
            let resolved: Vec<_> = resolved.iter().map(|text| ip(text)).collect();
            machine().is(host, &resolved)
        };
        assert!(here("localhost", &[]));
        assert!(here("127.0.0.1", &["127.0.0.1"]));
        assert!(here("H0", &[]));
        assert!(here("h0.cluster", &["10.0.0.1", "fd00::1"]));
        assert!(here("h0.cluster", &["127.0.1.1"]));
        assert!(here("10.0.0.1", &["10.0.0.1"]));
        assert!(!here("10.0.0.2", &["10.0.0.2"]));
        assert!(!here("h1", &[]));
        assert!(!here("all-pods", &["10.0.0.1", "10.0.0.2"]));
    }

    #[test]
    fn it_listens_where_the_endpoint_says_and_on_all_interfaces_only_in_doubt() {
        let on = |host, resolved: &[&str]| {
            let resolved: Vec<_> = resolved.iter().map(|text| ip(text)).collect();
            machine().listen_on(host, &resolved).to_string()
        };
        assert_eq!(on("localhost", &["::1", "127.0.0.1"]), "127.0.0.1");
        assert_eq!(on("::1", &["::1"]), "::1");
        assert_eq!(on("10.0.0.1", &["10.0.0.1"]), "10.0.0.1");
        assert_eq!(on("h0.cluster", &["10.0.0.1"]), "10.0.0.1");
        assert_eq!(on("h0", &["127.0.1.1"]), "0.0.0.0");
        assert_eq!(on("service", &["10.9.9.9"]), "0.0.0.0");
        assert_eq!(on("h0.cluster", &["10.0.0.1", "fd00::1"]), "::");
    }

    #[test]
    fn this_machine_is_found_by_its_own_name_and_addresses() {
        let machine = Machine::look();
        assert!(machine.is(&machine.name.clone(), &[]));
        let peer = "127.0.0.1:9".parse().unwrap();
        assert_eq!(on_the_way_to(peer), Some(ip("127.0.0.1")));
    }
}
