//! The commands that herd itself starts: `executor`, `driver`, `rsh`, `shim`, `stage`, `nvml`.

use super::Outcome;
use crate::cli::machine::RawArgs;
use crate::printer::Printer;
use crate::{backend_local, backend_slurm};

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

/// Brings a job to nodes that do not see its directory, and what it writes back.
pub(crate) fn stage(args: &RawArgs) -> Outcome {
    backend_slurm::stage(&args.args)
}

/// Says which GPUs NVIDIA's library knows, to whoever started this process for it.
pub(crate) fn nvml(printer: &mut Printer) -> u8 {
    for uuid in herd_launch::accelerators::nvml::list() {
        printer.line(&uuid);
    }
    0
}
