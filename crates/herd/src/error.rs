//! Failures that herd expects: what they say, what they suggest, the exit code they end with.
//!
//! Display says one layer; the source says the rest; hints are data and are printed last. What is
//! not in here is a defect of herd.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use herd_core::diagnostic::Diagnostics;
use herd_core::exit;
use thiserror::Error;

/// A source of any kind; only ever printed.
pub(crate) type Source = Box<dyn Error + Send + Sync + 'static>;

/// One thing wrong with a job, a flag or a file that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The key of the job that it is about; the fault is shown where the file has it.
    pub(crate) key: Option<String>,
    /// Where and what; further lines follow the first.
    pub(crate) text: String,
    /// What to try.
    pub(crate) hint: Option<String>,
}

impl Fault {
    /// A fault without a suggestion.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            key: None,
            text: text.into(),
            hint: None,
        }
    }

    /// A fault of a key of the job, wherever the key was given.
    pub(crate) fn of(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            key: Some(key.into()),
            ..Self::new(text)
        }
    }

    /// The same fault with a suggestion.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A failure that a person can do something about.
#[derive(Debug, Error)]
pub(crate) enum ExpectedError {
    /// The job, its flags or its files are wrong, or ask for what the backend cannot honour (I13);
    /// nothing was started.
    #[error("nothing was started: {}", count(faults.len() + file_faults(file.as_deref()), "fault"))]
    Faults {
        /// Those of the job file, which know their lines.
        file: Option<Box<Diagnostics>>,
        /// All others.
        faults: Vec<Fault>,
    },
    /// An option of a command that takes no job is wrong.
    #[error("cannot use {option} {value:?}")]
    BadOption {
        /// The option with its dashes.
        option: &'static str,
        /// What was given.
        value: String,
        /// Why not.
        #[source]
        source: Source,
    },
    /// No job answers to a selector.
    #[error("no job is called {selector:?}")]
    NoSuchJob {
        /// What was asked for.
        selector: String,
        /// Names that look like it, nearest first.
        nearest: Vec<String>,
    },
    /// Several jobs answer to a selector.
    #[error("{selector:?} could be {}", candidates.join(", "))]
    AmbiguousJob {
        /// What was asked for.
        selector: String,
        /// Their short ids.
        candidates: Vec<String>,
    },
    /// There is no job at all.
    #[error("there is no job in {}", home.display())]
    NoJobs {
        /// The home that was searched.
        home: PathBuf,
    },
    /// The job has the wrong state for the request.
    #[error("job {job} {problem}")]
    WrongState {
        /// Its short id.
        job: String,
        /// What stands in the way.
        problem: String,
        /// What to do instead.
        hint: Option<String>,
    },
    /// Files or processes of herd's own did not do what was needed.
    #[error("cannot {what}")]
    Failed {
        /// What was tried, on what.
        what: String,
        /// Why not.
        #[source]
        source: Source,
    },
    /// The surroundings are not such that anything can be done: no home, no current directory.
    #[error("cannot {what}")]
    Surroundings {
        /// What was tried, on what.
        what: &'static str,
        /// Why not.
        #[source]
        source: Source,
        /// What to change.
        hint: &'static str,
    },
    /// Standard output took no more, for another reason than being closed.
    #[error("cannot write to standard output")]
    Stdout {
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A command inside a job did not start.
    #[error("the command did not start: {detail}")]
    NotStarted {
        /// Why, as the node says it.
        detail: String,
        /// The code to exit with (127, 126 or herd's own failure).
        code: u8,
    },
    /// A login node did not answer, or said no.
    #[error("cannot {what}")]
    Login {
        /// What was tried.
        what: String,
        /// Why not.
        #[source]
        source: Source,
        /// What to try.
        hints: Vec<String>,
        /// The code to exit with.
        code: u8,
    },
    /// A wait was given up.
    #[error("{} still running after {after}", count(*running, "job"))]
    WaitTimeout {
        /// How many.
        running: usize,
        /// How long, as a person reads it.
        after: String,
    },
}

impl ExpectedError {
    /// Something of herd's own that failed.
    pub(crate) fn failed(what: impl Into<String>, source: impl Into<Source>) -> Self {
        Self::Failed {
            what: what.into(),
            source: source.into(),
        }
    }

