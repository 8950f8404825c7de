//! Partitions: `scontrol -o show partition`.

use herd_core::units::Span;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::text::{given, number, value};
use crate::time::Limit;

/// What to ask.
pub fn call() -> Call {
    Call::new("scontrol", ["-a", "-o", "show", "partition"])
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its name.
    pub name: String,
    /// Whether jobs that name none go here.
    pub default: bool,
    /// Whether it starts jobs, and whether it takes them.
    pub state: Availability,
    /// Longest time limit of a job; none for no limit.
    pub max_time: Option<Span>,
    /// Time limit of a job that has none of its own; none for the longest.
    pub default_time: Option<Span>,
    /// Most nodes of a job.
    pub max_nodes: Option<u32>,
    /// Fewest nodes of a job.
    pub min_nodes: u32,
    /// Nodes, in Slurm's short form.
    pub nodes: String,
    /// Accounts that are let in; none for all.
    pub allow_accounts: Option<Vec<String>>,
    /// Accounts that are kept out.
    pub deny_accounts: Vec<String>,
    /// QOS that are let in; none for all.
    pub allow_qos: Option<Vec<String>>,
    /// Time between the notice of a preemption and its SIGTERM.
    pub grace: Span,
    /// Memory of a node that a job gets where it asks for none, MiB.
    pub default_memory: Option<u64>,
    /// Most memory of a node that a job may ask for, MiB.
    pub max_memory: Option<u64>,
}

/// What a partition does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Availability {
    /// Takes and starts jobs.
    Up,
    /// Takes jobs, starts none.
    Down,
    /// Starts what it has, takes none.
    Drain,
    /// Does neither.
    Inactive,
    /// A word that is not known.
    Unknown,
}

/// Every partition of the output. A line without a name is left out.
pub fn parse(text: &str) -> Vec<Partition> {
    text.lines().filter_map(partition).collect()
}

fn partition(line: &str) -> Option<Partition> {
    let list = |text: &str| -> Vec<String> { text.split(',').map(str::to_owned).collect() };
    let get = |key: &str| value(line, key).and_then(given);
    let names = |key: &str| get(key).filter(|list| *list != "ALL").map(list);
    let limit = |key: &str| get(key).and_then(Limit::parse).and_then(Limit::span);
    let seconds = get("GraceTime").and_then(|text| text.parse().ok());
    let memory = |key: &str| {
        get(key)
            .filter(|text| *text != "UNLIMITED")
            .and_then(number)
    };
    Some(Partition {
        name: get("PartitionName")?.to_owned(),
        default: get("Default") == Some("YES"),
        state: match get("State") {
            Some("UP") => Availability::Up,
            Some("DOWN") => Availability::Down,
            Some("DRAIN") => Availability::Drain,
            Some("INACTIVE") => Availability::Inactive,
            _ => Availability::Unknown,
        },
        max_time: limit("MaxTime"),
        default_time: limit("DefaultTime"),
        max_nodes: get("MaxNodes").and_then(number),
        min_nodes: get("MinNodes").and_then(number).unwrap_or(0),
        nodes: get("Nodes").unwrap_or_default().to_owned(),
        allow_accounts: names("AllowAccounts"),
        deny_accounts: get("DenyAccounts").map(list).unwrap_or_default(),
        allow_qos: names("AllowQos"),
        grace: Span::from_secs(seconds.unwrap_or(0)),
        default_memory: memory("DefMemPerNode"),
        max_memory: memory("MaxMemPerNode"),
    })
}
