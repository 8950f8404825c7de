//! `herd man [DIR]`: manual pages made from the same definitions as the help.

use std::path::Path;

use clap::CommandFactory;

use super::Outcome;
use crate::cli::Cli;
use crate::cli::machine::ManArgs;
use crate::error::ExpectedError;
use crate::printer::Printer;

/// Prints herd's page, or writes one per command.
pub(crate) fn run(args: &ManArgs, printer: &mut Printer) -> Outcome {
    let mut command = Cli::command();
    command.build();
    let Some(directory) = &args.dir else {
        let page = page(&command)?;
        printer.data(&page);
        return Ok(0);
    };
    std::fs::create_dir_all(directory)
        .map_err(|error| ExpectedError::failed(format!("make {}", directory.display()), error))?;
    write(directory, "herd", &command)?;
    let mut pages = 1;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        // Written beside herd's own page, as git does: herd-run.1.
        let name = format!("herd-{}", sub.get_name());
        write(directory, &name, sub)?;
        pages += 1;
    }
    printer.note(&format!("wrote {pages} pages to {}", directory.display()));
    Ok(0)
}

fn write(directory: &Path, name: &str, command: &clap::Command) -> Result<(), ExpectedError> {
    let path = directory.join(format!("{name}.1"));
    std::fs::write(&path, page(command)?)
        .map_err(|error| ExpectedError::failed(format!("write {}", path.display()), error))
}

fn page(command: &clap::Command) -> Result<Vec<u8>, ExpectedError> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .render(&mut page)
        .map_err(|error| ExpectedError::failed("make the manual page", error))?;
    Ok(page)
}
