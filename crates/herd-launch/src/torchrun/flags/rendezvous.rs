//! Which rendezvous the flags ask for.

use std::net::IpAddr;

use super::values::RdzvBackend;
use super::{FlagError, Flags};
use crate::rendezvous::C10D_PORT;

/// torchrun's port of a static rendezvous.
pub const STATIC_PORT: u16 = 29_500;

/// How the nodes of a job find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendezvous {
    /// There is this node only; the port is free to choose, the id random.
    Standalone,
    /// Every node knows its number; node 0 listens.
    Static {
        /// Where node 0 listens and the workers meet.
        host: String,
        /// Port of the same.
        port: u16,
        /// This node's number.
        node_rank: u32,
    },
    /// Nodes come and go; the one whose machine the endpoint names listens.
    C10d {
        /// Where.
        host: String,
        /// Port of the same.
        port: u16,
    },
}

impl Flags {
    /// The rendezvous: standalone also where it is static, names no place to meet and can have one
    /// node only.
    pub fn rendezvous(&self) -> Result<Rendezvous, FlagError> {
        let is_static = self.rdzv_backend == RdzvBackend::Static;
        let names_no_place = self.rdzv_endpoint.is_none() && self.master_port.is_none();
        if self.standalone || (is_static && names_no_place && self.nnodes.max == 1) {
            return Ok(Rendezvous::Standalone);
        }
        if !is_static {
            let endpoint = self.rdzv_endpoint.as_ref();
            let host = endpoint.map_or("localhost", |endpoint| endpoint.host.as_str());
            let address = host.parse::<IpAddr>();
            if address.is_ok_and(|address| address.is_unspecified()) {
                // torchrun's launchers would all try to connect there until their time is up.
                return Err(FlagError::Conflict {
                    reason: format!(
                        "{host} is the address of no machine, so nodes cannot meet there"
                    ),
                    hint: "give the name or address of the first node, or localhost where all of \
                           them are on this machine"
                        .to_owned(),
                });
            }
            return Ok(Rendezvous::C10d {
                host: host.to_owned(),
                port: endpoint
                    .and_then(|endpoint| endpoint.port)
                    .unwrap_or(C10D_PORT),
            });
        }
        let node_rank = self.node_rank.unwrap_or(0);
        if node_rank >= self.nnodes.max {
            return Err(FlagError::Conflict {
                reason: format!(
                    "node rank {node_rank} is outside of {} nodes",
                    self.nnodes.max
                ),
                hint: "nodes are numbered from 0; `--nnodes` is their number".to_owned(),
            });
        }
        let (host, port) = match &self.rdzv_endpoint {
            Some(endpoint) => {
                let port = endpoint.port.ok_or_else(|| FlagError::Conflict {
                    reason: format!("the endpoint `{endpoint}` of a static rendezvous has no port"),
                    hint: format!("write `--rdzv-endpoint={endpoint}:{STATIC_PORT}`"),
                })?;
                (endpoint.host.clone(), port)
            }
            None => (
                self.master_addr
                    .clone()
                    .unwrap_or_else(|| "127.0.0.1".to_owned()),
                self.master_port.unwrap_or(STATIC_PORT),
            ),
        };
        Ok(Rendezvous::Static {
            host,
            port,
            node_rank,
        })
    }
}
