//! Why launchers did not come together.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use herd_link::LinkError;

/// Why launchers did not come together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// A value of the configuration that cannot be used.
    #[error(
        "rendezvous configuration {key}={value}: not a number of seconds\nhint: write a number from 0 \
         to 864000, as in join_timeout=600"
    )]
    Conf {
        /// Its key.
        key: String,
        /// As given.
        value: String,
    },
    /// Settings that can never work.
    #[error("rendezvous: {0}")]
    Settings(String),
    /// The key cannot be read.
    #[error("rendezvous key from {from}: {source}\nhint: it is 64 hexadecimal digits")]
    Key {
        /// Where it was looked for.
        from: String,
        /// Why not.
        #[source]
        source: LinkError,
    },
    /// The key's file cannot be read.
    #[error("rendezvous key file {}: {source}", path.display())]
    KeyFile {
        /// Its path.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The endpoint is to be served here and cannot be.
    #[error(
        "serving the rendezvous endpoint {endpoint}: {source}\nhint: another port, or find out who \
         has this one (`ss -ltnp`)"
    )]
    Serve {
        /// The endpoint.
        endpoint: String,
        /// Why not.
        #[source]
        source: LinkError,
    },
    /// No port for workers to meet at.
    #[error(
        "a port for workers to meet at ({address}:{port}): {source}\nhint: another --master-port, or \
         find out who has this one (`ss -ltnp`)"
    )]
    MasterPort {
        /// The address to listen on.
        address: String,
        /// The port asked for; 0 for any.
        port: u16,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The others did not come, or the endpoint could not be reached, in time.
    #[error(
        "rendezvous {id:?} at {endpoint} not complete within {} s: {what}\nhint: start the missing \
         nodes, check that they can reach the endpoint, or raise join_timeout in --rdzv-conf",
        after.as_secs()
    )]
    TimedOut {
        /// The rendezvous's id.
        id: String,
        /// The endpoint.
        endpoint: String,
        /// The bound.
        after: Duration,
        /// Who or what is missing.
        what: String,
    },
    /// Whatever serves the endpoint does not accept this node.
    #[error(
        "the rendezvous endpoint {endpoint} refused this node for {} s\nhint: its key \
         (HERD_RDZV_KEY, key_file) or --rdzv-id differs, or something else listens there",
        after.as_secs()
    )]
    Refused {
        /// The endpoint.
        endpoint: String,
        /// How long it was tried.
        after: Duration,
    },
    /// This node does not fit the others.
    #[error("rendezvous {id:?} at {endpoint}: {reason}")]
    Unfit {
        /// The rendezvous's id.
        id: String,
        /// The endpoint.
        endpoint: String,
        /// In what.
        reason: String,
    },
    /// The job is over, and well: this node is not needed any more.
    #[error("rendezvous {id:?} at {endpoint}: the job has finished")]
    Finished {
        /// The rendezvous's id.
        id: String,
        /// The endpoint.
        endpoint: String,
    },
    /// The job is over, or cannot go on with a full set of nodes.
    #[error("rendezvous {id:?} at {endpoint} is closed: {reason}")]
    Closed {
        /// The rendezvous's id.
        id: String,
        /// The endpoint.
        endpoint: String,
        /// Why.
        reason: String,
    },
    /// Who served the endpoint is gone, and with it the rendezvous.
    #[error(
        "rendezvous {id:?}: lost the launcher that serves {endpoint}: {reason}\nhint: look at that \
         node's own output"
    )]
    HostLost {
        /// The rendezvous's id.
        id: String,
        /// The endpoint.
        endpoint: String,
        /// How it showed.
        reason: String,
    },
}
