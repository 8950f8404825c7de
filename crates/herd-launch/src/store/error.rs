//! What can go wrong, and what a launcher may want to tell its user about the store.

use std::io;
use std::net::{IpAddr, SocketAddr};

/// Why no store could be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// No address was given.
    #[error(
        "no address for the store to listen on\nhint: give loopback or an address of this node"
    )]
    NoAddress,
    /// The system refuses the address or the port.
    #[error(
        "cannot listen on {address} for torch's store\n\
         hint: see with `ss -ltnp` who has the port, or take another one (0 takes a free one)"
    )]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// No port was free on all addresses together.
    #[error(
        "no port is free on all of {addresses:?} for torch's store\n\
         hint: listen on fewer addresses, or name a port"
    )]
    NoCommonPort {
        /// What was asked for.
        addresses: Vec<IpAddr>,
    },
}

/// Why a client was cut off: it does not speak the protocol, or not this one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The first bytes are those of something else, a torch before 2.2 for example.
    #[error("it does not begin as a client of torch 2.2 or newer does")]
    NotValidated,
    /// It said nothing for too long after it had connected.
    #[error("it has not said what it is within {0} s")]
    Silent(u64),
    /// An operation that this version does not know.
    #[error("it asks for operation {0}, which this version of herd does not know")]
    UnknownOperation(u8),
    /// A key or a value longer than torch itself allows.
    #[error("it sends a string of {claimed} bytes, more than {max}")]
    StringTooLong {
        /// The length that the client said.
        claimed: u64,
        /// The bound.
        max: usize,
    },
    /// More keys in one request than torch itself allows.
    #[error("it sends {0} keys in one request, more than 131072")]
    TooManyKeys(u64),
    /// One request of more than 64 MiB.
    #[error("it sends a request of more than 64 MiB")]
    RequestTooLong,
}

/// Why a client was cut off: what it asks for cannot be done, and the protocol has no answer that
/// says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Something is to be added to a value that is no number.
    #[error("it adds to a value that is no number")]
    NotANumber,
    /// The store holds as much as it may.
    #[error("the store is full ({0} MiB)")]
    Full(usize),
    /// The store has as many keys as it may.
    #[error("the store is full ({0} keys)")]
    TooManyKeys(usize),
    /// The answer would be longer than 64 MiB.
    #[error("it asks for more than 64 MiB at once")]
    AnswerTooLong,
    /// It took no byte of an answer for too long.
    #[error("it has not read its answer for {0} s")]
    NotReading(u64),
    /// All connections together hold as much as they may, and this one the most.
    #[error("what is under way from and to all clients exceeds {0} MiB, and it has the most of it")]
    Crowded(usize),
}

/// What happened at the store that a user may want to know; each kind is told once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// A peer that is not on the list.
    #[error(
        "the store refused a connection from {0}, which is no node of this job\n\
         hint: if it belongs to the job, allow its address (--store-allow)"
    )]
    NotAllowed(IpAddr),
    /// A peer that was cut off for what it sent.
    #[error("the store closed the connection from {peer}: {reason}")]
    Protocol {
        /// Who it was.
        peer: SocketAddr,
        /// Why.
        reason: ProtocolError,
    },
    /// A peer that was cut off for what it asked for.
    #[error("the store closed the connection from {peer}: {reason}")]
    Refused {
        /// Who it was.
        peer: SocketAddr,
        /// Why.
        reason: Refusal,
    },
    /// As many connections as there may be.
    #[error("the store refused a connection from {peer}: it has {limit} already")]
    TooManyConnections {
        /// Who was refused.
        peer: SocketAddr,
        /// The bound.
        limit: usize,
    },
    /// The system gives no more connections.
    #[error(
        "the store cannot accept connections: {0}\n\
         hint: the limit of open files (`ulimit -n`) may be too low for so many workers"
    )]
    Accept(String),
}

impl Notice {
    /// What is told once only.
    pub(super) fn kind(&self) -> String {
        match self {
            Self::NotAllowed(address) => address.to_string(),
            Self::Protocol {
                reason: ProtocolError::UnknownOperation(operation),
                ..
            } => format!("operation {operation}"),
            Self::Protocol { reason, .. } => format!("{:?}", std::mem::discriminant(reason)),
            Self::Refused { reason, .. } => format!("refused {:?}", std::mem::discriminant(reason)),
            Self::TooManyConnections { .. } => "connections".to_owned(),
            Self::Accept(_) => "accept".to_owned(),
        }
    }
}
