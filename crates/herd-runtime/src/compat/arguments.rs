//! SkyPilot's command line (§2). Pure.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::Value;
use thiserror::Error;

/// Flags with a value.
const VALUED: &[&str] = &[
    "--script",
    "--script-path",
    "--env-vars",
    "--log-dir",
    "--cluster-num-nodes",
    "--cluster-ips",
    "--cluster-nodes",
    "--task-name",
    "--cluster-home-dir",
    "--alloc-signal-file",
    "--setup-done-signal-file",
];
/// The one flag without.
const IS_SETUP: &str = "--is-setup";

/// Where the text to run comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Inline(String),
    File(PathBuf),
}

/// The command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    pub(super) script: Source,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) log_dir: PathBuf,
    /// Nodes of the cluster, of which the task may use a part.
    pub(super) cluster_size: u32,
    /// Addresses of the cluster's nodes, the head first.
    pub(super) cluster_ips: Vec<String>,
    /// Slurm's names of the same nodes, where the driver tells them.
    pub(super) cluster_nodes: Vec<String>,
    pub(super) task_name: String,
    pub(super) is_setup: bool,
    pub(super) cluster_home: Option<PathBuf>,
    pub(super) alloc_file: Option<PathBuf>,
    pub(super) setup_done_file: Option<PathBuf>,
}

/// What is wrong with the command line.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum ArgumentError {
    #[error("no script: neither --script nor --script-path is given")]
    NoScript,
    #[error("{0} is required")]
    Required(&'static str),
    #[error("{0} needs a value")]
    NoValue(String),
    #[error("unknown option {0}")]
    Unknown(String),
    #[error("{0} is not UTF-8")]
    NotText(String),
    #[error("{flag} has a wrong value: {why}")]
    Wrong { flag: &'static str, why: String },
}

/// Whether an executor is started with SkyPilot's flags rather than herd's own.
pub fn is_asked(args: &[OsString]) -> bool {
    args.iter().filter_map(|arg| arg.to_str()).any(|arg| {
        let name = arg.split_once('=').map_or(arg, |(name, _)| name);
        name == IS_SETUP || VALUED.contains(&name)
    })
}

/// Reads it: `--flag value` and `--flag=value`, the last one counts.
pub(super) fn parse(args: &[OsString]) -> Result<Arguments, ArgumentError> {
    let mut given: BTreeMap<&'static str, String> = BTreeMap::new();
    let mut is_setup = false;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let text = |arg: &OsString, name: &str| {
            let text = arg.to_str().map(str::to_owned);
            text.ok_or_else(|| ArgumentError::NotText(name.to_owned()))
        };
        let arg = text(arg, "an argument")?;
        if arg == IS_SETUP {
            is_setup = true;
            continue;
        }
        let (name, value) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        let known = VALUED.iter().find(|known| **known == name);
        let known = known.ok_or_else(|| ArgumentError::Unknown(name.to_owned()))?;
        let value = if let Some(value) = value {
            value
        } else {
            let next = args.next();
            let next = next.ok_or_else(|| ArgumentError::NoValue(name.to_owned()))?;
            text(next, name)?
        };
        given.insert(known, value);
    }
    let mut take = |name: &'static str| given.remove(name);
    let script = match (take("--script-path"), take("--script")) {
        (Some(path), _) => Source::File(PathBuf::from(path)),
        (None, Some(text)) => Source::Inline(text),
        (None, None) => return Err(ArgumentError::NoScript),
    };
    let list = |text: String| -> Vec<String> {
        let words = text.split(',').map(|word| word.trim().to_owned());
        words.filter(|word| !word.is_empty()).collect()
    };
    let required = |name, value: Option<String>| value.ok_or(ArgumentError::Required(name));
    let cluster_size = required("--cluster-num-nodes", take("--cluster-num-nodes"))?;
    Ok(Arguments {
        script,
        variables: variables(&take("--env-vars").unwrap_or_else(|| "{}".to_owned()))?,
        log_dir: required("--log-dir", take("--log-dir"))?.into(),
        cluster_size: cluster_size.parse().map_err(|_bad| ArgumentError::Wrong {
            flag: "--cluster-num-nodes",
            why: format!("{cluster_size:?} is no number of nodes"),
        })?,
        cluster_ips: list(required("--cluster-ips", take("--cluster-ips"))?),
        cluster_nodes: take("--cluster-nodes").map(list).unwrap_or_default(),
        task_name: take("--task-name")
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "task".to_owned()),
        is_setup,
        cluster_home: take("--cluster-home-dir").map(PathBuf::from),
        alloc_file: take("--alloc-signal-file").map(PathBuf::from),
        setup_done_file: take("--setup-done-signal-file").map(PathBuf::from),
    })
}

