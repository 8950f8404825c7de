//! A driver with real executors: what ranks write reaches the merged log whole, whether the driver
//! reads their files itself or is sent every byte. Uses the example `node`, which `cargo test` builds.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use herd_core::JobId;
use herd_core::plan::{self, BackendFacts, Plan, Submission};
use herd_core::spec::{Command, JobSpec, JobType, ProcsPerNode, Setup, SetupOn};
use herd_core::state::AttemptState;
use herd_jobdir::runlog::{RECORD_BYTES, Record, RunLogWriter};
use herd_jobdir::{Durability, Home, JobDir};
use herd_link::message::RankStarters;
use herd_link::{Channel, Key};
use herd_runtime::driver::{self, Attempt, ExecutorStart, LogGrown, NodePlan};
use herd_runtime::session::client::Target;
use herd_runtime::session::follow_client::{FollowEnd, Output};
use herd_runtime::signals::Signals;
use herd_testing::Proxy;

const NODES: u32 = 2;
const RANKS_PER_NODE: u32 = 2;
const LINES: usize = 30_000;
/// Bytes after which the first connection breaks, in the middle of a record; later ones after more.
const CUT_AFTER: usize = 20_000;
/// Longer than a line of merged output may be.
const LONG: usize = 70_000;
const DEADLINE: Duration = Duration::from_mins(2);

fn plan() -> Plan {
    let script = format!(
        "for i in $(seq {LINES}); do echo line $i; done; head -c {LONG} /dev/zero | tr '\\0' x; \
         echo; echo err >&2; printf open"
    );
    let spec = JobSpec {
        job_type: JobType::Pytorch,
        nodes: NODES,
        procs_per_node: ProcsPerNode::Count(RANKS_PER_NODE),
        setup: Some(Setup {
            run: Command::Shell("echo prepared".to_owned()),
            on: Some(SetupOn::Each),
        }),
        run: Some(Command::Shell(script)),
        ..JobSpec::default()
    };
    let submission = Submission::first(JobId::generate(), "/");
    plan::plan(&spec, &BackendFacts::local(8, 0), submission).unwrap()
}

/// Starts the executors of all nodes, as a step of Slurm does; the first time nobody is there to do it.
const STEP: &str = "[ -e $ASKED ] || { touch $ASKED; echo not there >&2; exit 1; }; [ -e $ASKED.again ] || { touch $ASKED.again; exec sleep 600; }; for node in node0 node1; do SLURMD_NODENAME=$node \"$@\" & done; wait";

/// Runs the job; its merged log, and how often the driver said that it had grown.
/// With `cut`, every connection of an executor breaks after so many bytes; with `step`, one program
/// starts all executors.
async fn merged(logs_at_hand: bool, cut: Option<usize>, step: bool) -> (String, u32) {
    let directory = tempfile::tempdir().unwrap();
    let home = Home::at(directory.path().join("home")).unwrap();
    let plan = plan();
    let job = home.create(plan.job).unwrap();
    let key = Key::generate().unwrap();
    let target_key = Key::from_hex(&key.to_hex()).unwrap();
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
    assert!(
        program.exists(),
        "build it with: cargo build -p herd-runtime --examples"
    );
    let mut proxy = None;
    if let Some(limit) = cut {
        let (between, wrapper) = Proxy::before(&program, &directory.path().join("node"), limit);
        proxy = Some(between);
        program = wrapper;
    }
    let program: [OsString; 2] = [program.into(), "executor".into()];
    let growths = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&growths);
    let grown = move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
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
        executors: if step {
            let key = ("HERD_KEY".into(), target_key.to_hex().as_str().into());
            let asked = directory.path().join("asked");
            let asked = ("ASKED".into(), asked.into_os_string());
            let step = ["sh", "-c", STEP, "step"].map(OsString::from);
            ExecutorStart::All {
                argv: step.into_iter().chain(program).collect(),
                env: std::env::vars_os().chain([key, asked]).collect(),
                rank_starters: RankStarters::default(),
                try_again: |words| words.ends_with("not there"),
            }
        } else {
            ExecutorStart::Each(program.to_vec())
        },
        key_file: job.path().join("key"),
        tasks: None,
        task_history: Vec::new(),
        tasks_dir: job.path().join("tasks"),
        task_slots: 1,
        pass_stdin: false,
        warn: |_| {},
        logs_at_hand,
        log_grown: Some(LogGrown(Arc::new(grown))),
        why_ended: None,
    };
    let mut signals = Signals::watch().unwrap();
    let driven = tokio::time::timeout(DEADLINE, driver::run(attempt, &mut signals));
    let (driven, followed) = tokio::join!(driven, follow(&job, &target_key));
    let end = driven.unwrap().unwrap();
    assert_eq!(followed.0, fs::read(job.path().join("run.log")).unwrap());
    assert_eq!(followed.1, fs::read(job.path().join("run.index")).unwrap());
    assert_eq!(end.state, AttemptState::Succeeded, "{end:?}");
    if let Some(proxy) = proxy {
        assert!(
            proxy.cuts() >= 5,
            "connections were cut {} times",
            proxy.cuts()
        );
    }
    let log = fs::read_to_string(job.path().join("run.log")).unwrap();
    (log, growths.load(Ordering::Relaxed))
}

