//! Long queues of others, and how seldom Slurm is asked.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::case;
use crate::lab::Lab;
use crate::nodes::Replaced;
use crate::user::{DEADLINE, User};

pub(crate) fn cases() -> Vec<crate::Case> {
    vec![case!(queue::five_thousand_jobs_of_others_change_nothing)]
}

/// Where nodes are for one test alone.
pub(crate) fn cases_with_nodes() -> Vec<crate::Case> {
    vec![case!(queue::slurm_is_asked_seldom_while_jobs_run)]
}

pub(crate) fn five_thousand_jobs_of_others_change_nothing(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let name = "--job-name=herd|job RUNNING\u{1f}1\u{1e}";
    let words = [
        "sbatch",
        "--parsable",
        "--hold",
        "--mem=1",
        name,
        "--array=0-4999",
        "--wrap=true",
    ];
    let others = lab.ask(&words);
    let others = others.trim();
    let rows = lab.ask(&[
        "squeue",
        "--noheader",
        "--array",
        "--format=%i",
        "--jobs",
        others,
    ]);
    assert_eq!(rows.lines().count(), 5000);
    let dir = user.path("").display().to_string();
    let job = user.submit(json!({
        "nodes": 2,
        "run": format!("touch {dir}/up-$HERD_RANK; while [ ! -e {dir}/go ]; do sleep 0.1; done"),
    }));
    user.await_file("up-0");
    user.await_file("up-1");
    let started = Instant::now();
    assert_eq!(job.state(), "RUNNING");
    let listed = user.ask(&["ls", "-o", "json"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(started.elapsed() < DEADLINE);
    let waiting = user.submit(json!({"run": "true", "after": [job.id]}));
    waiting.await_state("QUEUED");
    assert_eq!(user.ask(&["why", &waiting.id]).code, 0);
    user.touch("go");
    job.ends("SUCCEEDED", 0);
    waiting.ends("SUCCEEDED", 0);
    job.gone();
    lab.ask(&["scancel", others]);
}

/// Commands that ask Slurm something.
const COMMANDS: [&str; 8] = [
    "squeue", "sacct", "scontrol", "sinfo", "scancel", "sbatch", "srun", "sacctmgr",
];

pub(crate) fn slurm_is_asked_seldom_while_jobs_run(lab: &Lab) {
    const WAITED: Duration = Duration::from_secs(32);
    let _shared = lab.shared();
    let user = User::new(lab);
    let dir = user.path("").display().to_string();
    let calls = user.path("calls");
    let count = || fs::read_to_string(&calls).unwrap_or_default();
    // The driver's node, and this machine.
    let log = format!("echo \"$(basename $0) $*\" >> {dir}/calls; exec REAL \"$@\"");
    let on_node: Vec<Replaced<'_>> = COMMANDS
        .iter()
        .filter(|command| **command != "sacctmgr")
        .map(|command| Replaced::on(&user, 19, &format!("/usr/bin/{command}"), &log))
        .collect();
    let jobs: Vec<_> = (0..3)
        .map(|index| {
            user.submit(json!({
                "nodes": 2,
                "slurm": {"extra": ["--nodelist=node[19-20]"]},
                "run": format!("touch {dir}/up-{index}-$HERD_RANK; while [ ! -e {dir}/go ]; do sleep 0.5; done"),
            }))
        })
        .collect();
    for index in 0..3 {
        user.await_file(&format!("up-{index}-0"));
        user.await_file(&format!("up-{index}-1"));
    }
    // A driver starts its step, and asks nothing.
    let begun = count();
    let steps = begun.lines().filter(|line| line.contains("srun ")).count();
    assert_eq!((steps, begun.lines().count()), (3, 3), "{begun}");
    for command in COMMANDS {
        user.replace(command, &log);
    }
    let bound = format!("{}s", WAITED.as_secs());
    let ids: Vec<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
    let waited = user.ask(&[&["wait", "--timeout", &bound], &ids[..]].concat());
    assert_eq!(waited.code, 124, "{waited:?}");
    // For all jobs together: at the beginning, and after 2, 4, 8, 16 s more.
    let asked = count();
    let asked: Vec<&str> = asked.lines().skip(3).collect();
    assert!(asked.len() < 5 + jobs.len(), "{asked:#?}");
    assert!(
        asked.iter().all(|call| call.starts_with("squeue ")),
        "{asked:#?}"
    );
    user.touch("go");
    for job in &jobs {
        job.ends("SUCCEEDED", 0);
        job.gone();
    }
    drop(on_node);
}
