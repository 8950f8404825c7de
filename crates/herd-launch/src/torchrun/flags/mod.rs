//! torchrun's command line, and what herd adds to it. torchrun's spellings, prefixes, `PET_`
//! variables and defaults hold; a fault is a usage error (2) with a hint.
//!
//! The parser is written by hand over a table of flags, because the binary that nodes get must stay
//! small and start at once.

mod build;
mod completion;
mod endpoint;
mod error;
mod help;
mod lists;
mod rdzv_conf;
mod reader;
mod rendezvous;
mod scan;
mod table;
mod values;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub use completion::completion;
pub use error::{FlagError, Origin};
pub use help::help;
pub use lists::RankSet;
pub use rdzv_conf::RdzvConf;
pub use rendezvous::{Rendezvous, STATIC_PORT};
pub use values::{
    AffinityMode, EventLog, ExitRule, NodeCount, NprocPerNode, RdzvBackend, Shell, SignalList,
};

use super::mask::StdMap;
use crate::rendezvous::Endpoint;
use crate::store::Network;

/// What a command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// To run workers.
    Launch(Box<Flags>),
    /// The help text.
    Help,
    /// A completion script.
    PrintCompletion(Shell),
}

/// A complete, valid command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Least and greatest number of nodes.
    pub nnodes: NodeCount,
    /// Workers on this node.
    pub nproc_per_node: NprocPerNode,
    /// This node's number, where it is given (the default of a static rendezvous is 0).
    pub node_rank: Option<u32>,
    /// Role of the workers.
    pub role: String,
    /// One node that needs no other. [`Flags::rendezvous`] knows when this is so without the flag.
    pub standalone: bool,
    /// How nodes find each other.
    pub rdzv_backend: RdzvBackend,
    /// Where they do.
    pub rdzv_endpoint: Option<Endpoint>,
    /// What the nodes of one job share.
    pub rdzv_id: String,
    /// Settings of the rendezvous.
    pub rdzv_conf: RdzvConf,
    /// Where a static rendezvous and the workers meet, where it is given.
    pub master_addr: Option<String>,
    /// Port of the same, where it is given.
    pub master_port: Option<u16>,
    /// Address of this node that others are told.
    pub local_addr: Option<String>,
    /// The script is the name of a Python module.
    pub module: bool,
    /// The script is a program of its own.
    pub no_python: bool,
    /// The script runs in Python, whatever `no_python` says.
    pub run_path: bool,
    /// Every worker sees `LOCAL_RANK` 0 and one accelerator.
    pub virtual_local_rank: bool,
    /// Binding to processors.
    pub numa_binding: Option<AffinityMode>,
    /// Restarts of all workers after a failure.
    pub max_restarts: u32,
    /// How often torchrun would look at its workers.
    pub monitor_interval: Duration,
    /// Signals that are passed on and end the run.
    pub signals_to_handle: SignalList,
    /// Time between the request to end and SIGKILL.
    pub shutdown_timeout: Duration,
    /// Where a directory for this run's files is made.
    pub log_dir: Option<PathBuf>,
    /// Streams that go to files.
    pub redirects: StdMap,
    /// Streams that go to files and to the console.
    pub tee: StdMap,
    /// Local ranks that the console shows; all where it is absent.
    pub local_ranks_filter: Option<RankSet>,
    /// What stands before a shown line, with macros.
    pub log_line_prefix_template: Option<String>,
    /// Shown lines of standard output with one of these are written once more.
    pub duplicate_stdout_filters: Vec<String>,
    /// The same for standard error.
    pub duplicate_stderr_filters: Vec<String>,
    /// Where events go.
    pub event_log: EventLog,
    /// The status after a failure.
    pub exit_rule: ExitRule,
    /// Global ranks that the console shows; all where it is absent.
    pub tee_ranks: Option<RankSet>,
    /// How long all workers may be silent.
    pub hang_timeout: Option<Duration>,
    /// Whether to say at the end what each worker used.
    pub summary: bool,
    /// Whether to say what was found and decided.
    pub verbose: bool,
    /// Further addresses that may connect to the workers' store.
    pub store_allow: Vec<Network>,
    /// The script, module or program.
    pub script: OsString,
    /// Its arguments, untouched.
    pub args: Vec<OsString>,
    /// Dashed names of the flags that the command line or a variable gave.
    pub given: BTreeSet<&'static str>,
    /// What the user should know, a sentence each.
    pub warnings: Vec<String>,
}

/// Reads a command line (without the program's name). `variable` looks into the environment.
pub fn parse(
    arguments: &[OsString],
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Command, FlagError> {
    let scanned = scan::scan(arguments)?;
    build::command(scanned, variable)
}
