//! Where the driver of an allocation listens: one address of its node, in the network that Slurm uses.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::time::Duration;

use tokio::task;
use tokio::time::timeout;

use super::allocation::Allocation;
use super::cluster::Cluster;

/// Bound on asking for the addresses of one name.
const LOOK_UP: Duration = Duration::from_secs(5);

/// The address, with any port.
///
/// It is the one that the node's own name stands for, since sites make node names known in the network
/// that jobs use, or the one from which slurmctld is reached. Where these are two, or none, Slurm's own
/// connections tell by which the other nodes reach this one. A job on one node needs no network, but for
/// clients that are elsewhere.
pub(super) async fn address(allocation: &Allocation, clients: bool) -> io::Result<SocketAddr> {
    let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let peer = allocation
        .nodes
        .iter()
        .find(|name| **name != allocation.own_node);
    if peer.is_none() && !clients {
        return Ok(loopback);
    }
    let likely = likely(allocation).await;
    let asked = match (likely.as_slice(), peer) {
        ([_], _) | (_, None) => None,
        (_, Some(peer)) => way_back(allocation, peer).await,
    };
    let chosen = asked.or_else(|| likely.first().copied());
    match (chosen, peer) {
        (Some(own), _) => Ok(SocketAddr::new(own, 0)),
        (None, None) => Ok(loopback),
        (None, Some(_)) => Err(io::Error::other(format!(
            "the name {} stands for no address of this node, there is no way to slurmctld, and srun does \
             not tell either",
            allocation.own_node
        ))),
    }
}

/// The addresses of this node by its name, and towards slurmctld.
async fn likely(allocation: &Allocation) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = look_up(format!("{}:0", allocation.own_node))
        .await
        .into_iter()
        .map(|named| named.ip())
        .filter(|own| !own.is_loopback() && is_ours(*own))
        .collect();
    if let Some(controller) = &allocation.controller {
        let there = look_up(controller.clone()).await;
        let own = there.into_iter().filter_map(|there| towards(there).ok());
        found.extend(own.filter(|own| !own.is_loopback()));
    }
    let mut seen = BTreeSet::new();
    found.retain(|own| seen.insert(*own));
    found
}

/// The address at which another node reaches this one by Slurm's connections.
async fn way_back(allocation: &Allocation, peer: &str) -> Option<IpAddr> {
    let call = herd_slurm::step::way_back(allocation.run.job, peer);
    let said = Cluster::default().text(call).await.ok()?;
    let own: IpAddr = said.trim().parse().ok()?;
    (!own.is_loopback() && is_ours(own)).then_some(own)
}

/// Addresses of `host:port`; none where they cannot be had in time.
async fn look_up(place: String) -> Vec<SocketAddr> {
    let asked = task::spawn_blocking(move || {
        place
            .to_socket_addrs()
            .map(Iterator::collect)
            .unwrap_or_default()
    });
    match timeout(LOOK_UP, asked).await {
        Ok(Ok(found)) => found,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// Whether an address is one of this machine's.
fn is_ours(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The address of this machine from which another is reached. Nothing is sent.
fn towards(there: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if there.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(there)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::allocation::SlurmRun;

    fn allocation(nodes: &[&str], controller: Option<&str>) -> Allocation {
        Allocation {
            run: SlurmRun {
                job: 1,
                restarts: 0,
            },
            task: None,
            nodes: nodes.iter().map(|&name| name.to_owned()).collect(),
            own_node: "no-such-host.invalid".to_owned(),
            controller: controller.map(str::to_owned),
        }
    }

    #[tokio::test]
    async fn one_node_needs_no_network_and_several_need_one() {
        let own = allocation(&["no-such-host.invalid"], None);
        let one = address(&own, true).await.unwrap();
        assert!(one.ip().is_loopback());
        let error = address(&allocation(&["a", "b"], None), false)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no-such-host.invalid"));
        // Loopback leads to no other node.
        let nowhere = allocation(&["a", "b"], Some("127.0.0.1:6817"));
        assert!(address(&nowhere, true).await.is_err());
    }
}
