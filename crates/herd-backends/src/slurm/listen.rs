//! Where the driver of an allocation listens: one address of its node, in the network that Slurm uses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::time::Duration;

use tokio::task;
use tokio::time::timeout;

use super::allocation::Allocation;

/// Bound on asking for the addresses of one name.
const LOOK_UP: Duration = Duration::from_secs(5);

/// The address, with any port.
///
/// It is the one that the node's own name stands for, since sites make node names known in the network
/// that jobs use. Where the name is unknown or stands for loopback, it is the one from which slurmctld is
/// reached. A job on one node needs no network, but for clients that are elsewhere.
pub(super) async fn address(allocation: &Allocation, clients: bool) -> io::Result<SocketAddr> {
    let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let alone = allocation.nodes.len() == 1;
    if alone && !clients {
        return Ok(loopback);
    }
    for found in look_up(format!("{}:0", allocation.own_node)).await {
        if !found.ip().is_loopback() && is_ours(found.ip()) {
            return Ok(SocketAddr::new(found.ip(), 0));
        }
    }
    if let Some(controller) = &allocation.controller {
        for found in look_up(controller.clone()).await {
            if let Ok(own) = towards(found)
                && !own.is_loopback()
            {
                return Ok(SocketAddr::new(own, 0));
            }
        }
    }
    if alone {
        return Ok(loopback);
    }
    Err(io::Error::other(format!(
        "the name {} stands for no address of this node, and there is no way to slurmctld",
        allocation.own_node
    )))
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
            nodes: nodes.iter().map(|&name| name.to_owned()).collect(),
            own_node: "no-such-host.invalid".to_owned(),
            controller: controller.map(str::to_owned),
        }
    }

    #[tokio::test]
    async fn one_node_needs_no_network_and_several_need_one() {
        let one = address(&allocation(&["a"], None), true).await.unwrap();
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
