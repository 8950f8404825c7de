//! `herd completions SHELL`: a completion script on standard output.

use clap::CommandFactory;

use crate::cli::Cli;
use crate::cli::machine::CompletionsArgs;
use crate::printer::Printer;

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs, printer: &mut Printer) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut shown(), "herd", &mut script);
    printer.data(&script);
    0
}

/// The command line without what only backends call: clap would complete that too.
fn shown() -> clap::Command {
    let all = Cli::command();
    let visible = all.get_subcommands().filter(|sub| !sub.is_hide_set());
    clap::Command::new("herd")
        .disable_help_subcommand(true)
        .args(all.get_arguments().cloned())
        .subcommands(visible.cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_people_call_is_completed() {
        let offered: Vec<_> = shown()
            .get_subcommands()
            .map(|sub| sub.get_name().to_owned())
            .collect();
        for name in ["run", "logs", "completions"] {
            assert!(offered.iter().any(|offer| offer == name), "{offered:?}");
        }
        for name in ["executor", "driver", "rsh", "shim"] {
            assert!(!offered.iter().any(|offer| offer == name), "{offered:?}");
        }
    }
}
