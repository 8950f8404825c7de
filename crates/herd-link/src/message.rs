//! What coordinator, executors and clients say to each other: the JSON control frames.
//!
//! Unknown fields are ignored and unknown types become `Unknown`, so that one release older and
//! newer understand each other. Log bytes travel in binary frames, not here.

use std::collections::BTreeMap;
use std::fmt;

use herd_core::exit::ProcessEnd;
use herd_core::plan::Plan;
use herd_core::result::{RankResult, TaskResult};
use serde::{Deserialize, Serialize};

use crate::session::SessionMessage;

/// Version of this protocol, said in the first frame of each side.
pub const VERSION: u32 = 1;

/// From an executor or a client to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ToCoordinator {
    /// An executor's first frame.
    Hello(Hello),
    /// A client's first frame.
    Client {
        /// [`VERSION`] of the client.
        version: u32,
    },
    /// Sent each second so that silence means loss.
    Heartbeat,
    /// A rank's process started.
    RankStarted {
        /// Global rank.
        rank: u32,
        /// Process id on the node.
        pid: u32,
    },
    /// A rank ended.
    RankEnded(Box<RankResult>),
    /// This node has finished the phase and all its log bytes were sent.
    PhaseDone {
        /// The phase.
        phase: Phase,
        /// How setup ended, in the setup phase.
        #[serde(default)]
        setup: Option<SetupResult>,
    },
    /// Tasks of an array ended.
    TasksEnded {
        /// In the order of their ends.
        results: Vec<TaskResult>,
    },
    /// These tasks were not begun here and will not be: the answer to
    /// [`FromCoordinator::ReturnTasks`], and said after a cancel.
    TasksReturned {
        /// Array indices.
        indices: Vec<u32>,
    },
    /// The daemon that this node runs beside the ranks is up and known to its cluster.
    ServiceReady {
        /// Address at which the other nodes reach it.
        address: String,
        /// Port that belongs to it.
        port: u16,
    },
    /// That daemon ended, could not start or was not ready in time.
    ServiceFailed(Box<ServiceFailure>),
    /// The batch system asks this node to end.
    AskedToEnd {
        /// By which signal.
        signal: i32,
    },
    /// A message of the coordinator has a type that this executor does not know.
    NotUnderstood,
    /// About a command that a client runs on a node.
    Session(SessionMessage),
    /// A client asks for the job's end.
    Cancel {
        /// Signal for the ranks.
        signal: i32,
        /// How long they may take, milliseconds; the plan's grace where absent.
        grace_ms: Option<u64>,
        /// Who asks, for the event.
        by: String,
    },
    /// A client asks for the merged output, from these lengths of its two files on, as it grows until
    /// the attempt ends. It comes in frames of session 0, streams [`crate::session::follow`], each with
    /// a window of its own.
    Follow {
        /// Bytes of `run.log` that the client has.
        log: u64,
        /// Bytes of `run.index` that the client has.
        index: u64,
    },
    /// A type that this release does not know.
    #[serde(other)]
    Unknown,
}

/// What an executor says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the executor.
    pub version: u32,
    /// Name of the node in the allocation; decides the node index.
    pub node: String,
    /// Process id of the executor.
    pub pid: u32,
    /// Address at which other nodes reach this one.
    pub address: String,
    /// A port that was free there, held until ranks start.
    pub free_port: u16,
}

/// Part of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Preparing the node.
    Setup,
    /// Running the ranks.
    Run,
}

/// How the daemon of a node failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceFailure {
    /// The code its program could not be started with; absent where it ran.
    #[serde(default)]
    pub start_code: Option<u8>,
    /// What happened to which daemon, in one sentence.
    pub detail: String,
    /// The last lines it wrote.
    #[serde(default)]
    pub last_lines: Vec<String>,
}

/// How setup ended on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupResult {
    /// How its process ended.
    pub end: ProcessEnd,
    /// The last lines it wrote.
    pub last_lines: Vec<String>,
    /// Why it could not start, where it never ran.
    #[serde(default)]
    pub start_error: Option<String>,
}

