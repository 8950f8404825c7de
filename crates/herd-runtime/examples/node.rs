//! An executor, for the tests of the driver: `node executor ARGS…`, as `herd-node` takes them.

use std::process::ExitCode;

fn main() -> ExitCode {
    match herd_runtime::entry::executor(std::env::args_os().skip(2)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(error.exit_code()),
    }
}
