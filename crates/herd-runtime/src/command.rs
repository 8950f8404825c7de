//! How a job's command becomes an argument vector.

use std::ffi::OsString;

use herd_core::spec::Command;

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
            ["bash", flags, "pipefail", "-c", text]
                .map(str::to_owned)
                .to_vec()
        }
    }
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
}
