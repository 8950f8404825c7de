//! The store that torch's processes meet at, served to torch's own clients (`TCPStore` of torch 2.2
//! and newer) without Python, so that its port is bound once and before any worker starts.
//!
//! The protocol has no authentication and no encryption: whoever may connect may read and change all
//! that is in it. So only listed peers are let in ([`Peers`]) and everything is bounded ([`Limits`]);
//! more is not possible.

mod connection;
mod error;
mod peers;
mod protocol;
mod server;
mod shared;
mod state;
mod support;

pub use error::{BindError, Notice, ProtocolError, Refusal};
pub use peers::{Network, NetworkError, Peers};
pub use server::Server;
pub use shared::{Limits, Options};
pub use support::{Support, support};