    /// The exit code that herd ends with (design §7).
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Faults { .. }
            | Self::BadOption { .. }
            | Self::NoSuchJob { .. }
            | Self::AmbiguousJob { .. }
            | Self::NoJobs { .. } => exit::USAGE,
            Self::WrongState { .. }
            | Self::Failed { .. }
            | Self::Surroundings { .. }
            | Self::Stdout { .. } => exit::HERD_FAILED,
            Self::WaitTimeout { .. } => exit::TIME_LIMIT,
            Self::NotStarted { code, .. } | Self::Login { code, .. } => *code,
        }
    }

    /// What to try next, in order.
    pub(crate) fn hints(&self) -> Vec<String> {
        match self {
            Self::NoSuchJob { nearest, .. } => {
                let near = nearest
                    .first()
                    .map(|name| format!("did you mean {name:?}?"));
                near.into_iter()
                    .chain(["`herd ls --all` lists every job".to_owned()])
                    .collect()
            }
            Self::AmbiguousJob { .. } => vec!["give the id, or more of it".to_owned()],
            Self::Surroundings { hint, .. } => vec![(*hint).to_owned()],
            Self::NoJobs { .. } => {
                vec!["`herd run -- COMMAND` runs a first one".to_owned()]
            }
            Self::WrongState { hint, .. } => hint.iter().cloned().collect(),
            Self::Login { hints, .. } => hints.clone(),
            Self::WaitTimeout { .. } => {
                vec!["the jobs go on; `herd why JOB` tells what one waits for".to_owned()]
            }
            Self::NotStarted { .. } => {
                vec![
                    "it is looked for in the PATH of the job; for shell syntax use `sh -c`"
                        .to_owned(),
                ]
            }
            // Each fault has its own below it.
            Self::Faults { .. } => Vec::new(),
            Self::Failed { source, .. } if is_full_disk(&**source) => {
                vec![
                    "free space on that disk (`herd gc --older-than 0s` removes jobs that have \
                     ended), or let HERD_HOME name another place"
                        .to_owned(),
                ]
            }
            Self::BadOption { .. } | Self::Failed { .. } | Self::Stdout { .. } => Vec::new(),
        }
    }

    /// The whole report: error, causes, faults, hints; every line ends with a newline.
    pub(crate) fn render(&self, color: bool) -> String {
        let (red, bold, reset) = if color {
            ("\x1b[1;31m", "\x1b[1m", "\x1b[0m")
        } else {
            ("", "", "")
        };
        let mut text = String::new();
        // Writing to a String cannot fail.
        let mut line = |args: std::fmt::Arguments<'_>| {
            text.write_fmt(args).expect("a String takes everything");
            text.push('\n');
        };
        line(format_args!(
            "{red}error:{reset} {}",
            printable(&self.to_string())
        ));
        if let Self::Faults { file, faults } = self {
            if let Some(file) = file {
                line(format_args!("\n{}\n", file.to_string().trim_end()));
            }
            for (number, fault) in faults.iter().enumerate() {
                let key = fault.key.iter().map(|key| format!("{key}: "));
                let shown = key.chain([fault.text.clone()]).collect::<String>();
                for (number, part) in shown.lines().enumerate() {
                    let indent = if number == 0 { "  " } else { "    " };
                    line(format_args!("{indent}{}", printable(part)));
                }
                // What helps against several faults in a row is said after the last of them.
                let next = faults.get(number + 1).and_then(|next| next.hint.as_ref());
                if let Some(hint) = fault.hint.as_ref().filter(|hint| next != Some(*hint)) {
                    line(format_args!("{bold}hint:{reset} {}", printable(hint)));
                }
            }
        }
        let mut source = self.source();
        while let Some(error) = source {
            line(format_args!("caused by: {}", printable(&error.to_string())));
            source = error.source();
        }
        for hint in self.hints() {
            line(format_args!("{bold}hint:{reset} {}", printable(&hint)));
        }
        text
    }
}

fn file_faults(file: Option<&Diagnostics>) -> usize {
    file.map_or(0, Diagnostics::count)
}

/// Whether a full disk, or a quota on it, is behind an error.
fn is_full_disk(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(
            kind,
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        ) {
            return true;
        }
        next = error.source();
    }
    false
}

/// `1 fault`, `3 faults`.
pub(crate) fn count(number: usize, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
}

/// Text from outside without control characters, which a terminal would obey.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\t' && c != '\n' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_printed_layer_by_layer_and_hints_last() {
        let inner = std::io::Error::other("disk is full");
        let error = ExpectedError::failed("write the job's directory", inner);
        assert_eq!(
            error.render(false),
            "error: cannot write the job's directory\ncaused by: disk is full\n"
        );
        assert_eq!(error.exit_code(), 125);
    }

    #[test]
    fn every_fault_is_listed_with_its_hint_and_equal_hints_are_said_once() {
        let error = ExpectedError::Faults {
            file: None,
            faults: vec![
                Fault::new("job.yaml:1:1: ndoes: unknown key\n  ndoes: 2")
                    .hint("did you mean nodes?"),
                Fault::new("--mem 3XB: not a size").hint("did you mean nodes?"),
                Fault::of("run", "is not there").hint("add it"),
            ],
        };
        assert_eq!(
            error.render(false),
            "error: nothing was started: 3 faults\n  job.yaml:1:1: ndoes: unknown key\n      \
             ndoes: 2\n  --mem 3XB: not a size\nhint: did you mean nodes?\n  run: is not there\nhint: add it\n"
        );
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn i12_control_sequences_in_names_do_not_reach_the_terminal() {
        let error = ExpectedError::NoSuchJob {
            selector: "a\x1b[2Jb".to_owned(),
            nearest: Vec::new(),
        };
        assert!(!error.render(false).contains('\x1b'));
        let faults = vec![Fault::new("bad \x1b]0;title\x07 key")];
        let fault = ExpectedError::Faults { file: None, faults };
        assert!(!fault.render(false).contains('\x1b'));
    }

    #[test]
    fn exit_codes_are_those_of_the_design() {
        let wrong = ExpectedError::WrongState {
            job: "1".to_owned(),
            problem: "has ended".to_owned(),
            hint: None,
        };
        assert_eq!(wrong.exit_code(), 125);
        let late = ExpectedError::WaitTimeout {
            running: 1,
            after: "1s".to_owned(),
        };
        assert_eq!(late.exit_code(), 124);
        assert_eq!(late.to_string(), "1 job still running after 1s");
    }
}
