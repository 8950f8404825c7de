//! The small binary for nodes: the executor without the command line around it.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let command = args.next().unwrap_or_default();
    let outcome = match command.to_str() {
        Some("executor") => herd_runtime::entry::executor(args),
        _ => Err(herd_runtime::entry::EntryError::Usage(
            "herd-node knows the command `executor`; people use `herd`".to_owned(),
        )),
    };
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    let mut text = format!("error: {error}\n");
    let mut cause = std::error::Error::source(&error);
    while let Some(source) = cause {
        text.extend(["caused by: ", &source.to_string(), "\n"]);
        cause = source.source();
    }
    // Nobody is left to tell when stderr is closed.
    drop(std::io::stderr().write_all(text.as_bytes()));
    ExitCode::from(error.exit_code())
}
