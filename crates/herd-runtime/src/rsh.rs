//! `herd rsh HOST COMMAND…`: what MPI's launchers call in place of `ssh`. Inside a job, it runs the
//! command on another node of the same job, over the job's own link; no sshd and no keys of the user
//! are needed. As ssh does, it joins the words with blanks and gives them to a shell.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use herd_core::exit;
use herd_link::session::{Place, SessionRequest};
use herd_link::{Channel, Key};
use thiserror::Error;

use crate::entry::{EntryError, read_key};
use crate::session::client::{ClientError, Target};
use crate::signals::Signals;

/// The name under which the binaries behave as `herd rsh`: some launchers take a program, no words.
pub const PROGRAM: &str = "herd-rsh";

/// Options of ssh that take a value of their own (ssh's manual page).
const WITH_VALUE: &str = "BbcDEeFIiJLlmOopQRSWw";

/// Why no command ran on the other node.
#[derive(Debug, Error)]
pub enum RshError {
    /// The arguments name no host or no command.
    #[error("{0}: expected HOST COMMAND…")]
    Usage(&'static str),
    /// It was called outside of a job.
    #[error("{variable} is not set: herd rsh works inside a job only")]
    NotInJob {
        /// What is missing.
        variable: &'static str,
    },
    /// A variable of the job holds nonsense.
    #[error("{variable} has the wrong value {value:?}")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// The job's key cannot be read.
    #[error(transparent)]
    Key(#[from] EntryError),
    /// Signals or the event loop cannot be set up.
    #[error("could not prepare herd rsh")]
    System(#[source] std::io::Error),
    /// The session failed.
    #[error("could not run a command on {host}")]
    Session {
        /// The host as given.
        host: String,
        /// Why.
        #[source]
        source: ClientError,
    },
}

impl RshError {
    /// The code to exit with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => exit::USAGE,
            _ => exit::HERD_FAILED,
        }
    }
}

/// Whether a program that was started under this name is to behave as `herd rsh`.
pub fn is_called(own_name: &OsStr) -> bool {
    Path::new(own_name).file_name() == Some(OsStr::new(PROGRAM))
}

/// Runs `herd rsh ARGS`, and returns the command's exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<u8, RshError> {
    let (host, command) = parse(args)?;
    let target = target()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RshError::System)?;
    let request = SessionRequest {
        place: Place::Named(host.clone()),
        argv: vec!["sh".to_owned(), "-c".to_owned(), command],
        terminal: None,
    };
    let ended = runtime.block_on(async {
        let mut signals = Signals::watch().map_err(RshError::System)?;
        let failed = |source| RshError::Session { host, source };
        target.run(request, &mut signals).await.map_err(failed)
    });
    // The thread that reads the standard input may never come back from it.
    runtime.shutdown_background();
    let ended = ended?;
    if let Some(why) = ended.start_error {
        // A closed stderr is no reason to fail otherwise.
        drop(writeln!(std::io::stderr(), "herd rsh: {why}"));
    }
    Ok(ended.end.code())
}

/// Host and command of an argument list as ssh takes it.
fn parse(args: impl IntoIterator<Item = OsString>) -> Result<(String, String), RshError> {
    let mut words = args
        .into_iter()
        .map(|word| word.to_string_lossy().into_owned());
    let host = loop {
        let word = words.next().ok_or(RshError::Usage("no host"))?;
        let Some(option) = word.strip_prefix('-') else {
            break word;
        };
        // `-l NAME` has its value apart, `-lNAME` has not.
        let mut letters = option.chars();
        if letters
            .next()
            .is_some_and(|letter| WITH_VALUE.contains(letter))
            && letters.next().is_none()
        {
            words.next();
        }
    };
    let host = host.rsplit('@').next().unwrap_or_default().to_owned();
    let command: Vec<String> = words.collect();
    if command.is_empty() {
        return Err(RshError::Usage("no command"));
    }
    Ok((host, command.join(" ")))
}

fn target() -> Result<Target, RshError> {
    let value = |variable: &'static str| {
        std::env::var(variable)
            .ok()
            .filter(|value| !value.is_empty())
            .ok_or(RshError::NotInJob { variable })
    };
    let wrong = |variable: &'static str, value: &str| RshError::Variable {
        variable,
        value: value.to_owned(),
    };
    let address = value("HERD_COORDINATOR")?;
    let attempt = value("HERD_ATTEMPT")?;
    let key_file = PathBuf::from(value("HERD_KEY_FILE")?);
    Ok(Target {
        address: address
            .parse()
            .map_err(|_bad| wrong("HERD_COORDINATOR", &address))?,
        key: key(&key_file)?,
        channel: Channel {
            job: value("HERD_JOB_ID")?,
            attempt: attempt
                .parse()
                .map_err(|_bad| wrong("HERD_ATTEMPT", &attempt))?,
        },
    })
}

fn key(path: &Path) -> Result<Key, RshError> {
    Ok(read_key(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> (String, String) {
        parse(words.iter().map(OsString::from)).unwrap()
    }

    #[test]
    fn host_and_command_are_found_behind_options_of_ssh() {
        let wanted = ("node1".to_owned(), " orted -mca ess \"env\"".to_owned());
        assert_eq!(
            parsed(&["node1", " orted", "-mca", "ess", "\"env\""]),
            wanted
        );
        assert_eq!(
            parsed(&[
                "-x",
                "-l",
                "me",
                "-oBatchMode=yes",
                "me@node1",
                " orted",
                "-mca",
                "ess",
                "\"env\""
            ]),
            wanted
        );
        assert!(parse(["-x".into()]).is_err());
        assert!(parse(["node1".into()]).is_err());
    }
}
