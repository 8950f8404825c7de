//! Names and paths that a job leaves to be worked out.

use crate::spec::{Command, JobSpec};

/// Characters of a derived name.
const MAX_DERIVED_NAME: usize = 63;

/// `path` beneath `cwd`, unless it is absolute. `..` is kept: with links it is not the parent.
pub(super) fn absolute(cwd: &str, path: &str) -> String {
    let mut joined = if path.starts_with('/') {
        String::new()
    } else {
        cwd.to_owned()
    };
    for part in path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
    {
        if !joined.ends_with('/') {
            joined.push('/');
        }
        joined += part;
    }
    if joined.is_empty() {
        "/".to_owned()
    } else {
        joined
    }
}

/// The job's name: its own, else the program's, else the file's, else `job`.
pub fn display_name(spec: &JobSpec, file_name: Option<&str>) -> String {
    if let Some(name) = &spec.name {
        return name.clone();
    }
    let command = spec
        .run
        .as_ref()
        .or_else(|| spec.setup.as_ref().map(|setup| &setup.run));
    let program = command.and_then(program);
    let file = file_name.map(|name| {
        let base = name.rsplit('/').next().unwrap_or(name);
        base.rsplit_once('.').map_or(base, |(stem, _)| stem)
    });
    [program, file]
        .into_iter()
        .flatten()
        .map(sanitised)
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "job".to_owned())
}

/// The first word of a command that is a program rather than a variable or a comment.
fn program(command: &Command) -> Option<&str> {
    match command {
        // A SkyPilot task's script: what it runs says more than the shell.
        Command::Argv(argv) => match argv.as_slice() {
            [shell, flag, text] if shell == "bash" && flag == "-c" => first_program(text),
            argv => argv.first().map(String::as_str),
        },
        Command::Shell(text) => first_program(text),
    }
}

fn first_program(text: &str) -> Option<&str> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .find(|word| !word.contains('='))
}

/// The last part of a path, with nothing in it that a name may not have.
fn sanitised(text: &str) -> String {
    let base = text.rsplit('/').find(|part| !part.is_empty()).unwrap_or("");
    let safe: String = base
        .chars()
        .take(MAX_DERIVED_NAME)
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
                c
            } else {
                '-'
            }
        })
        .collect();
    safe.trim_matches(['-', '.']).to_owned()
}
