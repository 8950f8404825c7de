//! Workers of a host program that is not ours, such as a Python interpreter: they are looked after
//! by a process of their own, the supervisor, that the host starts and talks with over a socket. So
//! nothing process-wide is set in the host, no matter from which of its threads workers are started,
//! and when the host dies, by whatever signal, its workers and all below them are gone within two
//! seconds (I5).
//!
//! [`client`] is the host's side, [`server`] the supervisor's; [`protocol`] is what they say, purely.
//! The program around the server (guard, signals) is herd-runtime's.

pub mod client;
pub mod protocol;
pub mod server;
mod watched;