/// From the coordinator to an executor or a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum FromCoordinator {
    /// What the node is to be.
    Assign(Box<Assign>),
    /// Sent each second: the lease.
    Heartbeat,
    /// Begin a phase.
    Start {
        /// The phase.
        phase: Phase,
        /// Where ranks meet: node 0's address.
        meeting_address: String,
        /// Where ranks meet: a port that was free on node 0.
        meeting_port: u16,
    },
    /// Run these tasks of an array, in this order, after those that were sent before.
    RunTasks {
        /// How many may run at once on this node.
        slots: u32,
        /// The tasks.
        tasks: Vec<Task>,
    },
    /// Give back tasks that have not begun, those that would begin last: another node is idle.
    ReturnTasks {
        /// At most this many.
        count: u32,
    },
    /// The daemon of node 0 is up: start the one of this node. To node 0 itself: those of all nodes
    /// are up, start the ranks.
    ServiceReady {
        /// Address of node 0's daemon.
        address: String,
        /// Port of node 0's daemon.
        port: u16,
    },
    /// Stop what runs; sent again, stop it at once.
    Cancel {
        /// Signal for the ranks.
        signal: i32,
        /// How long they may take, milliseconds.
        grace_ms: u64,
        /// Whether the batch system signals the ranks itself.
        #[serde(default)]
        told: bool,
    },
    /// Stop everything that runs, without ending it; until `Resume` or `Cancel`.
    Pause,
    /// Let what `Pause` stopped go on.
    Resume,
    /// The work of the phase is done on the nodes that lead it: end what served it here.
    Finish,
    /// All is over: end what is left and exit.
    Release,
    /// About a command that a client runs on a node.
    Session(SessionMessage),
    /// A client's request was taken up.
    Done,
    /// The merged output follows. So long it was when it was asked for.
    Following {
        /// Bytes of `run.log`.
        log: u64,
        /// Bytes of `run.index`.
        index: u64,
    },
    /// The attempt has ended, and all of the merged output was sent.
    Followed,
    /// The request was refused.
    Refused {
        /// Why.
        reason: String,
    },
    /// A type that this release does not know.
    #[serde(other)]
    Unknown,
}

/// One attempt at a task of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Array index.
    pub index: u32,
    /// Attempt at this task, from 1.
    pub attempt: u32,
}

/// One node's part of the plan.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assign {
    /// The plan; its generation fences older coordinators (I4).
    pub plan: Plan,
    /// Node index.
    pub node: u32,
    /// First global rank of this node.
    pub first_rank: u32,
    /// Names of all nodes, by index.
    pub node_names: Vec<String>,
    /// Addresses of all nodes, by index.
    pub node_addresses: Vec<String>,
    /// Values of the plan's `secret_names`.
    pub secrets: BTreeMap<String, String>,
    /// GPUs of this node as `CUDA_VISIBLE_DEVICES` names them; absent where GPUs are not managed.
    pub gpus: Option<Vec<String>>,
    /// CPUs of this node; absent where CPUs are not managed.
    pub cpus: Option<Vec<usize>>,
    /// Directory of this attempt, as the node sees it.
    pub attempt_dir: String,
    /// Directory of the logs of array tasks, as the node sees it.
    #[serde(default)]
    pub tasks_dir: String,
    /// Whether the only rank gets the executor's standard input.
    pub pass_stdin: bool,
    /// Whether the coordinator reads the logs' files itself: log frames tell their growth alone.
    #[serde(default)]
    pub logs_at_hand: bool,
    /// Where commands inside the job reach the coordinator.
    #[serde(default)]
    pub coordinator: String,
    /// File with the job's key, for commands inside the job.
    #[serde(default)]
    pub key_file: String,
    /// How a batch system starts MPI's ranks.
    #[serde(default)]
    pub rank_starters: RankStarters,
}

/// The words before a rank's own with which a batch system starts all ranks of an MPI job on all nodes,
/// for programs of each library; absent where it has no way to meet that library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankStarters {
    /// For programs of Open MPI.
    #[serde(default)]
    pub open_mpi: Option<Vec<String>>,
    /// For programs of MPICH and its relatives.
    #[serde(default)]
    pub mpich: Option<Vec<String>>,
}

impl fmt::Debug for Assign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the values of secrets (I12).
        f.debug_struct("Assign")
            .field("job", &self.plan.job)
            .field("attempt", &self.plan.attempt)
            .field("node", &self.node)
            .field("secrets", &self.secrets.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SessionEvent;

    #[test]
    fn unknown_types_and_fields_are_tolerated() {
        let unknown: ToCoordinator = serde_json::from_str(r#"{"type":"later","x":1}"#).unwrap();
        assert_eq!(unknown, ToCoordinator::Unknown);
        let beat: FromCoordinator =
            serde_json::from_str(r#"{"type":"heartbeat","load":3}"#).unwrap();
        assert_eq!(beat, FromCoordinator::Heartbeat);
        let later = r#"{"type":"session","session":1,"event":{"later":{}}}"#;
        assert!(serde_json::from_str::<ToCoordinator>(later).is_err());
    }

    #[test]
    fn a_session_message_keeps_its_form() {
        let message = ToCoordinator::Session(SessionMessage {
            session: 3,
            event: SessionEvent::Taken {
                stream: 1,
                bytes: 5,
            },
        });
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(
            text,
            r#"{"type":"session","session":3,"event":{"taken":{"stream":1,"bytes":5}}}"#
        );
        assert_eq!(
            serde_json::from_str::<ToCoordinator>(&text).unwrap(),
            message
        );
    }
}
