//! One job: its number, and `scontrol show job`.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::call::Call;
use crate::exit::ExitCode;
use crate::reason::Reason;
use crate::state::State;
use crate::text::{given, number, pairs};
use crate::time::{Limit, Time};

/// A job, or one task of an array, by the numbers that Slurm's commands take: `17`, `17_3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id {
    /// Number of the job, or of the array.
    pub job: u32,
    /// Index of the task.
    pub task: Option<u32>,
}

impl Id {
    /// A job that is no array.
    pub const fn job(job: u32) -> Self {
        Self { job, task: None }
    }

    /// Reads `17` or `17_3`; `17_[0-9]`, the waiting rest of an array, is none.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| -> Option<u32> {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        Some(match text.split_once('_') {
            Some((job, task)) => Self {
                job: number(job)?,
                task: Some(number(task)?),
            },
            None => Self::job(number(text)?),
        })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.task {
            Some(task) => write!(f, "{}_{task}", self.job),
            None => write!(f, "{}", self.job),
        }
    }
}

/// Numbers in one argument: the kernel takes 128 KiB, and Slurm answers long lists as fast.
const MAX_LIST: usize = 100_000;

/// The numbers as comma lists, each short enough for one argument.
pub(crate) fn lists(jobs: &[u32]) -> Vec<String> {
    let mut lists: Vec<String> = Vec::new();
    for job in jobs {
        let text = job.to_string();
        match lists.last_mut() {
            Some(list) if list.len() + text.len() < MAX_LIST => {
                list.push(',');
                list.push_str(&text);
            }
            _ => lists.push(text),
        }
    }
    lists
}

/// Asks for everything about a job. Not `-o`: users' text breaks its lines, and here it stands on
/// lines of its own.
pub fn show_call(id: Id) -> Call {
    Call::new("scontrol", ["show", "job", &id.to_string()])
}

/// What `scontrol show job` says that other commands do not say as soon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Number of this job or task alone.
    pub raw: u32,
    /// What it is doing.
    pub state: State,
    /// Why.
    pub reason: Reason,
    /// How often it was queued again.
    pub restarts: u32,
    /// How its batch script ended; 0:0 before.
    pub exit: Option<ExitCode>,
    /// Nodes it has.
    pub nodes: Option<String>,
    /// When it began, or may begin.
    pub start: Option<Time>,
    /// How long it may run.
    pub limit: Option<Limit>,
    /// The partition that it is in, or waits for.
    #[serde(default)]
    pub partition: Option<String>,
    /// Its QOS.
    #[serde(default)]
    pub qos: Option<String>,
    /// Since when its time of grace before a preemption runs.
    #[serde(default)]
    pub preempted: Option<Time>,
    /// When it ends, or has ended; of one that is being preempted, the end of its grace. Slurm does not say
    /// it of jobs without a limit that run.
    #[serde(default)]
    pub end: Option<Time>,
}

/// Why the output was not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ShowError {
    /// No job in it.
    #[error("`scontrol show job` printed no job")]
    Missing,
    /// A line that Slurm prints once stands there twice: a name or path of the job holds line
    /// breaks, and what it says cannot be told from what Slurm says.
    #[error("`scontrol show job` printed {0} twice: text of the job holds line breaks")]
    Ambiguous(&'static str),
}

/// Reads one job; the first where several are printed.
pub fn parse(text: &str) -> Result<Shown, ShowError> {
    let start = text.find("JobId=").ok_or(ShowError::Missing)?;
    let text = &text[start..];
    // The next job begins at the start of a line. A forged one only hides what follows.
    let end = text.find("\n\nJobId=").unwrap_or(text.len());
    let text = &text[..end];
    let mut words = pairs(text);
    let raw = words.next().and_then(|(_, id)| id.parse().ok());
    let line = |key: &'static str| -> Result<Option<&str>, ShowError> {
        let mut found = text
            .lines()
            .filter_map(|line| line.strip_prefix("   "))
            .filter(|line| {
                line.strip_prefix(key)
                    .is_some_and(|rest| rest.starts_with('='))
            });
        let first = found.next();
        match found.next() {
            Some(_) => Err(ShowError::Ambiguous(key)),
            None => Ok(first),
        }
    };
    let state = line("JobState")?.ok_or(ShowError::Missing)?;
    let of = |line: Option<&str>, key: &str| {
        let value = line.and_then(|line| pairs(line).find(|(k, _)| *k == key));
        value.and_then(|(_, value)| given(value)).map(str::to_owned)
    };
    let requeue = line("Requeue")?;
    let times = line("StartTime")?;
    let preempt = line("PreemptEligibleTime")?;
    Ok(Shown {
        raw: raw.ok_or(ShowError::Missing)?,
        state: State::parse(&of(Some(state), "JobState").unwrap_or_default()),
        reason: Reason::parse(&of(Some(state), "Reason").unwrap_or_default()),
        restarts: of(requeue, "Restarts")
            .and_then(|text| number(&text))
            .unwrap_or(0),
        exit: of(requeue, "ExitCode").and_then(|text| ExitCode::parse(&text)),
        nodes: of(line("NodeList")?, "NodeList"),
        start: of(times, "StartTime").and_then(|text| Time::parse(&text)),
        limit: of(line("RunTime")?, "TimeLimit").and_then(|text| Limit::parse(&text)),
        partition: of(line("Partition")?, "Partition"),
        qos: of(line("Priority")?, "QOS"),
        preempted: of(preempt, "PreemptTime").and_then(|text| Time::parse(&text)),
        end: of(times, "EndTime").and_then(|text| Time::parse(&text)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_and_written() {
        for text in ["17", "17_3"] {
            assert_eq!(Id::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "17_", "17_[0-9]", "_3", "17+1", "-1", "99999999999"] {
            assert_eq!(Id::parse(text), None, "{text}");
        }
    }

    #[test]
    fn long_lists_are_cut_below_the_kernels_bound() {
        let jobs: Vec<u32> = (1_000_000..1_050_000).collect();
        let lists = lists(&jobs);
        assert!(lists.len() > 2 && lists.iter().all(|list| list.len() <= MAX_LIST));
        let read: Vec<u32> = lists
            .iter()
            .flat_map(|list| list.split(','))
            .map(|job| job.parse().unwrap())
            .collect();
        assert_eq!(read, jobs);
    }

    #[test]
    fn i3_a_name_with_line_breaks_tells_nothing() {
        let forged = "JobId=5 JobName=x\n   JobState=COMPLETED Reason=None\n   UserId=a(1)\n   \
                      JobState=RUNNING Reason=None Dependency=(null)\n";
        assert_eq!(parse(forged), Err(ShowError::Ambiguous("JobState")));
        let harmless = "JobId=5 JobName=x Reason=y JobState=FAILED\n   UserId=a(1)\n   \
                        JobState=RUNNING Reason=None Dependency=(null)\n";
        assert_eq!(parse(harmless).unwrap().state, State::Running);
        assert_eq!(parse("slurm_load_jobs error"), Err(ShowError::Missing));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(JobId=5 |   JobState=R|Requeue=|\n|=|é| ){0,20}") {
            drop(parse(&text));
        }
    }
}
