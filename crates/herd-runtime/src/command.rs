//! How a job's command becomes an argument vector, and what its shell is told besides.

use std::collections::BTreeMap;
use std::ffi::OsString;

use herd_core::spec::Command;

/// Most bytes of one argument; the kernel takes 128 KiB with the NUL (`MAX_ARG_STRLEN`).
const PIECE: usize = 120 * 1024;

/// Runs the script that its arguments are the pieces of, as if it had been given whole.
const JOIN: &str =
    "herd_script=$(printf %s \"$@\"); set --; eval \"unset herd_script; $herd_script\"";

/// Before the name of a variable whose value is said again when a login shell has read its profile.
const AFTER_PROFILE: &str = "HERD_AFTER_PROFILE_";

/// Gives variables the values of those with [`AFTER_PROFILE`] before their names, and removes the latter.
/// What the profile has made read-only stays as it is: to assign it would end the shell.
const SAY_AGAIN: &str = "herd_fixed=$'\\n'$(readonly -p); for herd_name in \"${!HERD_AFTER_PROFILE_@}\"; do \
    [[ $herd_fixed =~ $'\\n'declare\\ -[a-zA-Z]*\\ ${herd_name#HERD_AFTER_PROFILE_}(=|$'\\n') ]] || \
    export \"${herd_name#HERD_AFTER_PROFILE_}=${!herd_name}\"; unset \"$herd_name\"; done; \
    unset herd_name herd_fixed; ";

/// Most bytes of one variable with its name, as of one argument.
const VARIABLE: usize = 128 * 1024 - 2;

/// Has a command's login shell, if it has one, set these variables once more when its profile has been read:
/// profiles set `PATH` and more as they like, and what the job says stands over that.
pub fn say_again(command: &Command, login_shell: bool, env: &mut BTreeMap<String, String>) {
    let Command::Shell(_) = command else {
        return;
    };
    if !login_shell {
        return;
    }
    let assignable = |name: &str| {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        name != "_"
            && name.bytes().all(word)
            && name
                .bytes()
                .next()
                .is_some_and(|byte| !byte.is_ascii_digit())
    };
    let again: Vec<(String, String)> = env
        .iter()
        .filter(|(name, value)| {
            assignable(name) && AFTER_PROFILE.len() + name.len() + value.len() < VARIABLE
        })
        .map(|(name, value)| (format!("{AFTER_PROFILE}{name}"), value.clone()))
        .collect();
    env.extend(again);
}

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
            let first = if login_shell { SAY_AGAIN } else { "" };
            // On one line with the script's first one, whose number shells tell.
            let (script, pieces) = if text.len() < PIECE {
                (format!("{first}{text}"), Vec::new())
            } else {
                (format!("{first}{JOIN}"), pieces(text))
            };
            let name = (!pieces.is_empty()).then_some("bash");
            let words = name.into_iter().chain(pieces);
            let mut argv: Vec<String> = shell.map(str::to_owned).collect();
            argv.push(script);
            argv.extend(words.map(str::to_owned));
            argv
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

    /// What a login shell prints whose profile is this.
    fn after(profile: &str, env: &[(&str, &str)], script: &str) -> String {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(".profile"), profile).unwrap();
        let command = Command::Shell(script.to_owned());
        let own = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut own: BTreeMap<String, String> = own.collect();
        own.insert(
            "HOME".to_owned(),
            home.path().to_string_lossy().into_owned(),
        );
        say_again(&command, true, &mut own);
        let argv = argv(&command, true);
        let output = std::process::Command::new(&argv[0])
            .args(&argv[1..])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(own)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stderr, b"", "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn what_the_job_says_stands_over_the_profile() {
        let value = "it's \"a\"\n$HOME `x` \\ ü";
        let env = [
            ("PATH", "/own:/usr/bin:/bin"),
            ("VALUE", value),
            ("not-a-name", "1"),
        ];
        let profile = "PATH=/site:$PATH; export VALUE=theirs SITE=yes; false; IFS=V; module() { echo loaded; }";
        let said = after(
            profile,
            &env,
            "echo \"$PATH\"; printf '%s\\n' \"$VALUE\" $SITE; module",
        );
        assert_eq!(said, format!("/own:/usr/bin:/bin\n{value}\nyes\nloaded\n"));
        // Nothing of it is left but the values.
        let left =
            "compgen -v | grep -i ^herd_ || :; env | grep -c AFTER_PROFILE || :; echo $LINENO";
        assert_eq!(after("", &env, left), "0\n1\n");
    }

    #[test]
    fn what_a_profile_has_made_read_only_ends_no_shell() {
        let profile = "export TMOUT=7; readonly TMOUT; readonly -a LIST=(a 'b\n TMP=')";
        let env = [("TMOUT", "9"), ("LIST", "c"), ("UID", "1"), ("TMP", "own")];
        assert_eq!(
            after(profile, &env, "echo $TMOUT ${LIST[0]} $TMP"),
            "7 a own\n"
        );
    }

    #[test]
    fn a_long_script_has_its_variables_too() {
        let text = format!("{}echo \"$VALUE $#\"\n", ": filler\n".repeat(30_000));
        assert_eq!(after("VALUE=theirs", &[("VALUE", "own")], &text), "own 0\n");
    }

    #[test]
    fn only_login_shells_are_told_twice() {
        let shell = Command::Shell("true".to_owned());
        for (command, login) in [
            (&shell, false),
            (&Command::Argv(vec!["true".to_owned()]), true),
        ] {
            let mut env = BTreeMap::from([("A".to_owned(), "b".to_owned())]);
            say_again(command, login, &mut env);
            assert_eq!(env.len(), 1);
        }
        let long = "x".repeat(VARIABLE - 1);
        let mut env = BTreeMap::from([("A".to_owned(), long)]);
        say_again(&shell, true, &mut env);
        assert_eq!(env.len(), 1);
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
