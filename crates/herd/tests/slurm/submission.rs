//! What `sbatch` and `squeue` may do besides what they should, by programs in their place.

use std::fs;
use std::time::Duration;

use herd_testing::within;
use serde_json::json;

use crate::case;
use crate::lab::Lab;
use crate::user::{DEADLINE, User};

pub(crate) fn cases() -> Vec<crate::Case> {
    vec![
        case!(submission::p13_i2_sbatch_that_hangs_after_accepting_is_found_by_name),
        case!(submission::i6_sbatch_that_hangs_has_a_bound),
        case!(submission::i2_sbatch_that_fails_after_accepting_is_found_by_name),
        case!(submission::a_banner_and_a_cluster_are_read),
        case!(submission::i2_a_duplicate_stops_itself),
        case!(submission::i3_states_that_nobody_knows_end_nothing),
        case!(submission::p14_a_bad_account_qos_or_partition_is_named),
        case!(submission::p15_slurm_shows_what_an_mpi_job_asks_for),
        case!(submission::names_of_all_kinds_are_only_names),
    ]
}

pub(crate) fn p13_i2_sbatch_that_hangs_after_accepting_is_found_by_name(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    user.replace("sbatch", "REAL \"$@\" >/dev/null; exec sleep 3000");
    let job = user.submit(json!({"run": "echo once"}));
    job.ends("SUCCEEDED", 0);
    assert_eq!(job.log(), "once\n");
    assert!(job.in_slurm().contains(&job.id));
}

pub(crate) fn i6_sbatch_that_hangs_has_a_bound(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    user.replace("sbatch", "exec sleep 3000");
    let file = user.file("job.yaml", json!({"run": "echo never"}));
    let answer = user.ask(&["submit", &file]);
    assert_eq!(answer.code, 125, "{answer:?}");
    assert!(answer.err.contains("sbatch has not answered"), "{answer:?}");
    // Nobody waits for it.
    let listed = user.ask(&["ls", "-o", "id"]);
    assert_eq!(listed.out, "", "{listed:?}");
}

pub(crate) fn i2_sbatch_that_fails_after_accepting_is_found_by_name(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    user.replace(
        "sbatch",
        "REAL \"$@\" >/dev/null\necho 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2\nexit 1",
    );
    let job = user.submit(json!({"run": "echo once"}));
    job.ends("SUCCEEDED", 0);
    assert_eq!(job.log(), "once\n");
}

pub(crate) fn a_banner_and_a_cluster_are_read(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    user.replace(
        "sbatch",
        "echo 'Welcome! 3 jobs of yours are waiting'; echo 12; echo; exec REAL \"$@\"",
    );
    let job = user.submit(json!({"run": "echo once"}));
    assert!(job.in_slurm().contains(&job.id));
    job.ends("SUCCEEDED", 0);
    user.replace("sbatch", "number=$(REAL \"$@\") && echo \"$number;lab\"");
    let job = user.submit(json!({"run": "sleep 600"}));
    assert_eq!(job.record("slurm.json")["cluster"], "lab");
    job.await_state("RUNNING");
    assert_eq!(user.ask(&["cancel", &job.id]).code, 0);
    job.ends("CANCELLED", 130);
}

pub(crate) fn i2_a_duplicate_stops_itself(lab: &Lab) {
    let _shared = lab.shared();
    for told in ["first", "second"] {
        duplicate(lab, told);
    }
}

/// A job that Slurm gets twice, of which `herd` is told one.
fn duplicate(lab: &Lab, told: &str) {
    let user = User::new(lab);
    let dir = user.path("").display().to_string();
    user.replace(
        "sbatch",
        &format!(
            "cat >{dir}/script; REAL \"$@\" <{dir}/script >{dir}/first; REAL \"$@\" <{dir}/script >{dir}/second; cat {dir}/{told}"
        ),
    );
    let job = user.submit(json!({
        "nodes": 2,
        "run": format!("echo once; touch {dir}/up; while [ ! -e {dir}/go ]; do sleep 0.1; done"),
    }));
    let both = ["first", "second"].map(|name| {
        let number = fs::read_to_string(user.path(name)).unwrap();
        number.trim().to_owned()
    });
    user.await_file("up");
    // One of them has ended; which one has the job does not matter to those who look at it.
    within(DEADLINE, "the end of the duplicate", || {
        let ended = |number: &String| {
            lab.ask(&["scontrol", "show", "job", number])
                .contains("JobState=COMPLETED")
        };
        both.iter().any(ended)
    });
    let said = (0..3).map(|_| job.state()).collect::<Vec<_>>();
    assert_eq!(said, ["RUNNING"; 3], "{}", job.story());
    user.touch("go");
    let result = job.ends("SUCCEEDED", 0);
    assert_eq!(result["attempts"], 1);
    assert_eq!(job.log().matches("once").count(), 2);
    job.gone();
}

