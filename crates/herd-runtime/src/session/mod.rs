//! Commands inside a running job (`herd rsh`, `herd exec`): `client` asks, `relay` is the
//! coordinator's part, `node` runs them. The messages are herd-link's.

pub mod client;
mod command;
pub(crate) mod node;
pub(crate) mod relay;
mod streams;
