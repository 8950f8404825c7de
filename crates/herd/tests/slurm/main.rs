//! `herd` on a real Slurm (`lab/slurm`), with both ways of Slurm to track processes. The rows are those of
//! the task executor's specification.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod arrays;
mod cancel;
mod controller;
mod environment;
mod faults;
mod full;
mod lab;
mod left;
mod memory;
mod nodes;
mod queue;
mod rows;
mod submission;
mod user;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::thread;

use libtest_mimic::{Arguments, Trial};

use lab::Lab;

/// A test and its name.
pub(crate) type Case = (&'static str, fn(&Lab));

/// A test by its function.
macro_rules! case {
    ($module:ident :: $name:ident) => {
        (
            stringify!($name),
            crate::$module::$name as fn(&crate::lab::Lab),
        )
    };
}
pub(crate) use case;

/// One cluster of a kind, and what runs on it.
struct Cluster {
    name: &'static str,
    options: &'static [&'static str],
    cases: Vec<Case>,
    lab: Arc<OnceLock<Lab>>,
}

const CGROUP: &[&str] = &[
    "--proctrack",
    "cgroup",
    "--conf",
    "TaskPlugin=task/cgroup",
    "--cgroup-conf",
    "ConstrainRAMSpace=yes",
];
const CGROUP_24_11: &[&str] = &[
    "--version",
    "24.11",
    "--proctrack",
    "cgroup",
    "--conf",
    "TaskPlugin=task/cgroup",
    "--cgroup-conf",
    "ConstrainRAMSpace=yes",
];
/// What a site may set against jobs that look after their own ranks.
const STRICT: &[&str] = &[
    "--proctrack",
    "linuxproc",
    "--conf",
    "KillOnBadExit=1",
    "--conf",
    "WaitTime=3",
];
/// Herd misses a node that is silent before Slurm does.
const FAULTS: &[&str] = &[
    "--no-accounting",
    "--nodes",
    "20",
    "--conf",
    "SlurmdTimeout=300",
];
const FAULTS_24_11: &[&str] = &[
    "--version",
    "24.11",
    "--proctrack",
    "cgroup",
    "--no-accounting",
    "--nodes",
    "20",
    "--conf",
    "SlurmdTimeout=300",
];
const CONTROLLER: &[&str] = &["--no-accounting", "--nodes", "11"];
const CONTROLLER_24_11: &[&str] = &[
    "--version",
    "24.11",
    "--proctrack",
    "cgroup",
    "--no-accounting",
    "--nodes",
    "11",
];

fn clusters() -> Vec<Cluster> {
    let cluster = |name, options, cases| Cluster {
        name,
        options,
        cases,
        lab: Arc::default(),
    };
    let usual = || {
        let cases = [
            arrays::cases(),
            cancel::cases(),
            submission::cases(),
            rows::cases(),
            environment::cases(),
            full::cases(),
            queue::cases(),
        ];
        cases.concat()
    };
    let bounded = || [usual(), memory::cases()].concat();
    let faults = || [faults::cases(), queue::cases_with_nodes()].concat();
    vec![
        cluster(
            "cgroup_24_11_controller",
            CONTROLLER_24_11,
            controller::cases(),
        ),
        cluster("linuxproc_controller", CONTROLLER, controller::cases()),
        cluster("cgroup_24_11_faults", FAULTS_24_11, faults()),
        cluster("linuxproc_faults", FAULTS, faults()),
        cluster(
            "small_arrays",
            &[
                "--conf",
                "MaxArraySize=5",
                "--no-accounting",
                "--nodes",
                "4",
            ],
            [arrays::cases_of_small_ones(), left::cases_of_small_ones()].concat(),
        ),
        cluster("cgroup", CGROUP, bounded()),
        cluster("cgroup_24_11", CGROUP_24_11, bounded()),
        cluster("linuxproc", STRICT, usual()),
    ]
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Tests wait for Slurm most of the time.
    arguments.test_threads.get_or_insert(28);
    let clusters = clusters();
    let chosen = |name: &str| {
        arguments
            .filter
            .as_ref()
            .is_none_or(|filter| name.contains(filter))
    };
    let mut trials = Vec::new();
    for cluster in &clusters {
        for (name, case) in &cluster.cases {
            let (name, case) = (format!("{}::{name}", cluster.name), *case);
            let lab = Arc::clone(&cluster.lab);
            trials.push(Trial::test(name, move || {
                case(lab.get().ok_or("the cluster is not up")?);
                Ok(())
            }));
        }
    }
    if !arguments.list {
        lab::own_mounts();
        thread::scope(|scope| {
            for cluster in &clusters {
                let any = cluster
                    .cases
                    .iter()
                    .any(|(name, _)| chosen(&format!("{}::{name}", cluster.name)));
                if any {
                    scope.spawn(|| cluster.lab.get_or_init(|| Lab::up(cluster.options)));
                }
            }
        });
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let mut left = false;
    for cluster in &clusters {
        // What every test looks for by the job's id, for those that hide it.
        if let Some(lab) = cluster.lab.get() {
            let processes = lab.left();
            left |= !processes.is_empty();
            if !processes.is_empty() {
                drop(writeln!(
                    std::io::stderr(),
                    "I5: left on the nodes of {}:\n{processes}",
                    cluster.name
                ));
            }
        }
    }
    drop(clusters);
    if conclusion.has_failed() || left {
        ExitCode::from(101)
    } else {
        ExitCode::SUCCESS
    }
}
