//! Commands inside a running job (`herd rsh`, `herd exec`): `client` asks, `relay` is the
//! coordinator's part, `node` runs them, `bounds` says how much of them waits for a node. The messages
//! are herd-link's.

pub(crate) mod bounds;
pub mod client;
mod command;
pub(crate) mod node;
pub(crate) mod relay;
mod streams;
