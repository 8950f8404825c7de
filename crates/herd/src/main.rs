//! `herd`: the command line of Herdsman. Only this function ends the process.

mod backend_local;
mod cli;
mod commands;
mod error;
mod job_input;
mod jobs;
mod machine;
mod printer;
mod report;
mod text;
mod watch;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are answers on standard output; the rest is a fault of the flags.
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
