//! Who may connect. Addresses prove little, but more than the protocol has by itself.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A network in CIDR notation, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Why a text is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no network\nhint: write an address (10.0.0.7) or a network (10.0.0.0/8, fd00::/8)"
)]
pub struct NetworkError(String);

impl Network {
    /// Whether an address lies in it. An IPv4 address written as IPv6 is the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.prefix);
                let differs = own.to_bits() ^ other.to_bits();
                differs.checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128 - u32::from(self.prefix);
                let differs = own.to_bits() ^ other.to_bits();
                differs.checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        let address = address.to_canonical();
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        Self { address, prefix }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let failed = || NetworkError(text.chars().take(100).collect());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().ok();
        let address = address.ok_or_else(failed)?;
        let Some(prefix) = prefix else {
            return Ok(Self::from(address));
        };
        // `parse` alone would take a sign.
        let digits = prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix.parse::<u8>().ok().filter(|_| digits);
        let max = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.filter(|&prefix| prefix <= max).ok_or_else(failed)?;
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

/// The peers that are let in: these networks, and always loopback and this machine's own addresses.
#[derive(Debug, Clone, Default)]
pub struct Peers(Vec<Network>);

impl Peers {
    /// Lets in another network.
    pub fn allow(&mut self, network: Network) {
        if !self.0.contains(&network) {
            self.0.push(network);
        }
    }

    /// Whether a connection between these two addresses may stay. One that comes from the very address
    /// at which it arrives comes from this machine.
    pub(super) fn admits(&self, peer: SocketAddr, local: SocketAddr) -> bool {
        let address = peer.ip().to_canonical();
        address.is_loopback()
            || address == local.ip().to_canonical()
            || self.0.iter().any(|network| network.contains(address))
    }
}

impl FromIterator<Network> for Peers {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        let mut peers = Self::default();
        for network in networks {
            peers.allow(network);
        }
        peers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn network_has_its_addresses_and_no_others() {
        let cases = [
            ("10.0.0.0/8", "10.255.1.2", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("10.1.2.3/31", "10.1.2.2", true),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("10.0.0.0/8", "::ffff:10.9.8.7", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::1", "2001:db8::1", true),
            ("2001:db8::1", "2001:db8::2", false),
        ];
        for (text, address, expected) in cases {
            let contains = network(text).contains(address.parse().unwrap());
            assert_eq!(contains, expected, "{address} in {text}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused_with_an_example() {
        for text in [
            "",
            "node7",
            "10.0.0.0/33",
            "10.0.0/8",
            "fd00::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
        ] {
            let error = text.parse::<Network>().unwrap_err().to_string();
            assert!(error.contains("hint: write an address"), "{text}: {error}");
        }
        assert_eq!(network("10.1.0.0/16").to_string(), "10.1.0.0/16");
    }

    #[test]
    fn loopback_and_own_addresses_are_always_let_in() {
        let admits = |peers: &Peers, peer: &str, local: &str| {
            peers.admits(peer.parse().unwrap(), local.parse().unwrap())
        };
        let nobody = Peers::default();
        assert!(admits(&nobody, "127.0.0.1:5", "127.0.0.1:6"));
        assert!(admits(&nobody, "[::1]:5", "[::1]:6"));
        assert!(admits(
            &nobody,
            "[::ffff:127.0.0.1]:5",
            "[::ffff:127.0.0.1]:6"
        ));
        assert!(admits(&nobody, "10.0.0.5:5", "10.0.0.5:6"));
        assert!(!admits(&nobody, "10.0.0.6:5", "10.0.0.5:6"));
        let some: Peers = [network("10.0.0.6")].into_iter().collect();
        assert!(admits(&some, "10.0.0.6:5", "10.0.0.5:6"));
        assert!(!admits(&some, "10.0.0.7:5", "10.0.0.5:6"));
    }
}