/// The two files of the merged output as a client gets them that follows over the link.
async fn follow(job: &JobDir, key: &Key) -> (Vec<u8>, Vec<u8>) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let driver = loop {
        if let Some(driver) = job.attempt(1).read_driver().unwrap() {
            break driver;
        }
        assert!(tokio::time::Instant::now() < deadline, "no driver");
        tokio::task::yield_now().await;
    };
    let target = Target {
        address: driver.address.parse().unwrap(),
        key: Key::from_hex(&key.to_hex()).unwrap(),
        channel: Channel {
            job: job.id().to_string(),
            attempt: 1,
        },
    };
    let (mut log, mut index) = (Vec::new(), Vec::new());
    let mut caught_up = 0;
    let followed = target.follow(0, 0, |output| {
        match output {
            Output::Log(bytes) => log.extend_from_slice(bytes),
            Output::Index(bytes) => index.extend_from_slice(bytes),
            Output::CaughtUp => caught_up += 1,
            Output::Idle => {}
        }
        // No record without its text.
        let (records, torn) = index.as_chunks::<RECORD_BYTES>();
        assert!(torn.is_empty());
        let known = records.last().map(Record::decode);
        let end = known.map_or(0, |record| record.offset + u64::from(record.length));
        assert!(end <= log.len() as u64);
        ControlFlow::Continue(())
    });
    let end = tokio::time::timeout(DEADLINE, followed).await.unwrap();
    assert_eq!(end.unwrap(), FollowEnd::Complete);
    assert_eq!(caught_up, 1);
    (log, index)
}

/// All ways in one test: a driver ends all children of its process.
#[tokio::test]
async fn i7_the_merged_log_is_whole_at_hand_over_the_link_and_over_one_that_breaks() {
    for (logs_at_hand, cut, step) in [
        (true, None, false),
        (false, None, false),
        (false, Some(CUT_AFTER), false),
        (false, None, true),
    ] {
        let (log, growths) = merged(logs_at_hand, cut, step).await;
        assert!(growths > 0);
        let mut wanted = 0;
        for rank in 0..NODES * RANKS_PER_NODE {
            let node = rank / RANKS_PER_NODE;
            let prefix = format!("(node{node}, rank={rank}) ");
            let lines: Vec<&str> = log
                .lines()
                .filter_map(|l| l.strip_prefix(&prefix))
                .collect();
            let (err, out): (Vec<&str>, Vec<&str>) = lines.iter().partition(|&&line| line == "err");
            assert_eq!(err.len(), 1);
            let counted: Vec<String> = (1..=LINES).map(|i| format!("line {i}")).collect();
            assert_eq!(out[..LINES], counted, "rank {rank}");
            let [first, second, open] = out[LINES..] else {
                panic!("{} lines after the counted ones", out.len() - LINES)
            };
            let first = first.strip_suffix(" [line continues]").unwrap();
            assert_eq!(first.len() + second.len(), LONG);
            assert_eq!(open, "open");
            wanted += lines.len();
        }
        for node in 0..NODES {
            assert_eq!(
                log.matches(&format!("(node{node}, setup) prepared\n"))
                    .count(),
                1
            );
            wanted += 1;
        }
        assert_eq!(log.lines().count(), wanted);
    }
}
