//! `herd`: the command line of Herdsman. Only this function ends the process.

mod backend_local;
mod backend_login;
mod backend_slurm;
mod backends;
mod cli;
mod commands;
mod config;
mod error;
mod file_system;
mod job_input;
mod jobs;
mod printer;
mod report;
mod text;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use herd_runtime::{launch, rsh};

fn main() -> ExitCode {
    // It cannot fail for a signal that exists; if it did, that limit would be all that is lost.
    let _unneeded = herd_launch::sys::survive_file_size_limit();
    let mut args: Vec<OsString> = std::env::args_os().collect();
    // MPI's launchers know a program's name only.
    if args.first().is_some_and(|name| rsh::is_called(name)) {
        args.insert(1, "rsh".into());
    }
    // torchrun's command line has its own rules, and its own way to read them.
    if args.first().is_some_and(|name| launch::is_called(name)) {
        args.insert(1, "launch".into());
    }
    if let Some(("launch", rest)) = args
        .get(1..)
        .and_then(<[OsString]>::split_first)
        .and_then(|(command, rest)| Some((command.to_str()?, rest)))
    {
        return ExitCode::from(launch::run(rest));
    }
    let cli = match cli::advice::parse(&args) {
        Ok(cli) => cli,
        // The whole help, where nothing was asked, speaks for itself.
        Err(answer)
            if answer.use_stderr()
                && answer.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
        {
            let mut printer = printer::Printer::standard(cli::When::Auto);
            let said = cli::advice::refusal(answer, &args, printer.err_color());
            printer.report(&said);
            return ExitCode::from(herd_core::exit::USAGE);
        }
        // Help and version are answers on standard output.
        Err(answer) => {
            let code = if answer.use_stderr() {
                herd_core::exit::USAGE
            } else {
                0
            };
            // A reader that left has what it wanted.
            drop(answer.print());
            return ExitCode::from(code);
        }
    };
    let mut printer = printer::Printer::standard(cli.global.color);
    let done = commands::dispatch(cli, &mut printer);
    let done = done.and_then(|code| printer.finish().map(|()| code));
    let code = done.unwrap_or_else(|error| {
        printer.report(&error.render(printer.err_color()));
        error.exit_code()
    });
    ExitCode::from(code)
}
