//! Why a login node gave no answer.

use std::io;

use thiserror::Error;

use crate::explain::Said;
use crate::target::BadTarget;

/// Why a login node gave no answer.
#[derive(Debug, Error)]
pub enum LoginError {
    /// The configuration names none.
    #[error(transparent)]
    Target(#[from] BadTarget),
    /// `ssh` could not be started.
    #[error("could not start ssh")]
    Start(#[source] io::Error),
    /// `ssh` ended without an answer.
    #[error("ssh {host} ended with {code}: {said}")]
    Ssh {
        /// Where to.
        host: String,
        /// Its exit code, or the signal.
        code: String,
        /// What it said.
        said: Said,
    },
    /// Nothing came for too long.
    #[error("{host} has not answered for {seconds} s")]
    Silent {
        /// Where to.
        host: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The connection broke while something was under way.
    #[error("the connection to {host} is gone{}", after(.said))]
    Broken {
        /// Where to.
        host: String,
        /// What `ssh` said.
        said: Said,
    },
    /// The other side answers in a way that this one does not know.
    #[error("{host} answers what this herd does not understand: {what}")]
    Protocol {
        /// Where to.
        host: String,
        /// What is wrong with it.
        what: String,
    },
    /// The program does not run there.
    #[error("herd does not run on {host}: {why}")]
    Program {
        /// Where.
        host: String,
        /// Why.
        why: String,
    },
    /// A file of this side.
    #[error("cannot {what}")]
    Here {
        /// What was tried, on what.
        what: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

fn after(said: &Said) -> String {
    match said.text() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

impl LoginError {
    /// A file of this side that failed.
    pub fn here(what: impl Into<String>, source: io::Error) -> Self {
        Self::Here {
            what: what.into(),
            source,
        }
    }

    /// Whether trying again later may help: the network, not the configuration.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Silent { .. } | Self::Broken { .. } => true,
            Self::Ssh { said, .. } => !["Permission denied", "Host key", "resolve"]
                .iter()
                .any(|lasting| said.text().contains(lasting)),
            _ => false,
        }
    }

    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        let said = match self {
            Self::Ssh { said, .. } => said.hint().or(Some(
                "herd starts your own ssh: `ssh HOST true` shows the same",
            )),
            Self::Broken { said, .. } => said.hint(),
            Self::Silent { .. } => Some(
                "`ssh HOST true` shows whether the login node answers; a slow login script may be why",
            ),
            Self::Program { .. } => Some(
                "install herd and herd-node there, and name herd with `program` in the configuration",
            ),
            Self::Protocol { .. } => Some(
                "`program` in the configuration may name another release; leave it out, or update it",
            ),
            Self::Target(_) => Some("see docs/slurm.md, \"From your laptop\""),
            Self::Start(_) => Some("install OpenSSH's client"),
            Self::Here { .. } => None,
        };
        said.map(str::to_owned)
    }
}
