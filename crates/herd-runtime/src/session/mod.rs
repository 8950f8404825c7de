//! What a client does in a running job. Commands (`herd rsh`, `herd exec`): `client` asks, `relay` is
//! the coordinator's part, `node` runs them, `bounds` says how much of them waits for a node. Its
//! output (`herd logs --live`): `follow_client` asks, `follow` is the coordinator's part. The messages
//! are herd-link's.

pub(crate) mod bounds;
pub mod client;
mod command;
pub(crate) mod follow;
pub mod follow_client;
pub(crate) mod node;
pub(crate) mod relay;
mod streams;
