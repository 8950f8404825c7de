//! Nodes, daemons and networks that fail in the middle of a job. Each test has nodes of its own.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use herd_runtime::executor::LEASE;
use herd_testing::within;
use serde_json::{Value, json};

use crate::case;
use crate::lab::Lab;
use crate::nodes::Replaced;
use crate::user::{DEADLINE, User};

/// The bound of I5 on other hosts, and a loaded machine.
const GONE: Duration = Duration::from_secs(5 * (LEASE.as_secs() + 2));

pub(crate) fn cases() -> Vec<crate::Case> {
    vec![
        case!(faults::i5_a_node_cut_in_setup_is_named_and_all_ends),
        case!(faults::a_node_cut_in_the_run_is_tried_again),
        case!(faults::i1_i5_the_drivers_node_is_cut),
        case!(faults::a_killed_slurmd_changes_nothing),
        case!(faults::i5_a_killed_slurmstepd_of_a_node_ends_the_job),
        case!(faults::i5_a_killed_slurmstepd_of_the_driver_leaves_nothing),
        case!(faults::i1_a_node_that_starts_anew_is_lost),
        case!(faults::i1_the_drivers_node_that_starts_anew_begins_the_next_attempt),
        case!(faults::i5_i6_a_node_cut_while_it_registers_is_named),
    ]
}

/// A job on two nodes of its own, the first of which has the driver.
pub(crate) fn on(nodes: [u32; 2], mut job: Value) -> Value {
    job["nodes"] = 2.into();
    job["slurm"] = json!({"extra": [format!("--nodelist=node[{},{}]", nodes[0], nodes[1])]});
    job
}

/// A script that says it is there and waits for `go`.
pub(crate) fn waiting(user: &User<'_>) -> String {
    let dir = user.path("").display().to_string();
    format!(
        "touch {dir}/up-$HERD_ATTEMPT-$HERD_NODE_RANK; while [ ! -e {dir}/go ]; do sleep 0.1; done"
    )
}

fn await_both(user: &User<'_>) {
    user.await_file("up-1-0");
    user.await_file("up-1-1");
}

pub(crate) fn i5_a_node_cut_in_setup_is_named_and_all_ends(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let setup = json!({"on": "each", "run": waiting(&user)});
    let job = user.submit(on([1, 2], json!({"setup": setup, "run": "echo never"})));
    await_both(&user);
    lab.slurm(&["node", "cut", "2"]);
    let result = job.ends("FAILED", 125);
    let failure = result["failure"].to_string();
    assert!(
        failure.contains("node-lost") && failure.contains("node2"),
        "{failure}"
    );
    // Those of the cut node, which nobody can tell anything, end by themselves.
    job.gone_within(GONE);
    lab.slurm(&["node", "join", "2"]);
    job.gone();
}

pub(crate) fn a_node_cut_in_the_run_is_tried_again(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = on(
        [3, 4],
        json!({"run": waiting(&user), "retry": {"max": 1, "on": ["node-lost"], "backoff": "1s"}}),
    );
    let job = user.submit(job);
    await_both(&user);
    lab.slurm(&["node", "cut", "4"]);
    within(DEADLINE, "the end of attempt 1", || {
        job.record("attempts/1/end").is_object()
    });
    let end = job.record("attempts/1/end").to_string();
    assert!(end.contains("node-lost") && end.contains("node4"), "{end}");
    job.gone_within(GONE);
    lab.slurm(&["node", "join", "4"]);
    user.touch("go");
    let result = job.ends("SUCCEEDED", 0);
    assert_eq!(result["attempts"], 2, "{}", job.story());
    let owner = job.record("attempts/2/owner");
    assert_eq!(
        owner["backend_id"],
        format!("slurm:{}.1", job.number()),
        "{owner}"
    );
    job.gone();
}

pub(crate) fn i1_i5_the_drivers_node_is_cut(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(on([5, 6], json!({"run": waiting(&user)})));
    await_both(&user);
    lab.slurm(&["node", "cut", "5"]);
    // To the driver it is the other node that is silent.
    let result = job.ends("FAILED", 125);
    assert!(result["failure"].to_string().contains("node6"), "{result}");
    job.gone_within(GONE);
    lab.slurm(&["node", "join", "5"]);
    job.gone();
    assert_eq!(job.record("result.json"), result);
}

