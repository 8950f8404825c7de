//! Secrets: where they come from, read once at submission, never shown.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use herd_core::spec::SecretSource;

use super::env_file::is_name;
use crate::error::Fault;

/// Largest variable that the kernel gives to a program: `NAME=VALUE` and its NUL (`MAX_ARG_STRLEN`).
const MAX_VARIABLE: usize = 128 * 1024;
/// Most bytes of all secrets together, names included: they travel to each node in one message.
const MAX_TOGETHER: usize = 1024 * 1024;
/// Said of one beyond [`MAX_VARIABLE`].
const TOO_LARGE: &str = "is larger than 128 KiB, the most that the system gives to a program in one \
                         variable";
/// What to do about it.
const SHORTEN: &str =
    "let the program read a file that only you can read, and give it the path in env";

/// Values by name. Its Debug form shows names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Secrets(BTreeMap<String, String>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Secrets {
    /// Values that were read elsewhere.
    pub(crate) fn of(values: BTreeMap<String, String>) -> Self {
        Self(values)
    }

    /// The values, to be measured.
    pub(crate) fn values(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// The values, for the job's secrets file.
    pub(crate) fn into_values(self) -> BTreeMap<String, String> {
        self.0
    }

    /// The names.
    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Reads `NAME`, `NAME=env:VAR` or `NAME=file:PATH`.
pub(crate) fn parse_flag(text: &str) -> Result<(String, SecretSource), Fault> {
    let (name, source) = text
        .split_once('=')
        .map_or((text, None), |(n, s)| (n, Some(s)));
    if !is_name(name) {
        return Err(Fault::new("--secret: no name for a variable")
            .hint("write --secret NAME, --secret NAME=env:VAR or --secret NAME=file:PATH"));
    }
    let parsed = match source {
        None => Some(SecretSource::Env(name.to_owned())),
        Some(source) => match source.split_once(':') {
            Some(("env", variable)) if is_name(variable) => {
                Some(SecretSource::Env(variable.to_owned()))
            }
            Some(("file", path)) if !path.is_empty() => Some(SecretSource::File(path.to_owned())),
            _ => None,
        },
    };
    // What stands after `=` may be the secret itself and is not repeated.
    parsed
        .map(|source| (name.to_owned(), source))
        .ok_or_else(|| {
            Fault::new(format!("--secret {name}=…: neither env:VAR nor file:PATH")).hint(
                "a secret's value never stands on the command line, where every user can see it",
            )
        })
}

/// Reads every secret; all that cannot be read are faults.
pub(crate) fn read(
    sources: &BTreeMap<String, SecretSource>,
    base: &Path,
    variable: &dyn Fn(&str) -> Option<OsString>,
    faults: &mut Vec<Fault>,
) -> Secrets {
    let mut values = BTreeMap::new();
    for (name, source) in sources {
        let value = match source {
            SecretSource::Env(from) => variable(from)
                .ok_or_else(|| format!("the variable {from} is not set"))
                .and_then(|value| {
                    value
                        .into_string()
                        .map_err(|_value| format!("the variable {from} is not UTF-8"))
                }),
            SecretSource::File(path) => read_file(&base.join(path)),
        };
        let value = value.and_then(|value| match variable_bytes(name, &value) {
            0..=MAX_VARIABLE => Ok(value),
            _ => Err(TOO_LARGE.to_owned()),
        });
        match value {
            Ok(value) if value.contains('\0') => {
                faults.push(Fault::of(format!("secrets.{name}"), "contains a NUL byte"));
            }
            Ok(value) => {
                values.insert(name.clone(), value);
            }
            Err(problem) => {
                let hint = (problem == TOO_LARGE).then(|| SHORTEN.to_owned());
                let fault = Fault::of(format!("secrets.{name}"), problem);
                faults.push(Fault { hint, ..fault });
            }
        }
    }
    let together: usize = values.iter().map(|(n, v)| variable_bytes(n, v)).sum();
    if together > MAX_TOGETHER {
        let text = format!("are {together} bytes together, and {MAX_TOGETHER} are the most");
        faults.push(Fault::of("secrets", text).hint(SHORTEN));
    }
    Secrets(values)
}

/// What a variable takes in a program's environment.
fn variable_bytes(name: &str, value: &str) -> usize {
    name.len() + 1 + value.len() + 1
}

fn read_file(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("cannot open {shown}: {error}"))?;
    let regular = file.metadata().is_ok_and(|metadata| !metadata.is_dir());
    if !regular {
        return Err(format!("{shown} is a directory"));
    }
    let mut bytes = Vec::new();
    let most = MAX_VARIABLE as u64;
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read {shown}: {error}"))?;
    if bytes.len() > MAX_VARIABLE {
        return Err(TOO_LARGE.to_owned());
    }
    let mut text = String::from_utf8(bytes).map_err(|_error| format!("{shown} is not UTF-8"))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_are_read() {
        let env = |name: &str| SecretSource::Env(name.to_owned());
        assert_eq!(parse_flag("T").unwrap(), ("T".to_owned(), env("T")));
        assert_eq!(parse_flag("T=env:U").unwrap(), ("T".to_owned(), env("U")));
        let file = SecretSource::File("/a:b".to_owned());
        assert_eq!(parse_flag("T=file:/a:b").unwrap(), ("T".to_owned(), file));
    }

    #[test]
    fn i12_a_value_on_the_command_line_is_refused_and_not_repeated() {
        for text in ["T=hunter2", "T=env:hunter 2", "T=file:", "hunter 2"] {
            let fault = parse_flag(text).unwrap_err();
            let shown = format!("{} {:?}", fault.text, fault.hint);
            assert!(!shown.contains("hunter"), "{shown}");
        }
    }

    #[test]
    fn i13_more_than_a_variable_or_a_job_takes_is_refused() {
        let faults_of = |lengths: &[usize]| {
            let sources = (0..lengths.len())
                .map(|n| (format!("S{n:02}"), SecretSource::Env(n.to_string())))
                .collect();
            let variable = |n: &str| {
                let length = *lengths.get(n.parse::<usize>().ok()?)?;
                Some(OsString::from("x".repeat(length)))
            };
            let mut faults = Vec::new();
            read(&sources, Path::new("/"), &variable, &mut faults);
            faults
        };
        // `S00=` and the NUL.
        let most = MAX_VARIABLE - 5;
        assert_eq!(faults_of(&[most; 8]), []);
        let faults = faults_of(&[10, most + 1]);
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].key.as_deref(), Some("secrets.S01"));
        assert!(faults[0].text.contains("larger than 128 KiB"));
        assert!(faults[0].hint.is_some());
        let faults = faults_of(&[100_000; 11]);
        assert_eq!(faults.len(), 1);
        assert!(
            faults[0].text.contains("1048576 are the most"),
            "{faults:?}"
        );
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("large"), "é".repeat(MAX_VARIABLE)).unwrap();
        let sources = [("F".to_owned(), SecretSource::File("large".to_owned()))];
        let mut faults = Vec::new();
        read(&sources.into(), dir.path(), &|_| None, &mut faults);
        assert!(faults[0].text.contains("larger than 128 KiB"));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_what_can_is_hidden() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), "hunter2\n").unwrap();
        std::fs::write(dir.path().join("binary"), [0xff, 0xfe]).unwrap();
        let sources: BTreeMap<_, _> = [
            ("A", SecretSource::File("token".to_owned())),
            ("B", SecretSource::File("missing".to_owned())),
            ("C", SecretSource::File("binary".to_owned())),
            ("D", SecretSource::Env("SET".to_owned())),
            ("E", SecretSource::Env("UNSET".to_owned())),
            ("F", SecretSource::File(".".to_owned())),
        ]
        .map(|(name, source)| (name.to_owned(), source))
        .into();
        let mut faults = Vec::new();
        let variable = |name: &str| (name == "SET").then(|| OsString::from("hunter3"));
        let secrets = read(&sources, dir.path(), &variable, &mut faults);
        assert_eq!(secrets.names().collect::<Vec<_>>(), ["A", "D"]);
        assert_eq!(format!("{secrets:?}"), r#"{"A", "D"}"#);
        assert_eq!(secrets.into_values()["A"], "hunter2");
        let said: Vec<_> = faults.iter().map(|fault| fault.text.as_str()).collect();
        assert_eq!(said.len(), 4, "{said:?}");
        assert!(said[2].contains("variable UNSET is not set"), "{said:?}");
    }
}
