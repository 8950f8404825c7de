//! `herd completions SHELL`: a completion script on standard output.

use clap::CommandFactory;

use crate::cli::Cli;
use crate::cli::machine::CompletionsArgs;
use crate::printer::Printer;

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs, printer: &mut Printer) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "herd", &mut script);
    printer.data(&script);
    0
}
