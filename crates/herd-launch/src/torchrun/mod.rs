//! The surface of torchrun: its flags, masks, macros, worker environment, failures and report, as
//! far as they need no process. Everything here is a function of what it is given, except the error
//! files ([`failure`], [`parent_copy`]) and the reading of a sysfs tree ([`numa`]).

pub mod command;
pub mod events;
pub mod failure;
pub mod flags;
pub mod macros;
pub mod mask;
pub mod numa;
pub mod parent_copy;
pub mod place;
pub mod report;
pub mod run;
pub mod worker_env;
