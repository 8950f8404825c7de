//! The `#SBATCH` lines of a script, as options with their places.

use std::collections::BTreeMap;

use herd_core::diagnostic::{Diagnostic, Position};
use herd_core::skypilot::Note;
use herd_core::text::{nearest, quoted};

use super::fates::{Form, OPTIONS, SbatchOption};
use crate::quote;

/// Lines of options that are read; a script has a dozen.
const MAX_LINES: usize = 1000;

/// An option that was given.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// Its value; empty where it has none.
    pub(super) value: String,
    /// Where it stands.
    pub(super) position: Position,
}

/// The options by their long names. The last of several counts, as for `sbatch`.
pub(super) type Options = BTreeMap<&'static str, Given>;

/// Reads the lines as `sbatch` does: from the top to the first command.
pub(super) fn read(text: &str, faults: &mut Vec<Diagnostic>, notes: &mut Vec<Note>) -> Options {
    let mut given = Options::new();
    let mut in_head = true;
    let mut count = 0;
    for (number, line) in (1u32..).zip(text.lines()) {
        let Some(rest) = line.strip_prefix("#SBATCH") else {
            let line = line.trim();
            in_head &= line.is_empty() || line.starts_with('#');
            continue;
        };
        let at = |column| Position {
            line: number,
            column,
        };
        count += 1;
        if count > MAX_LINES {
            faults.push(Diagnostic::at(at(1), "has too many `#SBATCH` lines"));
            return given;
        }
        if !in_head {
            notes.push(Note {
                position: at(1),
                path: "#SBATCH".to_owned(),
                text: "it stands behind the first command, where Slurm ignores it too".to_owned(),
            });
            continue;
        }
        let offset = 7;
        match quote::words(rest) {
            Ok(words) => line_options(&words, offset, number, &mut given, faults),
            Err(error) => {
                faults.push(Diagnostic::at(at(error.column + offset), error.to_string()));
            }
        }
    }
    given
}

fn line_options(
    words: &[(u32, String)],
    offset: u32,
    number: u32,
    given: &mut Options,
    faults: &mut Vec<Diagnostic>,
) {
    let mut words = words.iter();
    while let Some((column, word)) = words.next() {
        let position = Position {
            line: number,
            column: column + offset,
        };
        if matches!(word.as_str(), "hetjob" | "packjob") {
            let fault = Diagnostic::at(position, "heterogeneous jobs are not supported");
            faults.push(fault.with_hint(
                "submit its parts as jobs of their own, or ask for the same of each node",
            ));
            continue;
        }
        let (option, inline) = match find(word) {
            Ok(found) => found,
            Err(fault) => {
                let mut fault = fault;
                fault.position = position;
                faults.push(fault);
                continue;
            }
        };
        let value = match (option.form, inline) {
            (Form::Flag, None) => String::new(),
            (Form::Flag, Some(_)) => {
                let message = format!("`--{}` takes no value", option.name);
                faults.push(Diagnostic::at(position, message));
                continue;
            }
            (Form::Optional, inline) => inline.unwrap_or_default(),
            (Form::Value, Some(value)) => value,
            (Form::Value, None) => {
                let Some((_, value)) = words.next() else {
                    let message = format!("`--{}` needs a value", option.name);
                    faults.push(Diagnostic::at(position, message));
                    continue;
                };
                value.clone()
            }
        };
        given.insert(option.name, Given { value, position });
    }
}

/// The option of a word, and the value that stands in the same word.
fn find(word: &str) -> Result<(&'static SbatchOption, Option<String>), Diagnostic> {
    let fault = |message: String| Diagnostic::at(Position::START, message);
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (long, None),
        };
        // `sbatch` takes any beginning that only one option has.
        let mut fitting = OPTIONS
            .iter()
            .filter(|option| option.name.starts_with(name));
        let exact = OPTIONS.iter().find(|option| option.name == name);
        let option = exact.or_else(|| match (fitting.next(), fitting.next()) {
            (Some(only), None) if !name.is_empty() => Some(only),
            _ => None,
        });
        return option.map(|option| (option, value)).ok_or_else(|| {
            let fault = fault(format!("{} is no option of sbatch", quoted(word)));
            match nearest(name, OPTIONS.iter().map(|option| option.name)) {
                Some(near) => fault.with_hint(format!("did you mean `--{near}`?")),
                None => fault.with_hint("remove it"),
            }
        });
    }
    let mut letters = word.chars();
    let (Some('-'), Some(letter)) = (letters.next(), letters.next()) else {
        let fault = fault(format!("{} is no option", quoted(word)));
        return Err(fault.with_hint("quote values with spaces"));
    };
    let option = OPTIONS.iter().find(|option| option.letter == Some(letter));
    let rest = letters.as_str();
    let value = (!rest.is_empty()).then(|| rest.to_owned());
    option.map(|option| (option, value)).ok_or_else(|| {
        fault(format!("{} is no option of sbatch", quoted(word))).with_hint("remove it")
    })
}
