//! The configuration file: named backends, and the one that is used when nothing is said.
//!
//! ```toml
//! backend = "cluster"
//!
//! [backends.cluster]
//! kind = "slurm"
//! partition = "gpu"
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use herd_login::Target;
use serde::Deserialize;

use crate::error::ExpectedError;

/// Most bytes of the file.
const MAX_BYTES: u64 = 1024 * 1024;
/// Variable that names another file.
const VARIABLE: &str = "HERD_CONFIG";

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The backend of jobs that name none.
    #[serde(default)]
    pub(crate) backend: Option<String>,
    /// Backends by name.
    #[serde(default)]
    pub(crate) backends: BTreeMap<String, Backend>,
}

/// One place to run jobs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Backend {
    /// A Slurm cluster whose commands are on this machine, or on a login node.
    Slurm(SlurmBackend),
}

/// A Slurm cluster, and what jobs get there that do not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlurmBackend {
    /// Which of several clusters with one accounting database.
    #[serde(default)]
    pub(crate) cluster: Option<String>,
    /// Partition of jobs that name none.
    #[serde(default)]
    pub(crate) partition: Option<String>,
    /// Account of jobs that name none.
    #[serde(default)]
    pub(crate) account: Option<String>,
    /// QOS of jobs that name none.
    #[serde(default)]
    pub(crate) qos: Option<String>,
    /// A login node that `ssh` reaches, for a cluster whose commands are not on this machine.
    #[serde(default)]
    pub(crate) host: Option<String>,
    /// Another file than `~/.ssh/config` for `ssh`.
    #[serde(default)]
    pub(crate) ssh_config: Option<PathBuf>,
    /// The directory for jobs on the login node.
    #[serde(default)]
    pub(crate) home: Option<String>,
    /// An installed herd on the login node.
    #[serde(default)]
    pub(crate) program: Option<String>,
    /// Whether its nodes see the directory for jobs and each other's; they do unless this says no.
    #[serde(default)]
    pub(crate) shared_home: Option<bool>,
    /// Where each node has room for jobs, in case it does not; `/tmp` where nothing is said.
    #[serde(default)]
    pub(crate) node_dir: Option<PathBuf>,
}

impl SlurmBackend {
    /// The login node, where there is one to be reached.
    pub(crate) fn login(&self) -> Option<Target> {
        Some(Target {
            host: self.host.clone()?,
            ssh_config: self.ssh_config.clone(),
            home: self.home.clone(),
            program: self.program.clone(),
        })
    }
}

impl Config {
    /// The cluster of what is written for Slurm and names none: the default backend where that is a
    /// cluster, else the one that needs no configuration.
    pub(crate) fn slurm_backend(&self) -> &str {
        let default = self.backend.as_deref();
        default
            .filter(|name| self.backends.contains_key(*name))
            .unwrap_or(crate::backends::SLURM)
    }
}

/// Reads the file; one that does not exist says nothing.
pub(crate) fn read(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Config, ExpectedError> {
    let Some(path) = path(variable) else {
        return Ok(Config::default());
    };
    let failed = |error: crate::error::Source| ExpectedError::Surroundings {
        what: "read the configuration",
        source: format!("{}: {error}", path.display()).into(),
        hint: "mend the file, or choose another one with the variable HERD_CONFIG",
    };
    match std::fs::metadata(&path) {
        Ok(found) if found.len() > MAX_BYTES => {
            return Err(failed("it is larger than 1 MiB".into()));
        }
        Err(error) if error.kind() == ErrorKind::NotFound && variable(VARIABLE).is_none() => {
            return Ok(Config::default());
        }
        _ => {}
    }
    let text = std::fs::read_to_string(&path).map_err(|error| failed(error.into()))?;
    parse(&text).map_err(|error| failed(error.to_string().trim_end().to_owned().into()))
}

fn parse(text: &str) -> Result<Config, toml::de::Error> {
    toml::from_str(text)
}

/// `$HERD_CONFIG`, else `herd/config.toml` in `$XDG_CONFIG_HOME` or `~/.config`.
fn path(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let given = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = given(VARIABLE) {
        return Some(path.into());
    }
    let directory = match given("XDG_CONFIG_HOME") {
        Some(directory) => PathBuf::from(directory),
        None => Path::new(&given("HOME")?).join(".config"),
    };
    Some(directory.join("herd/config.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_have_names_and_defaults() {
        let config = parse(
            "backend = \"big\"\n[backends.big]\nkind = \"slurm\"\npartition = \"gpu\"\n\
             [backends.other]\nkind = \"slurm\"\ncluster = \"two\"\n",
        )
        .unwrap();
        assert_eq!(config.backend.as_deref(), Some("big"));
        let Backend::Slurm(big) = &config.backends["big"];
        assert_eq!(big.partition.as_deref(), Some("gpu"));
        assert_eq!(parse("").unwrap(), Config::default());
    }

    #[test]
    fn what_is_not_known_is_refused_with_its_line() {
        for text in [
            "[backends.x]\nkind = \"pbs\"\n",
            "[backends.x]\nkind = \"slurm\"\npartitoin = \"gpu\"\n",
            "backends = 3\n",
            "nonsense",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("line "), "{error}");
        }
    }

    #[test]
    fn the_file_is_where_users_expect_it() {
        let with = |pairs: &'static [(&str, &str)]| {
            path(&|name| {
                let found = pairs.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        let at = |text: &str| Some(PathBuf::from(text));
        assert_eq!(with(&[("HOME", "/h")]), at("/h/.config/herd/config.toml"));
        assert_eq!(
            with(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")]),
            at("/c/herd/config.toml")
        );
        assert_eq!(with(&[("HOME", "/h"), ("HERD_CONFIG", "/f")]), at("/f"));
        assert_eq!(with(&[]), None);
    }
}
