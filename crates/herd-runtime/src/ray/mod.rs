//! What a node of a Ray cluster is started with: arguments, variables, address, directory. Pure.
//!
//! Ray is told every port, its directory, its token and that it must not report home, so that two
//! clusters on one machine, whoever started them, do not meet. It is stopped by process id: `ray
//! stop` ends by name whatever looks like Ray.

pub(crate) mod directory;
pub(crate) mod machine;
pub(crate) mod node;
pub(crate) mod ports;
pub(crate) mod run;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::Path;

use herd_link::message::Assign;

use machine::Machine;
use ports::Ports;

/// The variable with the cluster's token. Its value travels with the job's secrets.
pub(crate) const TOKEN: &str = "RAY_AUTH_TOKEN";

/// Ray refuses a smaller object store.
const MIN_STORE: u64 = 80 << 20;
/// Largest object store that is asked for where the job sets no memory.
const MAX_STORE: u64 = 200 << 30;

/// The part of a node in its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Keeps the cluster's state; runs on node 0.
    Head,
    /// Joins the head.
    Worker {
        /// Address of the head.
        head: String,
        /// Port of the head.
        port: u16,
    },
}

impl Part {
    /// What people call it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Head => "Ray head",
            Self::Worker { .. } => "Ray worker",
        }
    }

    /// Name of its log in the node's directory.
    pub(crate) fn log(&self) -> &'static str {
        match self {
            Self::Head => "ray-head.log",
            Self::Worker { .. } => "ray-worker.log",
        }
    }
}

/// Address of this node in its cluster. Ray replaces 127.0.0.1 by the machine's outside address but
/// leaves the other loopback addresses alone, so each emulated node gets one of its own.
pub(crate) fn address(assign: &Assign) -> String {
    let own = assign.node_addresses.get(assign.node as usize);
    let own = own.map_or("", String::as_str);
    if own.parse() == Ok(Ipv4Addr::LOCALHOST) {
        let first = u32::from(Ipv4Addr::new(127, 0, 0, 2));
        return Ipv4Addr::from(first.saturating_add(assign.node)).to_string();
    }
    own.to_owned()
}

/// How many nodes of the job share this one's machine, itself included.
fn sharing(assign: &Assign) -> u64 {
    let own = assign.node_addresses.get(assign.node as usize);
    let same = assign
        .node_addresses
        .iter()
        .filter(|other| Some(*other) == own);
    u64::try_from(same.count()).unwrap_or(1).max(1)
}

/// The arguments of `ray` for this node.
pub(crate) fn argv(
    assign: &Assign,
    part: &Part,
    ports: Ports,
    machine: &Machine,
    directory: &Path,
) -> Vec<OsString> {
    let address = address(assign);
    let name = assign.node_names.get(assign.node as usize);
    let mut argv: Vec<OsString> = ["ray", "start", "--block"].map(OsString::from).to_vec();
    let mut set = |flag: &str, value: &dyn std::fmt::Display| {
        argv.push(format!("--{flag}={value}").into());
    };
    set("node-ip-address", &address);
    set("node-name", &name.map_or("", String::as_str));
    set("num-cpus", &cpus(assign, machine));
    if let Some(gpus) = gpus(assign) {
        set("num-gpus", &gpus);
    }
    if let Some(memory) = assign.plan.resources.memory {
        set("memory", &memory.0);
    }
    set("object-store-memory", &store(assign, machine));
    set("node-manager-port", &ports.node_manager());
    set("object-manager-port", &ports.object_manager());
    set("runtime-env-agent-port", &ports.runtime_env_agent());
    set("metrics-export-port", &ports.metrics());
    set("dashboard-agent-listen-port", &ports.agent());
    set("dashboard-agent-grpc-port", &ports.agent_grpc());
    // The kernel gives each worker process a free port when it binds, which no choice made here
    // could do as well; a range would also bound their number.
    set("min-worker-port", &0);
    set("max-worker-port", &0);
    set("log-style", &"record");
    set("log-color", &"false");
    match part {
        Part::Head => {
            set("port", &ports.head());
            set("ray-client-server-port", &ports.client_server());
            set("include-dashboard", &"false");
            set("dashboard-host", &address);
            set("dashboard-port", &ports.dashboard());
        }
        Part::Worker { head, port } => set("address", &format!("{head}:{port}")),
    }
    argv.push("--disable-usage-stats".into());
    if *part == Part::Head {
        argv.push("--head".into());
    }
    let mut temporary = OsString::from("--temp-dir=");
    temporary.push(directory);
    argv.push(temporary);
    argv
}

/// Variables of a daemon, besides those of the node: ports of servers that have no flag.
pub(crate) fn environment(ports: Ports) -> BTreeMap<String, String> {
    [
        ("AUTOSCALER_METRIC_PORT", ports.autoscaler_metrics()),
        ("DASHBOARD_METRIC_PORT", ports.dashboard_metrics()),
    ]
    .map(|(name, port)| (name.to_owned(), port.to_string()))
    .into()
}

fn cpus(assign: &Assign, machine: &Machine) -> u64 {
    let asked = assign.plan.resources.cpus.map(u64::from);
    asked.unwrap_or_else(|| (machine.cpus / sharing(assign)).max(1))
}

/// GPUs of the node; absent where Ray is to count what it sees. Nodes that share a machine would
/// each count all of it.
fn gpus(assign: &Assign) -> Option<usize> {
    match &assign.gpus {
        Some(gpus) => Some(gpus.len()),
        None if sharing(assign) > 1 => Some(0),
        None => None,
    }
}

/// Bytes of the object store: 30 % of the node's memory, as Ray does it, and no more than the
/// node's share of half of what is free in shared memory.
fn store(assign: &Assign, machine: &Machine) -> u64 {
    let sharing = sharing(assign);
    let memory = assign.plan.resources.memory.map(|memory| memory.0);
    let memory = memory.unwrap_or(machine.memory / sharing);
    let shared = machine.shared_memory / 2 / sharing;
    (memory / 10 * 3).min(shared).clamp(MIN_STORE, MAX_STORE)
}

#[cfg(test)]
mod tests;
