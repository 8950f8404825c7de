//! The commands that backends start: `executor`, `driver`, `rsh`, `shim`.

use super::Outcome;
use crate::backend_local;
use crate::cli::machine::RawArgs;

/// Runs one node of a job.
pub(crate) fn executor(args: &RawArgs) -> Outcome {
    backend_local::executor(&args.args)
}

/// Owns one attempt of a job.
pub(crate) fn driver(args: &RawArgs) -> Outcome {
    backend_local::driver(&args.args)
}

/// Starts a command on another node of the same job.
pub(crate) fn rsh(args: &RawArgs) -> Outcome {
    backend_local::rsh(&args.args)
}

/// Is the parent of one MPI rank.
pub(crate) fn shim(args: &RawArgs) -> Outcome {
    backend_local::shim(&args.args)
}
