//! The small binary for nodes: executor, `herd rsh` and MPI's ranks, without the command line around
//! them.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use herd_backends::slurm;
use herd_core::text::error_report;
use herd_runtime::{compat, entry, launch, mpi, rsh, supervise};

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    // MPI's launchers know a program's name only.
    let own_name = args.next().unwrap_or_default();
    let command = if rsh::is_called(&own_name) {
        OsString::from("rsh")
    } else if launch::is_called(&own_name) {
        OsString::from("launch")
    } else {
        args.next().unwrap_or_default()
    };
    match command.to_str() {
        Some("executor") => {
            let args: Vec<OsString> = args.collect();
            if compat::is_asked(&args) {
                return ExitCode::from(compat::run(&args));
            }
            match entry::executor(args) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => complain(&error, error.exit_code()),
            }
        }
        Some("driver") => {
            let args: Vec<OsString> = args.collect();
            match args.split_first() {
                Some((kind, rest)) if kind == slurm::entry::FLAG => {
                    ExitCode::from(slurm::entry::driver(rest))
                }
                _ => complain(
                    &entry::EntryError::Usage("herd-node drives jobs of Slurm: --slurm".to_owned()),
                    herd_core::exit::USAGE,
                ),
            }
        }
        Some("launch") => ExitCode::from(launch::run(&args.collect::<Vec<_>>())),
        Some("rsh") => match rsh::run(args) {
            Ok(code) => ExitCode::from(code),
            Err(error) => complain(&error, error.exit_code()),
        },
        Some("shim") => match mpi::shim::run(args) {
            Ok(code) => ExitCode::from(code),
            Err(error) => complain(&error, error.exit_code()),
        },
        Some("stage") => ExitCode::from(slurm::staging::entry(&args.collect::<Vec<_>>())),
        Some("supervise") => ExitCode::from(supervise::run(&args.collect::<Vec<_>>())),
        _ => {
            let error = entry::EntryError::Usage(
                "herd-node knows `driver`, `executor`, `launch`, `rsh` and `shim`; people use `herd`"
                    .to_owned(),
            );
            complain(&error, error.exit_code())
        }
    }
}

fn complain(error: &(dyn std::error::Error + 'static), code: u8) -> ExitCode {
    // Nobody is left to tell when stderr is closed.
    drop(std::io::stderr().write_all(error_report(error).as_bytes()));
    ExitCode::from(code)
}
