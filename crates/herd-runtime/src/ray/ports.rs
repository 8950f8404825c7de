//! Ports for one node's Ray. Its servers listen on all addresses and are told their ports some
//! seconds before they bind them, so the ports must be free for all nodes and jobs of the machine.
//!
//! They come in blocks below the range that the kernel gives to connections. The first port of a
//! block is kept bound as long as the block is in use: whoever finds it bound takes another block.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Ports of a block, the claim included.
const BLOCK: u16 = 16;
/// Ports of a block that are used.
const USED: u16 = 12;
/// The first block begins here.
const FIRST: u16 = 20_000;
/// Blocks end here where the kernel's range leaves no room.
const LAST: u16 = 60_000;

/// A block of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    base: u16,
}

impl Ports {
    pub(crate) fn head(self) -> u16 {
        self.base + 1
    }
    pub(crate) fn node_manager(self) -> u16 {
        self.base + 2
    }
    pub(crate) fn object_manager(self) -> u16 {
        self.base + 3
    }
    pub(crate) fn runtime_env_agent(self) -> u16 {
        self.base + 4
    }
    pub(crate) fn metrics(self) -> u16 {
        self.base + 5
    }
    pub(crate) fn agent(self) -> u16 {
        self.base + 6
    }
    pub(crate) fn agent_grpc(self) -> u16 {
        self.base + 7
    }
    pub(crate) fn client_server(self) -> u16 {
        self.base + 8
    }
    pub(crate) fn dashboard(self) -> u16 {
        self.base + 9
    }
    pub(crate) fn autoscaler_metrics(self) -> u16 {
        self.base + 10
    }
    pub(crate) fn dashboard_metrics(self) -> u16 {
        self.base + 11
    }
}

/// A block that is this process's until dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    ports: Ports,
    _claim: TcpListener,
}

impl Claim {
    /// Takes the first block that nobody uses.
    pub(crate) fn take() -> io::Result<Self> {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        let end = end_of_blocks(&range.unwrap_or_default());
        let mut base = FIRST;
        while base + BLOCK <= end {
            if let Some(claim) = Self::try_block(base) {
                return Ok(claim);
            }
            base += BLOCK;
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("every block of ports between {FIRST} and {end} is in use"),
        ))
    }

    pub(crate) fn ports(&self) -> Ports {
        self.ports
    }

    fn try_block(base: u16) -> Option<Self> {
        let claim = TcpListener::bind((Ipv4Addr::LOCALHOST, base)).ok()?;
        // Held together, so that all are free at one moment.
        let free: Option<Vec<TcpListener>> = (base + 1..base + USED).map(bind).collect();
        free.map(|_released| Self {
            ports: Ports { base },
            _claim: claim,
        })
    }
}

/// A port on all addresses. Fails also where somebody listens on one address only.
fn bind(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).ok()
}

/// Where the blocks end: below the kernel's own range, unless that leaves no room.
fn end_of_blocks(range: &str) -> u16 {
    let low = range.split_whitespace().next();
    low.and_then(|low| low.parse().ok())
        .filter(|&low| low >= FIRST + 64 * BLOCK)
        .unwrap_or(LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_claims_never_share_a_port() {
        let one = Claim::take().unwrap();
        let two = Claim::take().unwrap();
        assert!(one.ports().base.abs_diff(two.ports().base) >= BLOCK);
        let again = Claim::try_block(one.ports().base);
        assert!(again.is_none());
    }

    #[test]
    fn a_block_with_one_port_in_use_is_passed_over() {
        let claim = Claim::take().unwrap();
        let base = claim.ports().base;
        drop(claim);
        let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, base + USED - 1));
        // Another test may have taken the block meanwhile: then it is in use all the same.
        assert!(Claim::try_block(base).is_none() || stranger.is_err());
    }

    #[test]
    fn blocks_stay_below_the_ports_of_connections() {
        assert_eq!(end_of_blocks("32768\t60999\n"), 32_768);
        assert_eq!(end_of_blocks("1024\t65535\n"), LAST);
        assert_eq!(end_of_blocks(""), LAST);
    }
}
