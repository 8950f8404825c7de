//! Names and paths that a job leaves to be worked out.

use crate::spec::{Command, JobSpec};
use crate::validate::job_name;

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

/// Names of files that say nothing about the job in them.
const PLAIN_FILES: &[&str] = &["job", "task", "stdin", "fd"];

/// Words of a shell's grammar before a command.
const SHELL_WORDS: &[&str] = &[
    "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "!", "{", "}", "(", ")",
    "time", "exec", "nohup",
];

/// Commands that say less about a script than another one in it.
const SMALL_COMMANDS: &[&str] = &[
    "for", "case", "esac", "function", "echo", "printf", "cd", "set", "export", "source", ".", "[",
    "[[", "]", "test", "true", "false", "trap", "ulimit", "umask", "mkdir", "module", "sleep",
    "exit", "wait", "local", "declare", "shift", "read", "touch", ":",
];

/// The job's name: its own, else the file's, else the program's, else `job`.
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
    let telling = file.filter(|stem| !PLAIN_FILES.contains(stem));
    let name = [telling, program, file]
        .into_iter()
        .flatten()
        .map(sanitised)
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "job".to_owned());
    // A program may be called `last`, which chooses another job.
    match job_name(&name) {
        Ok(()) => name,
        Err(_) => format!("job-{name}"),
    }
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

/// The program that tells most about a script: the first that is more than a small help. No shell is
/// asked; what is in quotes may be taken for a command, which only makes a worse name.
fn first_program(text: &str) -> Option<&str> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.starts_with('#'));
    let commands = lines.flat_map(|line| line.split([';', '&', '|']));
    let mut programs = commands.filter_map(|command| {
        let words = command.split_whitespace();
        let mut words = words.skip_while(|word| SHELL_WORDS.contains(word) || word.contains('='));
        // Not `[`, nor the `2` of `>&2`.
        words
            .next()
            .filter(|word| word.contains(char::is_alphabetic))
    });
    let is_small = |word: &str| {
        let letters = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        SMALL_COMMANDS.contains(&word) || !word.chars().all(letters)
    };
    let first = programs.next()?;
    if !is_small(first) {
        return Some(first);
    }
    Some(programs.find(|word| !is_small(word)).unwrap_or(first))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str, file: Option<&str>) -> String {
        let spec = JobSpec {
            run: Some(Command::Shell(text.to_owned())),
            ..JobSpec::default()
        };
        display_name(&spec, file)
    }

    #[test]
    fn a_script_is_named_after_what_it_runs_and_a_file_names_its_job() {
        for (text, name) in [
            ("python train.py --lr 1", "python"),
            ("# comment\nLR=1 ./train.sh x", "train.sh"),
            ("set -e\ncd x && python a.py", "python"),
            ("if [ $A = 1 ]; then echo no; exit 3; fi; /bin/work", "work"),
            ("for i in 1 2; do gmx mdrun; done", "gmx"),
            ("echo hi", "echo"),
            ("echo \"a; b\"", "echo"),
            ("last", "job-last"),
            ("", "job"),
        ] {
            assert_eq!(named(text, None), name, "{text}");
        }
        assert_eq!(
            named("python a.py", Some("dir/night.run.yaml")),
            "night.run"
        );
        assert_eq!(named("python a.py", Some("dir/job.yaml")), "python");
        assert_eq!(named("python a.py", Some("/dev/stdin")), "python");
        assert_eq!(named("", Some("job.yaml")), "job");
    }
}
