//! As many nodes as a large job has, all on this machine: 64 executors of 8 ranks each, started by one
//! program as a step of Slurm starts them. Uses the example `node`, which `cargo test` builds.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use herd_core::JobId;
use herd_core::plan::{self, BackendFacts, Submission};
use herd_core::spec::{Command, JobSpec, JobType, ProcsPerNode};
use herd_core::state::AttemptState;
use herd_jobdir::runlog::RunLogWriter;
use herd_jobdir::{Durability, Home};
use herd_link::Key;
use herd_link::message::RankStarters;
use herd_runtime::driver::{self, Attempt, ExecutorStart, NodePlan};
use herd_runtime::signals::Signals;

const NODES: u32 = 64;
const RANKS_PER_NODE: u32 = 8;
/// Five times the bound of 5 s, on a machine that is loaded.
const DEADLINE: Duration = Duration::from_secs(25);
const STEP: &str = "nodes=$1; shift; i=0; while [ $i -lt $nodes ]; do SLURMD_NODENAME=node$i \"$@\" & \
                    i=$((i + 1)); done; wait";

#[tokio::test]
async fn sixty_four_nodes_of_eight_ranks_register_run_and_end() {
    let directory = tempfile::tempdir().unwrap();
    let home = Home::at(directory.path().join("home")).unwrap();
    let spec = JobSpec {
        job_type: JobType::Pytorch,
        nodes: NODES,
        procs_per_node: ProcsPerNode::Count(RANKS_PER_NODE),
        run: Some(Command::Argv(vec!["/bin/true".to_owned()])),
        ..JobSpec::default()
    };
    let submission = Submission::first(JobId::generate(), "/");
    let plan = plan::plan(&spec, &BackendFacts::local(8, 0), submission).unwrap();
    let job = home.create(plan.job).unwrap();
    let key = Key::generate().unwrap();
    job.write_key(&key.to_hex()).unwrap();
    let dir = job.attempt(1);
    dir.create().unwrap();
    let nodes: Vec<NodePlan> = (0..NODES)
        .map(|index| NodePlan {
            name: format!("node{index}"),
            ..NodePlan::default()
        })
        .collect();
    for node in &nodes {
        dir.setup_log(&node.name).unwrap();
    }
    for rank in 0..plan.world_size() {
        dir.create_rank(rank).unwrap();
    }
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    program.pop();
    program.push("examples/node");
    let step = ["sh", "-c", STEP, "step", "64"].map(OsString::from);
    let own = [program.into_os_string(), "executor".into()];
    let variable = ("HERD_KEY".into(), key.to_hex().as_str().into());
    let attempt = Attempt {
        plan,
        secrets: BTreeMap::new(),
        key,
        job: job.clone(),
        dir,
        run_log: RunLogWriter::open(job.path()).unwrap(),
        durability: Durability::Process,
        listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        gang_timeout: DEADLINE,
        nodes,
        executors: ExecutorStart::All {
            argv: step.into_iter().chain(own).collect(),
            env: std::env::vars_os().chain([variable]).collect(),
            rank_starters: RankStarters::default(),
            try_again: |_| false,
        },
        key_file: job.path().join("key"),
        tasks: None,
        task_history: Vec::new(),
        tasks_dir: job.path().join("tasks"),
        task_slots: 1,
        pass_stdin: false,
        warn: |_| {},
        logs_at_hand: false,
        log_grown: None,
        why_ended: None,
    };
    let mut signals = Signals::watch().unwrap();
    let started = Instant::now();
    let end = driver::run(attempt, &mut signals).await.unwrap();
    let took = started.elapsed();
    assert_eq!(end.state, AttemptState::Succeeded, "{:?}", end.failure);
    assert_eq!(end.ranks.len(), (NODES * RANKS_PER_NODE) as usize);
    assert!(took < DEADLINE, "it took {took:?}");
    println!("it took {took:?}");
}
