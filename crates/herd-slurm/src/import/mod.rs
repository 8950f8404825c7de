//! A user's batch script as a job: what its `#SBATCH` lines say is carried over, or refused by line.
//!
//! `sbatch` runs a script once, on the first node, without `bash -e`. A herd job of one node that
//! runs the script's text with the script's own interpreter is the same. Scripts that start tasks
//! on several nodes, or several tasks, with `srun` are not: what they start is the job, and a job
//! file says so.

mod fates;
mod lines;
mod options;
mod resources;

use std::collections::BTreeSet;

use herd_core::diagnostic::{Diagnostic, Diagnostics, Position};
use herd_core::skypilot::Note;
use herd_core::spec::{Command, JobSpec};
use herd_core::text::quoted;
use herd_core::validate;

/// A batch script that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The job.
    pub spec: JobSpec,
    /// What was not carried over and changes no result.
    pub notes: Vec<Note>,
}

/// Whether a file is a batch script: it names an interpreter and has an `#SBATCH` line.
pub fn looks_like_script(bytes: &[u8]) -> bool {
    bytes.starts_with(b"#!")
        && bytes
            .split(|byte| *byte == b'\n')
            .any(|line| line.starts_with(b"#SBATCH"))
}

/// Reads a batch script. `file_name` stands in the messages; `arguments` are the script's own.
pub fn import(
    bytes: &[u8],
    file_name: &str,
    arguments: &[String],
) -> Result<Imported, Diagnostics> {
    let refuse = |faults| Diagnostics::new(file_name, bytes, faults, &BTreeSet::new());
    let Ok(text) = std::str::from_utf8(bytes) else {
        let fault = Diagnostic::at(Position::START, "is no UTF-8 text");
        return Err(refuse(vec![fault]));
    };
    let mut faults = Vec::new();
    let mut notes = Vec::new();
    let run = command(text, file_name, arguments).unwrap_or_else(|fault| {
        faults.push(fault);
        Command::Shell(String::new())
    });
    let given = lines::read(text, &mut faults, &mut notes);
    let mut spec = JobSpec {
        run: Some(run),
        ..JobSpec::default()
    };
    options::apply(&given, &mut spec, &mut faults, &mut notes);
    // `sbatch` calls a job by its script, where nothing is said.
    let own = file_name.rsplit('/').next().unwrap_or(file_name);
    if spec.name.is_none() && validate::job_name(own).is_ok() {
        spec.name = Some(own.to_owned());
    }
    if faults.is_empty() {
        // What only the whole job shows.
        for conflict in validate::spec(&spec) {
            let mut fault = Diagnostic::at(Position::START, String::new());
            fault.path = conflict.key;
            fault.refusal = conflict.refusal;
            faults.push(fault);
        }
    }
    if !faults.is_empty() {
        return Err(refuse(faults));
    }
    notes.sort_by_key(|note| note.position);
    Ok(Imported { spec, notes })
}

/// The script's text, given to its own interpreter.
fn command(text: &str, file_name: &str, arguments: &[String]) -> Result<Command, Diagnostic> {
    let first = text.lines().next().unwrap_or_default().trim_end();
    let Some(words) = first.strip_prefix("#!") else {
        let fault = Diagnostic::at(Position::START, "names no interpreter in its first line");
        return Err(fault.with_hint("begin it with `#!/bin/bash`"));
    };
    let mut argv: Vec<String> = words.split_ascii_whitespace().map(str::to_owned).collect();
    let program = match argv.as_slice() {
        [env, program, ..] if env.ends_with("/env") => program,
        [program, ..] => program,
        [] => "",
    };
    let base = program.rsplit('/').next().unwrap_or(program);
    let versioned = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let flag = match versioned {
        "bash" | "sh" | "dash" | "ksh" | "zsh" => {
            argv.push("-c".to_owned());
            // The name of the script, as `$0`.
            Some(file_name.rsplit('/').next().unwrap_or(file_name))
        }
        "python" | "pypy" => {
            argv.push("-c".to_owned());
            None
        }
        "perl" | "ruby" => {
            argv.push("-e".to_owned());
            None
        }
        _ => {
            let message = format!(
                "the interpreter {} cannot be given a script's text",
                quoted(words)
            );
            let fault = Diagnostic::at(Position::START, message);
            return Err(fault.with_hint("write a job file whose `run` names the script"));
        }
    };
    argv.push(text.to_owned());
    argv.extend(flag.map(str::to_owned));
    argv.extend_from_slice(arguments);
    Ok(Command::Argv(argv))
}

#[cfg(test)]
mod tests;