pub(crate) fn a_killed_slurmd_changes_nothing(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(on([7, 8], json!({"run": waiting(&user)})));
    await_both(&user);
    for number in ["7", "8"] {
        lab.slurm(&["node", "kill-slurmd", number]);
    }
    user.touch("go");
    within(DEADLINE, "the result", || {
        job.record("result.json").is_object()
    });
    for number in ["7", "8"] {
        lab.slurm(&["node", "start-slurmd", number]);
    }
    job.ends("SUCCEEDED", 0);
    job.gone();
}

/// Kills Slurm's own process of a step on a node.
fn kill_stepd(lab: &Lab, on: &str, step: &str) {
    let script = format!("kill -KILL $(pgrep -f '[s]lurmstepd: .{step}')");
    lab.slurm(&["node", "in", on, "sh", "-c", &script]);
}

pub(crate) fn i5_a_killed_slurmstepd_of_a_node_ends_the_job(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(on([9, 10], json!({"run": waiting(&user)})));
    await_both(&user);
    kill_stepd(lab, "node10", &format!("{}.0", job.number()));
    let result = job.ends("FAILED", 125);
    let failure = result["failure"].to_string();
    assert!(
        failure.contains("node-lost") && failure.contains("node10"),
        "{failure}"
    );
    job.gone_within(GONE);
}

pub(crate) fn i5_a_killed_slurmstepd_of_the_driver_leaves_nothing(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(on([11, 12], json!({"run": waiting(&user)})));
    await_both(&user);
    kill_stepd(lab, "node11", &format!("{}.batch", job.number()));
    lab.ask(&["scancel", &job.number()]);
    job.gone_within(GONE);
    job.wait();
    assert_eq!(
        job.record("result.json")["state"],
        "CANCELLED",
        "{}",
        job.story()
    );
}

pub(crate) fn i1_a_node_that_starts_anew_is_lost(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(on([13, 14], json!({"run": waiting(&user)})));
    await_both(&user);
    lab.slurm(&["node", "reboot", "14"]);
    let result = job.ends("FAILED", 125);
    let failure = result["failure"].to_string();
    assert!(
        failure.contains("node-lost") && failure.contains("node14"),
        "{failure}"
    );
    job.gone_within(GONE);
}

pub(crate) fn i1_the_drivers_node_that_starts_anew_begins_the_next_attempt(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(on([15, 16], json!({"run": waiting(&user)})));
    await_both(&user);
    lab.slurm(&["node", "reboot", "15"]);
    job.gone_within(GONE);
    user.touch("go");
    // Slurm looks for what a node has lost when its slurmd registers, and not right after a job's start.
    within(DEADLINE, "the next attempt", || {
        lab.slurm(&["node", "kill-slurmd", "15"]);
        lab.slurm(&["node", "start-slurmd", "15"]);
        let again =
            || job.dir.join("attempts/2").exists() || job.in_slurm().contains("JobState=PENDING");
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until && !again() {
            thread::park_timeout(Duration::from_millis(200));
        }
        again()
    });
    let result = job.ends("SUCCEEDED", 0);
    assert_eq!(result["attempts"], 2, "{}", job.story());
    assert_eq!(
        job.record("attempts/1/end")["state"],
        "PREEMPTED",
        "{}",
        job.story()
    );
    job.gone();
}

pub(crate) fn i5_i6_a_node_cut_while_it_registers_is_named(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let dir = user.path("").display().to_string();
    let node = Path::new(env!("CARGO_BIN_EXE_herd")).with_file_name("herd-node");
    let held = format!(
        "touch {dir}/registering; while [ ! -e {dir}/go ]; do sleep 0.1; done; exec REAL \"$@\""
    );
    let replaced = Replaced::on(&user, 18, &node.to_string_lossy(), &held);
    let job = user.submit(on([17, 18], json!({"run": "echo ran"})));
    user.await_file("registering");
    lab.slurm(&["node", "cut", "18"]);
    user.touch("go");
    within(2 * DEADLINE, "the end of attempt 1", || {
        job.record("attempts/1/end").is_object()
    });
    assert!(!job.log().contains("ran"));
    job.gone_within(GONE);
    lab.slurm(&["node", "join", "18"]);
    let failure = job.ends("FAILED", 125)["failure"].to_string();
    for part in ["node-lost", "node18", "register"] {
        assert!(failure.contains(part), "{failure}");
    }
    drop(replaced);
    job.gone();
}
