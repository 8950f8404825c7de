//! How a job's command becomes an argument vector.

use std::ffi::OsString;

use herd_core::spec::Command;

/// Most bytes of one argument; the kernel takes 128 KiB with the NUL (`MAX_ARG_STRLEN`).
const PIECE: usize = 120 * 1024;

/// Runs the script that its arguments are the pieces of, as if it had been given whole.
const JOIN: &str =
    "herd_script=$(printf %s \"$@\"); set --; eval \"unset herd_script; $herd_script\"";

/// The argument vector: an `Argv` as it is, text through `bash -eo pipefail -c`.
pub fn argv(command: &Command, login_shell: bool) -> Vec<OsString> {
    let words = words(command, login_shell).into_iter();
    words.map(OsString::from).collect()
}

/// The same as text.
pub fn words(command: &Command, login_shell: bool) -> Vec<String> {
    match command {
        Command::Argv(words) => words.clone(),
        Command::Shell(text) => {
            let flags = if login_shell { "-leo" } else { "-eo" };
            let shell = ["bash", flags, "pipefail", "-c"].into_iter();
            let script: Vec<&str> = if text.len() < PIECE {
                vec![text]
            } else {
                [JOIN, "bash"].into_iter().chain(pieces(text)).collect()
            };
            shell.chain(script).map(str::to_owned).collect()
        }
    }
}

/// A long text in pieces that arguments can be.
fn pieces(mut text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE));
        pieces.push(piece);
        text = rest;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_runs_in_bash_and_words_run_as_they_are() {
        let words = Command::Argv(vec!["a b".to_owned(), "$x".to_owned()]);
        assert_eq!(argv(&words, false), ["a b", "$x"]);
        let text = Command::Shell("echo \"$x\"\n".to_owned());
        assert_eq!(
            argv(&text, false),
            ["bash", "-eo", "pipefail", "-c", "echo \"$x\"\n"]
        );
        assert_eq!(argv(&text, true)[1], "-leo");
    }

    #[test]
    fn a_long_script_runs_whole() {
        let filler = "x='ü \\ $1 \"'\n".repeat(20_000);
        assert!(filler.len() > 2 * PIECE);
        let text = format!(
            "{filler}cat <<'END'\n$# $x\nEND\necho \"$# ${{herd_script-}}$x\"; false\necho no\n"
        );
        let argv = argv(&Command::Shell(text), false);
        assert!(argv.iter().all(|word| word.len() <= PIECE));
        let output = std::process::Command::new(&argv[0])
            .args(&argv[1..])
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        assert_eq!(out, "$# $x\n0 ü \\ $1 \"\n");
        assert_eq!(output.status.code(), Some(1));
    }
}
