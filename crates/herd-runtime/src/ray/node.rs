//! Starting Ray on this node.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use herd_core::exit;
use herd_launch::{Output, ProcessSpec, SpawnError};
use herd_link::message::Assign;
use thiserror::Error;

use super::directory::{Directory, remove_left};
use super::machine::Machine;
use super::ports::Claim;
use super::{Part, address, argv, environment};
use crate::inherited::complete;
use crate::service::{Conditions, Service};

/// How long a head or a worker may take; seconds where the machine is idle.
const READY_WITHIN: Duration = Duration::from_mins(2);
/// What `ray start` says when the node is registered with its cluster.
const READY_LINE: &str = "Ray runtime started";

/// Why Ray cannot run on a node.
#[derive(Debug, Error)]
pub(crate) enum RayError {
    /// No block of ports is free.
    #[error("no ports for Ray")]
    Ports(#[source] io::Error),
    /// The node has no address that Ray could use.
    #[error("{address:?} is no address for Ray")]
    Address {
        /// As given.
        address: String,
    },
    /// Its directory cannot be made.
    #[error("could not make Ray's directory in {}", temporary.display())]
    Directory {
        /// Where.
        temporary: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It cannot be started.
    #[error("could not start its {part}")]
    Start {
        /// What people call it.
        part: &'static str,
        /// Why.
        #[source]
        source: SpawnError,
    },
}

impl RayError {
    /// The code to end with, where the program itself could not be started.
    pub(crate) fn start_code(&self) -> Option<u8> {
        match self {
            Self::Start { source, .. } => Some(source.exit_code()),
            Self::Ports(_) | Self::Address { .. } | Self::Directory { .. } => None,
        }
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Start { source, .. } if source.exit_code() == exit::NOT_FOUND => {
                "; hint: install it with `pip install 'ray[default]'`, and have `ray` on the job's PATH"
            }
            _ => "",
        }
    }
}

/// A node's part of a Ray cluster. Its directory goes with it.
#[derive(Debug)]
pub(crate) struct RayNode {
    pub(crate) service: Service,
    /// Where the other nodes reach it.
    pub(crate) address: String,
    /// The head's port, or the one on which a worker is spoken to.
    pub(crate) port: u16,
    directory: Directory,
    /// Keeps the ports from other nodes and jobs.
    _claim: Claim,
}

impl RayNode {
    /// Starts it.
    pub(crate) fn start(assign: &Assign, part: &Part) -> Result<Self, RayError> {
        let claim = Claim::take().map_err(RayError::Ports)?;
        let ports = claim.ports();
        let own = address(assign);
        let ip: IpAddr = own.parse().map_err(|_bad| RayError::Address {
            address: own.clone(),
        })?;
        let temporary = std::env::temp_dir();
        remove_left(&temporary);
        let directory = Directory::make(&temporary, &assign.plan, assign.node)
            .map_err(|source| RayError::Directory { temporary, source })?;
        let machine = Machine::of_this_process();
        let argv = argv(assign, part, ports, &machine, directory.path());
        let log = log(assign, part);
        let port = match part {
            Part::Head => ports.head(),
            Part::Worker { .. } => ports.node_manager(),
        };
        let mut own_env = crate::environment::of_node(assign);
        own_env.extend(environment(ports));
        let mut env = complete(assign, own_env);
        // Another cluster of the caller is none of this one's.
        env.retain(|(name, _)| name != "RAY_ADDRESS");
        let spec = ProcessSpec {
            stdout: Output::File(log.clone()),
            stderr: Output::SameAsStdout,
            cpus: assign.cpus.clone(),
            ..ProcessSpec::new(argv, env, &assign.plan.workdir)
        };
        let conditions = Conditions {
            name: part.name(),
            log,
            line: READY_LINE,
            listens: SocketAddr::new(ip, port),
            within: READY_WITHIN,
        };
        match Service::start(spec, conditions) {
            Ok(service) => Ok(Self {
                service,
                address: own,
                port,
                directory,
                _claim: claim,
            }),
            Err(source) => {
                directory.remove();
                let part = part.name();
                Err(RayError::Start { part, source })
            }
        }
    }

    /// To be removed when nothing of it runs any more.
    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }
}

fn log(assign: &Assign, part: &Part) -> PathBuf {
    let name = assign.node_names.get(assign.node as usize);
    Path::new(&assign.attempt_dir)
        .join("nodes")
        .join(name.map_or("", String::as_str))
        .join(part.log())
}
