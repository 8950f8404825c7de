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
    let failed = |error| ExpectedError::failed("make the manual page", error);
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone());
    man.render_title(&mut page).map_err(failed)?;
    man.render_name_section(&mut page).map_err(failed)?;
    // The generated synopsis lists every flag and takes the command after `--` for an option.
    page.extend(synopsis(command).into_bytes());
    man.render_description_section(&mut page).map_err(failed)?;
    man.render_options_section(&mut page).map_err(failed)?;
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut page).map_err(failed)?;
    }
    if let Some(text) = command.get_after_help() {
        for section in text.to_string().split("\n\n") {
            page.extend(verbatim(section).into_bytes());
        }
    }
    Ok(page)
}

fn synopsis(command: &clap::Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    format!(".SH SYNOPSIS\n{}\n", escaped(usage))
}

/// A part of the text at the end of the help: its first line is the section's name, the rest stays as it is.
fn verbatim(text: &str) -> String {
    let (title, rest) = text.split_once('\n').unwrap_or((text, ""));
    let title = escaped(title.trim_end_matches(':').to_uppercase().as_str());
    let mut section = format!(".SH \"{title}\"\n.nf\n");
    for line in rest.lines() {
        section.push_str(&escaped(line.strip_prefix("  ").unwrap_or(line)));
        section.push('\n');
    }
    section.push_str(".fi\n");
    section
}

/// Text that roff shows as it stands.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.chars().next() {
        Some('.' | '\'') => format!("\\&{text}"),
        Some(_) | None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_how_to_call_the_command_and_what_it_ends_with() {
        let mut command = Cli::command();
        command.build();
        let run = command.find_subcommand("run").unwrap();
        let page = String::from_utf8(page(run).unwrap()).unwrap();
        let usage = "herd run [OPTIONS] [FILE] [\\-\\- <CMD>...]";
        assert!(page.contains(usage), "{page}");
        assert!(
            page.contains(".SH \"EXIT CODES\"") && page.contains("\n124 "),
            "{page}"
        );
        assert!(page.contains(".SH \"SIGNALS\"\n"), "{page}");
        assert!(page.contains("\\-\\-nodes"), "{page}");
    }
}
