//! An executor, for the tests of the driver: `node executor ARGS…`, as `herd-node` takes them.

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match herd_runtime::entry::executor(std::env::args_os().skip(2)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let report = herd_core::text::error_report(&error);
            drop(std::io::stderr().write_all(report.as_bytes()));
            ExitCode::from(error.exit_code())
        }
    }
}