/// The variables of `--env-vars`. No message holds a value, which may be a secret (I12).
fn variables(json: &str) -> Result<BTreeMap<String, String>, ArgumentError> {
    let wrong = |why: String| ArgumentError::Wrong {
        flag: "--env-vars",
        why,
    };
    let parsed: BTreeMap<String, Value> = serde_json::from_str(json)
        .map_err(|error| wrong(format!("no JSON object (column {})", error.column())))?;
    let mut variables = BTreeMap::new();
    for (name, value) in parsed {
        let value = match value {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => if flag { "True" } else { "False" }.to_owned(),
            Value::Null => "None".to_owned(),
            Value::Array(_) | Value::Object(_) => {
                return Err(wrong(format!("the value of {name} is no text")));
            }
        };
        if !is_name(&name) || value.contains('\0') {
            return Err(wrong(format!("{name:?} cannot be exported by a shell")));
        }
        variables.insert(name, value);
    }
    Ok(variables)
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<Arguments, ArgumentError> {
        parse(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    const NODES: [&str; 4] = [
        "--cluster-num-nodes=2",
        "--cluster-ips",
        "10.0.0.1,10.0.0.2",
        "--log-dir=/l",
    ];

    #[test]
    fn both_forms_of_a_flag_are_read_and_a_path_wins_over_a_text() {
        let args = [
            &NODES[..],
            &["--script=a=b", "--env-vars", r#"{"A": "x", "N": 2}"#],
        ]
        .concat();
        let read_inline = read(&args).unwrap();
        assert_eq!(read_inline.script, Source::Inline("a=b".to_owned()));
        assert_eq!(read_inline.cluster_ips, ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(read_inline.variables["N"], "2");
        assert_eq!(read_inline.task_name, "task");
        let both = [&args[..], &["--script-path", "/s", "--is-setup"]].concat();
        let both = read(&both).unwrap();
        assert_eq!(both.script, Source::File("/s".into()));
        assert!(both.is_setup);
    }

    #[test]
    fn row_1_a_missing_script_is_named() {
        let error = read(&NODES).unwrap_err().to_string();
        assert!(error.contains("--script") && error.contains("--script-path"));
    }

    #[test]
    fn what_is_wrong_is_named_without_the_values_of_variables() {
        let with = |more: &[&str]| read(&[&NODES[..], &["--script=x"], more].concat()).unwrap_err();
        assert_eq!(
            with(&["--wrong=1"]),
            ArgumentError::Unknown("--wrong".to_owned())
        );
        assert_eq!(
            with(&["--task-name"]),
            ArgumentError::NoValue("--task-name".to_owned())
        );
        let error = with(&[r#"--env-vars={"TOKEN": ["hush"]}"#]).to_string();
        assert!(error.contains("TOKEN") && !error.contains("hush"));
        let error = with(&["--env-vars={hush"]).to_string();
        assert!(!error.contains("hush"));
    }

    #[test]
    fn herds_own_flags_are_not_taken_for_these() {
        let asked = |args: &[&str]| is_asked(&args.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(asked(&["--log-dir", "x"]) && asked(&["--script=x"]) && asked(&["--is-setup"]));
        assert!(!asked(&["--coordinator", "127.0.0.1:1", "--job", "x"]));
    }
}
