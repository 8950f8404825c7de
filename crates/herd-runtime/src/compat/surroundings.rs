//! What Slurm's environment and the network say of this node and its step (§2, §3). No command of Slurm is
//! called: containers have none.

use std::env;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs as _, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use herd_core::hostlist;

use super::arguments::Arguments;
use super::place::Known;

/// Bound on looking up all names together.
const LOOK_UP: Duration = Duration::from_secs(5);

/// The step of this executor.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) rank: u32,
    /// Its nodes, each with one executor.
    pub(super) nodes: u32,
    pub(super) node_name: Option<String>,
    node_id: Option<u32>,
    node_list: String,
    /// The step's own name, as the driver has given it.
    pub(super) name: Option<String>,
    /// What files of the step are named by: `<job>_<step>`.
    pub(super) key: Option<String>,
    /// Slurm's number of the allocation.
    pub(super) job: Option<String>,
}

impl Step {
    /// Reads it; the name of the variable that is missing otherwise.
    pub(super) fn read() -> Result<Self, &'static str> {
        let text = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let number = |name: &str| text(name)?.parse().ok();
        let rank = number("SLURM_PROCID").ok_or("SLURM_PROCID")?;
        let job = text("SLURM_JOB_ID");
        let step = text("SLURM_STEP_ID").or_else(|| text("SLURM_STEPID"));
        let plain = |text: &String| text.bytes().all(|b| b.is_ascii_alphanumeric());
        let key = match (&job, &step) {
            (Some(job), Some(step)) if plain(job) && plain(step) => Some(format!("{job}_{step}")),
            _ => None,
        };
        Ok(Self {
            rank,
            nodes: number("SLURM_NNODES")
                .filter(|&nodes| nodes > 0)
                .unwrap_or(1),
            node_name: text("SLURMD_NODENAME"),
            node_id: number("SLURM_NODEID"),
            node_list: text("SLURM_JOB_NODELIST").unwrap_or_default(),
            name: text("SLURM_JOB_NAME"),
            key,
            job: job.filter(plain),
        })
    }

    /// What tells which node of the cluster this is.
    pub(super) fn known(&self, arguments: &Arguments) -> Known {
        Known {
            rank: self.rank,
            node_name: self.node_name.clone(),
            step_node: self.node_id,
            own_ips: own_ips(&arguments.cluster_ips),
        }
    }

    /// Addresses of the step's nodes, in its order; with a warning where they are not certain.
    pub(super) fn ips(&self, arguments: &Arguments, own: &str) -> (Vec<String>, Option<String>) {
        let names = hostlist::expand(&self.node_list).unwrap_or_default();
        if names.is_empty() {
            let warning =
                "SLURM_JOB_NODELIST names no nodes; SKYPILOT_NODE_IPS holds this node alone";
            return (vec![own.to_owned()], Some(warning.to_owned()));
        }
        let told = |name: &String| {
            let at = arguments
                .cluster_nodes
                .iter()
                .position(|node| node == name)?;
            arguments.cluster_ips.get(at).cloned()
        };
        let mut found: Vec<Option<String>> = names.iter().map(told).collect();
        if found.iter().any(Option::is_none) {
            for (slot, resolved) in found.iter_mut().zip(resolve(names.clone())) {
                let address = resolved.first().map(ToString::to_string);
                *slot = slot.take().or(address);
            }
        }
        if let Some(all) = found.iter().cloned().collect::<Option<Vec<String>>>() {
            return (all, None);
        }
        if names.len() == arguments.cluster_ips.len() {
            let warning = "not all names of the job's nodes can be looked up; SKYPILOT_NODE_IPS holds the cluster's addresses";
            return (arguments.cluster_ips.clone(), Some(warning.to_owned()));
        }
        let all = found
            .into_iter()
            .zip(names)
            .map(|(ip, name)| ip.unwrap_or(name));
        let warning = "not all names of the job's nodes can be looked up; SKYPILOT_NODE_IPS holds their names";
        (all.collect(), Some(warning.to_owned()))
    }
}

/// Which of these addresses are this node's: the one that its host name stands for, else those that it
/// could listen on. (The first address of a node may be a bridge's, and a host name may stand for loopback.)
fn own_ips(ips: &[String]) -> Vec<String> {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let resolved = resolve(vec![host]).pop().unwrap_or_default();
    let named: Vec<String> = resolved
        .iter()
        .map(ToString::to_string)
        .filter(|ip| ips.contains(ip))
        .collect();
    if named.len() == 1 {
        return named;
    }
    let is_ours = |ip: &&String| {
        let address = ip.parse::<IpAddr>();
        address.is_ok_and(|address| UdpSocket::bind((address, 0)).is_ok())
    };
    ips.iter().filter(is_ours).cloned().collect()
}

/// IPv4 addresses of names, none where they cannot be had in time.
fn resolve(names: Vec<String>) -> Vec<Vec<Ipv4Addr>> {
    let count = names.len();
    let (say, answers) = mpsc::sync_channel(count);
    // It ends by itself, or with the process.
    let looking = thread::Builder::new().spawn(move || {
        for name in names {
            let found = (name.as_str(), 0).to_socket_addrs();
            let addresses: Vec<Ipv4Addr> = found
                .into_iter()
                .flatten()
                .filter_map(|address| match address.ip() {
                    IpAddr::V4(ip) => Some(ip),
                    IpAddr::V6(_) => None,
                })
                .collect();
            if say.send(addresses).is_err() {
                return;
            }
        }
    });
    let until = std::time::Instant::now() + LOOK_UP;
    let mut all = Vec::with_capacity(count);
    while looking.is_ok() && all.len() < count {
        let left = until.saturating_duration_since(std::time::Instant::now());
        match answers.recv_timeout(left) {
            Ok(addresses) => all.push(addresses),
            Err(_late) => break,
        }
    }
    all.resize(count, Vec::new());
    all
}
