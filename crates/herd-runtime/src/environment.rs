//! The variables that phases and ranks see. Pure: no process is touched here.

use std::collections::BTreeMap;

use herd_core::spec::{JobType, Launcher};
use herd_link::message::Assign;

/// Where the ranks of one attempt meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// Address of node 0.
    pub address: String,
    /// Port that was free there.
    pub port: u16,
}

/// Variables of herd itself that no rank may inherit: keys, and what only executors need.
pub const SCRUBBED: &[&str] = &["HERD_KEY"];

/// Says how much memory a step gets: `srun` takes one of these and refuses a second one.
pub const SLURM_MEMORY: &[&str] = &[
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
];

/// Variables of a phase on one node: the plan's, the secrets, and the identity of the node.
pub fn of_node(assign: &Assign) -> BTreeMap<String, String> {
    let plan = &assign.plan;
    let mut env = plan.env.clone();
    env.extend(
        assign
            .secrets
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    let gpus = assign.gpus.as_ref().map_or(0, Vec::len).to_string();
    let addresses = assign.node_addresses.join("\n");
    let mut set = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    set("HERD_JOB_ID", plan.job.to_string());
    set("HERD_JOB_NAME", plan.name.clone());
    set("HERD_ATTEMPT", plan.attempt.to_string());
    set("HERD_NODE_RANK", assign.node.to_string());
    // Of the node's first rank, for what runs once on a node: setup and commands inside the job.
    set("HERD_RANK", assign.first_rank.to_string());
    set("HERD_LOCAL_RANK", "0".to_owned());
    set("HERD_NODE_NAME", name_of(assign));
    set("HERD_NODE_IPS", addresses.clone());
    set("HERD_NUM_NODES", plan.nodes.to_string());
    set("HERD_NUM_GPUS_PER_NODE", gpus.clone());
    set("HERD_WORLD_SIZE", plan.world_size().to_string());
    // Where `herd rsh` inside the job finds its way in; the key itself is in no environment.
    set("HERD_COORDINATOR", assign.coordinator.clone());
    set("HERD_KEY_FILE", assign.key_file.clone());
    // SkyPilot's names, so that scripts written for it run unchanged.
    set("SKYPILOT_NODE_RANK", assign.node.to_string());
    set("SKYPILOT_NUM_NODES", plan.nodes.to_string());
    set("SKYPILOT_NODE_IPS", addresses);
    set("SKYPILOT_NUM_GPUS_PER_NODE", gpus);
    set(
        "SKYPILOT_TASK_ID",
        format!("herd-{}-{}", plan.job, plan.name),
    );
    if let Some(index) = plan.task {
        set("HERD_ARRAY_INDEX", index.to_string());
        // The index in the job file: of a large array Slurm counts in parts.
        set("SLURM_ARRAY_TASK_ID", index.to_string());
    }
    if let Some(devices) = &assign.gpus {
        set("CUDA_VISIBLE_DEVICES", devices.join(","));
    }
    if plan.job_type == JobType::Ray {
        // The token itself is one of the secrets.
        set("RAY_AUTH_MODE", "token".to_owned());
        set("RAY_USAGE_STATS_ENABLED", "0".to_owned());
    }
    env
}

/// Variables of setup on one node.
pub fn of_setup(assign: &Assign) -> BTreeMap<String, String> {
    let mut env = of_node(assign);
    // In setup, SkyPilot calls the node's index and the addresses by other names.
    for (name, same) in [
        ("SKYPILOT_SETUP_NODE_RANK", "SKYPILOT_NODE_RANK"),
        ("SKYPILOT_SETUP_NODE_IPS", "SKYPILOT_NODE_IPS"),
    ] {
        if let Some(value) = env.get(same).cloned() {
            env.insert(name.to_owned(), value);
        }
    }
    env
}

/// Variables of one rank.
pub fn of_rank(assign: &Assign, local_rank: u32, meeting: &Meeting) -> BTreeMap<String, String> {
    let plan = &assign.plan;
    let rank = assign.first_rank + local_rank;
    let mut env = of_node(assign);
    let mut set = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    set("HERD_RANK", rank.to_string());
    set("HERD_LOCAL_RANK", local_rank.to_string());
    match (plan.job_type, plan.launcher) {
        (JobType::Pytorch, Launcher::Herd) => torch_rank(assign, local_rank, meeting, &mut set),
        (JobType::Pytorch, Launcher::User) => {
            // The user's own torchrun reads its defaults from these.
            set("PET_NNODES", plan.nodes.to_string());
            set("PET_NODE_RANK", assign.node.to_string());
            set("PET_NPROC_PER_NODE", plan.procs_per_node.to_string());
            set("PET_RDZV_BACKEND", "c10d".to_owned());
            set(
                "PET_RDZV_ENDPOINT",
                format!("{}:{}", meeting.address, meeting.port),
            );
            set(
                "PET_RDZV_ID",
                format!("{}-{}", plan.job.short(), plan.attempt),
            );
            // Without it torchrun tells its peers this machine's name, which not every network
            // can resolve.
            if let Some(address) = assign.node_addresses.get(assign.node as usize) {
                set("PET_LOCAL_ADDR", address.clone());
            }
            set("PET_MASTER_ADDR", meeting.address.clone());
            set("PET_MASTER_PORT", meeting.port.to_string());
        }
        (JobType::Ray, _) if meeting.port > 0 => {
            let head = format!("{}:{}", meeting.address, meeting.port);
            set("RAY_ADDRESS", head);
        }
        (JobType::Command | JobType::Mpi | JobType::Ray, _) => {}
    }
    env
}

/// The variables of worker-launcher specification §11.
fn torch_rank(
    assign: &Assign,
    local_rank: u32,
    meeting: &Meeting,
    set: &mut impl FnMut(&str, String),
) {
    let plan = &assign.plan;
    let rank = (assign.first_rank + local_rank).to_string();
    let world = plan.world_size().to_string();
    set("LOCAL_RANK", local_rank.to_string());
    set("RANK", rank.clone());
    set("ROLE_RANK", rank);
    set("GROUP_RANK", assign.node.to_string());
    set("LOCAL_WORLD_SIZE", plan.ranks_per_node.to_string());
    set("WORLD_SIZE", world.clone());
    set("ROLE_WORLD_SIZE", world);
    set("GROUP_WORLD_SIZE", plan.nodes.to_string());
    set("ROLE_NAME", "default".to_owned());
    set("MASTER_ADDR", meeting.address.clone());
    set("MASTER_PORT", meeting.port.to_string());
    set("TORCHELASTIC_RESTART_COUNT", "0".to_owned());
    set("TORCHELASTIC_MAX_RESTARTS", "0".to_owned());
    set("TORCHELASTIC_RUN_ID", plan.job.to_string());
    set("TORCHELASTIC_USE_AGENT_STORE", "False".to_owned());
}

/// Variables that are set only where neither the job nor the caller has set them.
pub fn defaults(assign: &Assign) -> Vec<(&'static str, &'static str)> {
    let plan = &assign.plan;
    let mut defaults = Vec::new();
    if plan.job_type == JobType::Pytorch {
        defaults.push(("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"));
        if plan.launcher == Launcher::Herd {
            let signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
            defaults.push(("TORCHELASTIC_SIGNALS_TO_HANDLE", signals));
        }
        // torchrun would do the same for the ranks that it starts, with a banner on stderr.
        if plan.procs_per_node > 1 {
            defaults.push(("OMP_NUM_THREADS", "1"));
        }
    }
    defaults
}

fn name_of(assign: &Assign) -> String {
    assign
        .node_names
        .get(assign.node as usize)
        .cloned()
        .unwrap_or_default()
}
