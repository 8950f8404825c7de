//! Which login node, and what is to be known of it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A login node, as the configuration names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// What `ssh` is told to connect to: a name of the user's `ssh_config`, `user@host`, an address.
    pub host: String,
    /// Another file than `~/.ssh/config` for `ssh` to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_config: Option<PathBuf>,
    /// The directory for jobs there, seen by the nodes: absolute, or `~/…`; without it what `HERD_HOME`
    /// says there, else herd's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// An installed `herd` there that is to be used; without it this one is copied there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// Why a configuration names no login node.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadTarget {
    /// `ssh` would take it for an option, or for nothing.
    #[error("host {0:?} is no name that ssh can be given")]
    Host(String),
    /// A path that depends on where somebody stands.
    #[error("{key} {value:?} is neither an absolute path nor one that begins with `~/`")]
    Path {
        /// Which key.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

impl Target {
    /// Refuses what `ssh` or a shell could read as something else.
    pub fn check(&self) -> Result<(), BadTarget> {
        let odd = |c: char| c.is_control() || c.is_whitespace();
        if self.host.is_empty() || self.host.starts_with('-') || self.host.contains(odd) {
            return Err(BadTarget::Host(self.host.clone()));
        }
        for (key, value) in [("home", &self.home), ("program", &self.program)] {
            let Some(value) = value else { continue };
            let rooted = value.starts_with('/') || value.starts_with("~/");
            if !rooted || value.contains(char::is_control) {
                return Err(BadTarget::Path {
                    key,
                    value: value.clone(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i13_what_ssh_could_take_for_an_option_is_refused() {
        let target = |host: &str, home: Option<&str>| Target {
            host: host.to_owned(),
            ssh_config: None,
            home: home.map(str::to_owned),
            program: None,
        };
        assert_eq!(target("me@login1", Some("~/herd")).check(), Ok(()));
        for host in ["", "-oProxyCommand=x", "a b", "a\nb"] {
            assert!(target(host, None).check().is_err(), "{host:?}");
        }
        for home in ["herd", "../x", "/a\nb", ""] {
            assert!(target("a", Some(home)).check().is_err(), "{home:?}");
        }
    }
}
