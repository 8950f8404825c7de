//! What runs on the login node before herd does: a few lines of shell, sent over the connection.
//!
//! The remote command line is always the same text, without a quote, backslash, `!` or line break inside
//! of its quotes, so that every login shell (also csh and fish) reads it alike. It reads one line of its
//! standard input, the script, with which `sh` goes on.

use crate::target::Target;

/// The command line that the user's login shell there is given.
pub(crate) const REMOTE: &str = "exec sh -c 'IFS= read -r line && eval \"$line\"'";
/// What the script ends with where there is no program.
pub(crate) const MISSING: &str = "missing";

/// One word of a POSIX shell, whatever the text; it must hold no line break, for a script is one line.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A path that may begin with `~/`.
fn path(text: &str) -> String {
    match text.strip_prefix("~/") {
        Some(rest) => format!("\"$HOME\"/{}", quoted(rest)),
        None => quoted(text),
    }
}

/// Sets `h`, the directory for jobs, by the rules of `herd_jobdir::Home`.
fn home(target: &Target) -> String {
    match &target.home {
        Some(home) => format!("h={}; ", path(home)),
        None => concat!(
            "h=${HERD_HOME:-}; if [ -z \"$h\" ]; then case ${XDG_STATE_HOME:-} in ",
            "/*) h=$XDG_STATE_HOME/herd;; *) h=$HOME/.local/state/herd;; esac; fi; "
        )
        .to_owned(),
    }
}

/// Many sites put Slurm's commands on the PATH of login shells alone.
const SLURM_PATH: &str = concat!(
    "if ! command -v sbatch >/dev/null 2>&1; then ",
    "q=$(bash -lc 'printf \"\\n%s\" \"$PATH\"' 2>/dev/null </dev/null | tail -n 1); ",
    "if [ -n \"$q\" ]; then PATH=$q; export PATH; fi; fi; "
);

/// Becomes `herd login-node`, or says that it is missing and for which machine.
pub(crate) fn start(target: &Target, hash: &str, nonce: &str) -> String {
    let program = match &target.program {
        Some(program) => format!("p={}; ", path(program)),
        // Its time says when it was used last.
        None => {
            format!("p=$h/programs/{hash}/herd; touch -c \"$h/programs/{hash}\" 2>/dev/null || :; ")
        }
    };
    format!(
        "{}{program}{SLURM_PATH}if [ -x \"$p\" ]; then exec \"$p\" --home \"$h\" login-node {nonce}; fi; \
         printf '\\n%s {MISSING} %s %s\\n' {nonce} \"$(uname -s)\" \"$(uname -m)\"",
        home(target)
    )
}

/// A command line that becomes `herd login-node` with a request in its arguments, for a call whose
/// streams are a terminal. Nothing where it would need more quoting than all login shells agree on.
pub(crate) fn with_terminal(target: &Target, hash: &str, request: &str) -> Option<String> {
    let home = target.home.as_deref()?;
    let program = match &target.program {
        Some(program) => program.clone(),
        None => format!("{home}/programs/{hash}/herd"),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@,:".contains(c);
    let is_plain = |path: &str| path.starts_with('/') && path.chars().all(plain);
    (is_plain(home) && is_plain(&program))
        .then(|| format!("exec {program} --home {home} login-node tty {request}"))
}

/// Unpacks `length` bytes of a tar archive with the programs, and becomes the one that was unpacked.
pub(crate) fn install(target: &Target, length: u64, nonce: &str) -> String {
    format!(
        "{}umask 077; mkdir -p \"$h/programs\" && t=$(mktemp -d \"$h/programs/new.XXXXXXXX\") || exit 98; \
         printf '\\n%s ready\\n' {nonce}; \
         if head -c {length} | tar -xof - -C \"$t\"; \
         then exec \"$t/herd\" --home \"$h\" login-node {nonce}; fi; rm -rf \"$t\"; exit 98",
        home(target)
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn target(home: Option<&str>) -> Target {
        Target {
            host: "x".to_owned(),
            ssh_config: None,
            home: home.map(str::to_owned),
            program: None,
        }
    }

    fn sh(script: &str) -> String {
        let output = Command::new("sh")
            .args(["-c", script])
            .env("HOME", "/home/me")
            .env_remove("HERD_HOME")
            .env_remove("XDG_STATE_HOME")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_remote_command_line_means_the_same_to_every_login_shell() {
        let inside = REMOTE.split('\'').nth(1).unwrap();
        assert_eq!(REMOTE.matches('\'').count(), 2);
        assert!(!inside.contains(['\\', '!', '\n', '`']));
    }

    #[test]
    fn the_directory_for_jobs_is_the_one_that_herd_would_take_there() {
        let show =
            |home: Option<&str>| sh(&format!("{}printf %s \"$h\"", super::home(&target(home))));
        assert_eq!(show(None), "/home/me/.local/state/herd");
        assert_eq!(show(Some("~/it's $x")), "/home/me/it's $x");
        assert_eq!(show(Some("/a b")), "/a b");
    }

    #[test]
    fn scripts_are_one_line() {
        assert!(!start(&target(None), "abc", "n").contains('\n'));
        assert!(!install(&target(Some("~/x")), 5, "n").contains('\n'));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_text_comes_back_as_one_word(text in r"[^\x00\n]{0,40}") {
            prop_assert_eq!(sh(&format!("printf %s {}", quoted(&text))), text);
        }
    }
}
