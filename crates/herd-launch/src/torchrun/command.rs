//! What a worker runs: `python -u [-m] SCRIPT ARGS…`, or the script itself.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::flags::Flags;
use super::macros;

/// There is no Python.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no Python found: neither $PYTHON_EXEC, nor the active environment, nor PATH has one\nhint: activate an environment, set PYTHON_EXEC, or use --no-python for a program of its own"
)]
pub struct NoPython;

/// The program that runs the script, `None` where the script is a program of its own.
pub fn interpreter(
    flags: &Flags,
    variable: &dyn Fn(&str) -> Option<OsString>,
    is_program: &dyn Fn(&Path) -> bool,
) -> Result<Option<PathBuf>, NoPython> {
    if flags.no_python && !flags.run_path {
        return Ok(None);
    }
    python(variable, is_program).map(Some)
}

/// The Python of the active environment: `$PYTHON_EXEC` as it stands, else that of `VIRTUAL_ENV` or
/// `CONDA_PREFIX`, else the first on PATH; `python3` before `python`. `is_program` tells whether a
/// path can be executed.
pub fn python(
    variable: &dyn Fn(&str) -> Option<OsString>,
    is_program: &dyn Fn(&Path) -> bool,
) -> Result<PathBuf, NoPython> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(python) = set("PYTHON_EXEC") {
        return Ok(PathBuf::from(python));
    }
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(set)
        .map(|root| vec![Path::new(&root).join("bin")]);
    let path = set("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    // Within one place `python3` comes first; the next place counts only where it has neither.
    for directories in environments.chain(path) {
        for name in ["python3", "python"] {
            let mut candidates = directories.iter().map(|directory| directory.join(name));
            if let Some(python) = candidates.find(|candidate| is_program(candidate)) {
                return Ok(python);
            }
        }
    }
    Err(NoPython)
}

/// Program and arguments of one worker, with the macros of its arguments replaced.
pub fn argv(flags: &Flags, interpreter: Option<&Path>, local_rank: u32) -> Vec<OsString> {
    let replaced = |argument: &OsString| macros::argument(argument, local_rank);
    let mut argv = Vec::with_capacity(flags.args.len().saturating_add(4));
    match interpreter {
        Some(python) => {
            argv.push(python.as_os_str().to_owned());
            argv.push(OsString::from("-u"));
            if flags.module && !flags.run_path {
                argv.push(OsString::from("-m"));
            }
            argv.push(replaced(&flags.script));
        }
        // The program itself has no macros.
        None => argv.push(flags.script.clone()),
    }
    argv.extend(flags.args.iter().map(replaced));
    argv
}

/// What the report is headed with: the script, module or program.
pub fn title(flags: &Flags) -> String {
    let title: &OsStr = &flags.script;
    title
        .to_string_lossy()
        .chars()
        .map(herd_core::text::visible)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torchrun::flags::{Command, parse};

    fn flags(arguments: &[&str]) -> Flags {
        let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
        match parse(&arguments, &|_| None).unwrap() {
            Command::Launch(flags) => *flags,
            other => panic!("{other:?}"),
        }
    }

    fn found(environment: &[(&str, &str)], programs: &[&str]) -> Result<PathBuf, NoPython> {
        let variable = |name: &str| {
            let value = environment.iter().find(|(known, _)| *known == name);
            value.map(|(_, value)| OsString::from(value))
        };
        python(&variable, &|path| {
            programs.iter().any(|p| Path::new(p) == path)
        })
    }

    #[test]
    fn row44_python_of_the_active_environment() {
        let all = ["/v/bin/python3", "/c/bin/python", "/a/python", "/b/python3"];
        let environment = [
            ("PYTHON_EXEC", "py"),
            ("VIRTUAL_ENV", "/v"),
            ("CONDA_PREFIX", "/c"),
            ("PATH", "/a:/b"),
        ];
        for (skipped, expected) in [
            (0, "py"),
            (1, "/v/bin/python3"),
            (2, "/c/bin/python"),
            (3, "/b/python3"),
        ] {
            let rest = environment.split_at(skipped).1;
            assert_eq!(found(rest, &all).unwrap(), Path::new(expected));
        }
        assert_eq!(
            found(&environment[1..], &["/a/python"]).unwrap(),
            Path::new("/a/python")
        );
        assert_eq!(
            found(&[("PYTHON_EXEC", ""), ("PATH", "/b")], &all).unwrap(),
            Path::new("/b/python3")
        );
        assert_eq!(found(&[("PATH", "/x")], &all), Err(NoPython));
        assert_eq!(found(&[], &all), Err(NoPython));
    }

    #[test]
    fn row42_macros_in_arguments_but_not_in_the_program() {
        let python = Path::new("/py");
        assert_eq!(
            argv(&flags(&["t.py", "--r=$local_rank", "$$"]), Some(python), 3),
            ["/py", "-u", "t.py", "--r=3", "$"]
        );
        assert_eq!(
            argv(&flags(&["-m", "pkg.mod", "-m"]), Some(python), 0),
            ["/py", "-u", "-m", "pkg.mod", "-m"]
        );
        assert_eq!(
            argv(
                &flags(&["--no-python", "./x$local_rank", "$local_rank"]),
                None,
                1
            ),
            ["./x$local_rank", "1"]
        );
    }

    #[test]
    fn run_path_beats_no_python() {
        let never = |_: &Path| true;
        let path = |name: &str| (name == "PATH").then(|| OsString::from("/b"));
        let both = flags(&["--no-python", "--run-path", "-m", "t.py"]);
        let python = interpreter(&both, &path, &never).unwrap();
        assert_eq!(
            argv(&both, python.as_deref(), 0),
            ["/b/python3", "-u", "t.py"]
        );
        assert_eq!(
            interpreter(&flags(&["--no-python", "x"]), &path, &never),
            Ok(None)
        );
        assert_eq!(title(&flags(&["-m", "pkg.mod"])), "pkg.mod");
    }
}
