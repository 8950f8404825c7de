//! `herd submit` that is killed on its way: what it has left in Slurm goes on or goes.

use herd_testing::within;
use serde_json::json;

use crate::case;
use crate::lab::Lab;
use crate::user::{DEADLINE, Job, User};

/// On a cluster that takes five tasks in an array.
pub(crate) fn cases_of_small_ones() -> Vec<crate::Case> {
    vec![
        case!(left::i2_arrays_of_a_submission_that_was_killed_do_not_stay),
        case!(left::i2_an_array_that_nobody_wrote_down_goes_with_the_others),
        case!(left::i2_a_submission_that_was_killed_when_all_was_there_goes_on),
        case!(left::i2_a_job_whose_submission_was_killed_is_found),
        case!(left::a_job_that_never_reached_slurm_ends),
        case!(left::cancel_ends_a_job_whose_submission_was_killed),
    ]
}

/// Kills `herd`, whose child the program in Slurm's place is.
const KILL: &str = "kill -9 $PPID; sleep 1";

/// A submission that is killed.
fn submit_and_die<'a>(user: &'a User<'_>, job: serde_json::Value) -> Job<'a> {
    let file = user.file("job.yaml", job);
    let status = user.start(&["submit", &file]).wait().unwrap();
    assert_eq!(status.code(), None, "{status}");
    user.last()
}

/// Has the program do this when it is called for the nth time, and what it does elsewhere otherwise.
fn at_call(user: &User<'_>, program: &str, number: u32, then: &str) {
    let calls = user.path(&format!("{program}-calls"));
    let calls = calls.display();
    let script = format!(
        "echo >>{calls}; if [ $(wc -l <{calls}) = {number} ]; then {then}; fi; exec REAL \"$@\""
    );
    user.replace(program, &script);
}

/// What Slurm has of the job.
fn queued(job: &Job<'_>) -> Vec<String> {
    let short = job.id.get(job.id.len() - 8..).unwrap();
    let name = format!("job-{short}");
    let names: Vec<String> = (0..4)
        .map(|part| match part {
            0 => name.clone(),
            part => format!("{name}.{part}"),
        })
        .collect();
    let names = format!("--name={}", names.join(","));
    let asked = job
        .user
        .lab
        .ask(&["squeue", "--noheader", "--format=%F", &names]);
    asked.lines().map(|line| line.trim().to_owned()).collect()
}

fn three_arrays() -> serde_json::Value {
    json!({"name": "job", "array": "0-11", "run": "true"})
}

pub(crate) fn i2_arrays_of_a_submission_that_was_killed_do_not_stay(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    at_call(&user, "sbatch", 2, KILL);
    let job = submit_and_die(&user, three_arrays());
    // They are held, and nobody knows.
    assert_ne!(queued(&job), Vec::<String>::new());
    // Whoever looks next, however.
    assert_eq!(user.ask(&["ls"]).code, 0);
    assert_eq!(queued(&job), Vec::<String>::new());
    let state = job.state();
    assert!(["SUBMITTING", "REJECTED"].contains(&&*state), "{state}");
    let result = job.ends("REJECTED", 125);
    let detail = result["rejection"]["detail"].as_str().unwrap();
    assert!(detail.contains("its submission broke off"), "{result}");
}

pub(crate) fn i2_an_array_that_nobody_wrote_down_goes_with_the_others(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    at_call(
        &user,
        "sbatch",
        2,
        &format!("REAL \"$@\" >/dev/null; {KILL}"),
    );
    let job = submit_and_die(&user, three_arrays());
    let why = user.ask(&["why", &job.id]);
    assert!(why.out.contains("broke off"), "{why:?}");
    assert_eq!(queued(&job), Vec::<String>::new());
    job.ends("REJECTED", 125);
}

pub(crate) fn i2_a_submission_that_was_killed_when_all_was_there_goes_on(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    user.replace(
        "scontrol",
        &format!("case $1 in release) {KILL};; esac; exec REAL \"$@\""),
    );
    let job = submit_and_die(&user, three_arrays());
    user.put_back("scontrol");
    let result = job.ends("SUCCEEDED", 0);
    assert_eq!(result["tasks"]["succeeded"], 12, "{result}");
}

pub(crate) fn i2_a_job_whose_submission_was_killed_is_found(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let go = user.path("go").display().to_string();
    at_call(
        &user,
        "sbatch",
        1,
        &format!("REAL \"$@\" >/dev/null; {KILL}"),
    );
    let run = format!("echo once; while [ ! -e {go} ]; do sleep 0.1; done");
    let job = submit_and_die(&user, json!({"name": "job", "run": run}));
    job.await_state("RUNNING");
    assert!(job.in_slurm().contains(&job.id));
    user.touch("go");
    job.ends("SUCCEEDED", 0);
    assert_eq!(job.log(), "once\n");
}

pub(crate) fn a_job_that_never_reached_slurm_ends(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    at_call(&user, "sbatch", 1, KILL);
    let job = submit_and_die(&user, json!({"name": "job", "run": "true"}));
    job.ends("REJECTED", 125);
    assert_eq!(queued(&job), Vec::<String>::new());
}

pub(crate) fn cancel_ends_a_job_whose_submission_was_killed(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    at_call(&user, "sbatch", 3, KILL);
    let job = submit_and_die(&user, three_arrays());
    let answer = user.ask(&["cancel", &job.id]);
    assert_eq!(answer.code, 0, "{answer:?}");
    within(DEADLINE, "the end of the arrays", || {
        queued(&job).is_empty()
    });
    job.ends("CANCELLED", 130);
}
