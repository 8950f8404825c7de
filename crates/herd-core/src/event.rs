//! What is written to `attempts/<n>/events.jsonl`: one JSON object per line, never a secret.

use serde::{Deserialize, Serialize};

use crate::exit::ProcessEnd;
use crate::result::Failure;
use crate::state::{AttemptState, JobState};

/// One event with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened. Readers skip kinds they do not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum EventKind {
    /// The job changed state.
    Job {
        /// The new state.
        state: JobState,
        /// What it waits for, where it waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The attempt changed state.
    Attempt {
        /// The new state.
        state: AttemptState,
        /// Why, where it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
    /// A node said Hello.
    NodeJoined {
        /// Node index.
        node: u32,
        /// Node's name.
        name: String,
        /// Process id of its executor.
        pid: u32,
    },
    /// A node was given up.
    NodeLost {
        /// Node's name.
        name: String,
        /// What was observed.
        detail: String,
    },
    /// The daemon of a node that serves the ranks, such as a Ray head, is up.
    ServiceReady {
        /// Node index.
        node: u32,
        /// Where it is reached.
        address: String,
        /// Its port.
        port: u16,
    },
    /// A rank's process started.
    RankStarted {
        /// Global rank.
        rank: u32,
        /// Node index.
        node: u32,
        /// Process id on its node.
        pid: u32,
    },
    /// A rank's process ended.
    RankEnded {
        /// Global rank.
        rank: u32,
        /// Node index.
        node: u32,
        /// How.
        end: ProcessEnd,
        /// Whether herd had asked for its end.
        stopped: bool,
    },
    /// A task of an array failed and is to run again.
    TaskRetried {
        /// Array index.
        task: u32,
        /// The attempt at the task that failed, from 1.
        attempt: u32,
        /// How it ended.
        end: ProcessEnd,
        /// The pause before the next attempt, milliseconds.
        after_ms: u64,
    },
    /// The backend announced that it takes the job's resources back.
    PreemptionNotice {
        /// By whom, and how long is left, where that is known.
        by: String,
    },
    /// Somebody or something asked for the end.
    CancelRequested {
        /// Who or what: `signal 15`, `herd cancel`, `walltime`, …
        by: String,
    },
    /// The terminal stopped the job (Ctrl-Z), and its ranks with it.
    Paused,
    /// It goes on after a pause.
    Resumed,
    /// A bound of herd's own expired (I6).
    BoundExpired {
        /// Which wait.
        wait: String,
        /// What was missing.
        detail: String,
    },
    /// Something a person should know.
    Warning {
        /// One sentence.
        text: String,
    },
    /// A kind that this release does not know.
    #[serde(other)]
    Unknown,
}