pub(crate) fn i3_states_that_nobody_knows_end_nothing(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let dir = user.path("").display().to_string();
    let job = user.submit(
        json!({"run": format!("touch {dir}/up; while [ ! -e {dir}/go ]; do sleep 0.1; done")}),
    );
    user.await_file("up");
    job.await_state("RUNNING");
    for (squeue, sacct) in [
        ("REAL \"$@\" | sed 's/RUNNING/SPECIAL_EXIT_2/g'", "exit 1"),
        ("exit 0", "exit 0"),
        (
            "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
            "exit 1",
        ),
        ("echo garbage", "echo garbage"),
    ] {
        user.replace("squeue", squeue);
        user.replace("sacct", sacct);
        assert_eq!(job.state(), "RUNNING", "with {squeue}");
        user.put_back("squeue");
        user.put_back("sacct");
    }
    user.touch("go");
    job.ends("SUCCEEDED", 0);
}

pub(crate) fn p14_a_bad_account_qos_or_partition_is_named(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    for key in ["account", "qos", "partition"] {
        let file = user.file("job.yaml", json!({"run": "true", "slurm": {key: "nope"}}));
        let answer = user.ask(&["submit", &file]);
        assert_eq!(answer.code, 2, "{answer:?}");
        let named = format!("slurm.{key}: ");
        assert!(
            answer.err.contains(&named) && answer.err.contains("hint:"),
            "{answer:?}"
        );
    }
    let listed = user.ask(&["ls", "-o", "id"]);
    assert_eq!(listed.out, "", "{listed:?}");
}

pub(crate) fn p15_slurm_shows_what_an_mpi_job_asks_for(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let go = user.path("go").display().to_string();
    let first = user.submit(json!({"run": format!("while [ ! -e {go} ]; do sleep 0.1; done")}));
    let job = user.submit(json!({
        "type": "mpi",
        "after": [first.id],
        "nodes": 2,
        "procs_per_node": 2,
        "resources": {"cpus": 2, "gpus": 2, "gpu_type": "h800"},
        "walltime": "2h",
        "slurm": {"account": "lab", "extra": ["--exclude=node1"]},
        "run": "true",
    }));
    let format = "--format=%a|%b|%k|%x";
    let shown = lab.ask(&["squeue", "--noheader", format, "--jobs", &job.number()]);
    let fields: Vec<&str> = shown.trim().split('|').collect();
    assert_eq!(fields[0], "lab");
    assert!(fields[1].ends_with("gpu:h800:2"), "{shown}");
    assert!(fields[2].contains(&job.id), "{shown}");
    assert_eq!(fields[3], "node1");
    let number = job.number();
    let script = lab.ask(&["scontrol", "write", "batch_script", &number, "-"]);
    assert!(script.contains("#SBATCH --signal=B:USR1@"), "{script}");
    assert_eq!(user.ask(&["cancel", &job.id]).code, 0);
    job.ends("CANCELLED", 130);
    user.touch("go");
    first.ends("SUCCEEDED", 0);
}

pub(crate) fn names_of_all_kinds_are_only_names(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    // A job of somebody else whose name says what Slurm says elsewhere.
    let name = "--job-name=x|y\n1\u{1f}RUNNING\u{1f} JobState=COMPLETED Restarts=7";
    let other = lab.ask(&[
        "sbatch",
        "--parsable",
        "--hold",
        "--mem=1",
        name,
        "--wrap=true",
    ]);
    for name in ["two words|and $(more) 'quotes'", "ünï-✓"] {
        let file = user.file(
            "job.yaml",
            json!({"name": name, "run": "echo named \"$HERD_JOB_NAME\""}),
        );
        let answer = user.ask(&["run", &file]);
        if answer.code == 2 {
            assert!(answer.err.contains("name"), "{answer:?}");
        } else {
            assert_eq!(answer.out, format!("named {name}\n"), "{answer:?}");
        }
    }
    assert_eq!(user.ask(&["ls"]).code, 0);
    lab.ask(&["scancel", other.trim()]);
}

/// The bound on `sbatch` is a minute; what waits for it has more.
const _: () = assert!(DEADLINE.as_secs() > Duration::from_mins(1).as_secs());
