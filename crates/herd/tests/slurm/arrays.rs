//! Arrays whose tasks are those of Slurm's: each with an allocation, a driver and attempts of its own.

use std::fs;
use std::time::Instant;

use herd_testing::within;
use serde_json::{Value, json};

use crate::case;
use crate::lab::Lab;
use crate::user::{DEADLINE, Job, User};

pub(crate) fn cases() -> Vec<crate::Case> {
    vec![
        case!(arrays::i8_twenty_tasks_keep_limit_log_and_the_first_failing_code),
        case!(arrays::a_task_has_nodes_and_variables_of_its_own),
        case!(arrays::i2_requeueing_one_task_touches_that_task_alone),
        case!(arrays::a_task_that_fails_is_tried_again_alone),
        case!(arrays::i1_tasks_cancelled_from_outside_end_and_the_others_go_on),
        case!(arrays::r19_cancel_gives_running_tasks_their_grace_and_starts_no_other),
        case!(arrays::i1_tasks_whose_drivers_are_killed_end_the_job),
        case!(arrays::half_of_the_tasks_wait_and_are_held_and_released),
        case!(arrays::an_array_after_a_job_and_a_job_after_an_array),
    ]
}

/// On a cluster that takes five tasks in an array.
pub(crate) fn cases_of_small_ones() -> Vec<crate::Case> {
    vec![
        case!(arrays::an_array_that_is_too_large_is_several_of_slurms),
        case!(arrays::cancel_reaches_all_parts_of_an_array),
        case!(arrays::i4_a_lost_node_costs_one_task_its_attempt),
        case!(arrays::one_sbatch_hands_over_an_array),
    ]
}

/// A task that says that it is there and waits for `go`, or for `go-INDEX`.
fn waiting(user: &User<'_>) -> String {
    let dir = user.path("").display().to_string();
    format!(
        "touch {dir}/up-$HERD_ARRAY_INDEX-$HERD_ATTEMPT\n\
         while [ ! -e {dir}/go ] && [ ! -e {dir}/go-$HERD_ARRAY_INDEX ]; do sleep 0.1; done"
    )
}

fn counts(job: &Job<'_>) -> Value {
    job.status()["tasks"].clone()
}

/// Slurm's name of a task.
fn task(job: &Job<'_>, index: u32) -> String {
    format!("{}_{index}", job.number())
}

fn task_record(job: &Job<'_>, index: u32, name: &str) -> Value {
    job.record(&format!("tasks/0/{index}/{name}"))
}

fn logs(user: &User<'_>, words: &[&str]) -> String {
    let answer = user.ask(&[&["logs"], words].concat());
    assert_eq!(answer.code, 0, "{answer:?}");
    answer.out
}

pub(crate) fn i8_twenty_tasks_keep_limit_log_and_the_first_failing_code(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let dir = user.path("now").display().to_string();
    fs::create_dir(&dir).unwrap();
    // Each task counts how many run with it.
    let run = format!(
        "touch {dir}/$HERD_ARRAY_INDEX; sleep 0.2; ls {dir} | wc -l; rm {dir}/$HERD_ARRAY_INDEX\n\
         test $HERD_ARRAY_INDEX != 5 || exit 7"
    );
    let answer = user.run(json!({"array": "0-19%4", "run": run}));
    assert_eq!(answer.code, 7, "{answer:?}");
    let told = "19 of 20 tasks succeeded, 1 failed, exit code 7";
    assert!(answer.err.contains(told), "{answer:?}");
    assert!(answer.err.contains("task 5 failed first"), "{answer:?}");
    let job = user.last();
    let status = job.status();
    assert_eq!(status["state"], "FAILED", "{status}");
    assert_eq!(status["tasks"]["succeeded"], 19, "{status}");
    assert_eq!(status["tasks"]["failed_tasks"], "5", "{status}");
    assert_eq!(status["failure"]["index"], 5, "{status}");
    let all = logs(&user, &[&job.id]);
    for index in 0..20 {
        let number = index.to_string();
        let own = logs(&user, &[&job.id, "--task", &number]);
        let at_once: u32 = own.trim().parse().unwrap_or_else(|_| panic!("{own:?}"));
        assert!((1..=4).contains(&at_once), "task {index}: {at_once}");
        let line = format!("(task {index}) {at_once}\n");
        assert!(all.contains(&line) && answer.out.contains(&line), "{all}");
    }
    assert_eq!(all.lines().count(), 20);
    assert_eq!(answer.out.lines().count(), 20);
    assert_eq!(logs(&user, &[&job.id, "--tail", "3"]).lines().count(), 3);
    // One job of Slurm for each task, and no file that two of them write.
    let runs: std::collections::BTreeSet<String> = (0..20)
        .map(|index| task_record(&job, index, "attempts/1/owner")["backend_id"].to_string())
        .collect();
    assert_eq!(runs.len(), 20);
    job.gone();
}

pub(crate) fn a_task_has_nodes_and_variables_of_its_own(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(json!({
        "array": "3,7",
        "nodes": 2,
        "resources": {"cpus": 2},
        "run": "echo $HERD_RANK/$HERD_WORLD_SIZE $HERD_ARRAY_INDEX $SLURM_ARRAY_TASK_ID \
                $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_COUNT $SLURM_JOB_NUM_NODES",
    }));
    job.ends("SUCCEEDED", 0);
    let number = job.number();
    for index in [3, 7] {
        let own = logs(&user, &[&job.id, "--task", &index.to_string()]);
        for rank in 0..2 {
            let line = format!(
                "(task {index}, node{rank}, rank={rank}) {rank}/2 {index} {index} {number} 2 2\n"
            );
            assert!(own.contains(&line), "{line}{own}");
        }
        let one = logs(
            &user,
            &[&job.id, "--task", &index.to_string(), "--rank", "1"],
        );
        assert_eq!(one.lines().count(), 1, "{one}");
    }
    let absent = user.ask(&["logs", &job.id, "--task", "4"]);
    assert!(absent.err.contains("the job has tasks 3,7"), "{absent:?}");
}

pub(crate) fn i2_requeueing_one_task_touches_that_task_alone(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(json!({"array": "0-2", "run": waiting(&user)}));
    for index in 0..3 {
        user.await_file(&format!("up-{index}-1"));
    }
    lab.ask(&["scontrol", "requeue", &task(&job, 1)]);
    within(DEADLINE, "the end of its first attempt", || {
        task_record(&job, 1, "attempts/1/end")["state"] == "PREEMPTED"
    });
    // It waits, and the others run.
    let status = job.status();
    assert_eq!(status["state"], "RUNNING", "{status}");
    user.await_file("up-1-2");
    user.touch("go");
    let result = job.ends("SUCCEEDED", 0);
    assert_eq!(result["tasks"]["succeeded"], 3, "{result}");
    let attempts: Vec<Value> = (0..3)
        .map(|index| task_record(&job, index, "result.json")["attempts"].clone())
        .collect();
    assert_eq!(attempts, [1, 2, 1]);
    let events = user.ask(&["events", &job.id, "-o", "json"]).out;
    let preempted = events.lines().filter(|line| line.contains("PREEMPTED"));
    let of: Vec<Value> = preempted
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["task"].clone())
        .collect();
    assert!(of.iter().all(|task| *task == 1), "{events}");
    job.gone();
}

pub(crate) fn a_task_that_fails_is_tried_again_alone(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(json!({
        "array": "0-2",
        "retry": {"max": 1, "on": ["exit:75"], "backoff": "1s"},
        "run": "echo attempt $HERD_ATTEMPT; [ $HERD_ARRAY_INDEX = 0 ] || [ $HERD_ATTEMPT -gt $HERD_ARRAY_INDEX ] || exit 75",
    }));
    // 0 succeeds, 1 at its second attempt, 2 never.
    let result = job.ends("FAILED", 75);
    assert_eq!(result["tasks"]["succeeded"], 2, "{result}");
    assert_eq!(result["failure"]["index"], 2, "{result}");
    assert_eq!(result["attempts"], 2, "{result}");
    for (index, attempts) in [(0, 1), (1, 2), (2, 2)] {
        let ended = task_record(&job, index, "result.json");
        assert_eq!(ended["attempts"], attempts, "{ended}");
    }
    let own = logs(&user, &[&job.id, "--task", "1"]);
    assert_eq!(own, "attempt 1\nattempt 2\n");
    job.gone();
}

pub(crate) fn i1_tasks_cancelled_from_outside_end_and_the_others_go_on(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(json!({"array": "0-5%2", "run": waiting(&user)}));
    user.await_file("up-0-1");
    user.await_file("up-1-1");
    // One that runs and one that waits, of which Slurm keeps no trace.
    lab.ask(&["scancel", &task(&job, 0), &task(&job, 4)]);
    // Where its driver could not find out why it was ended, whoever looks does.
    within(DEADLINE, "the end of the task", || {
        counts(&job)["stopped"] == 1
    });
    assert!(!job.record("result.json").is_object());
    user.touch("go");
    let result = job.ends("CANCELLED", 130);
    assert_eq!(result["tasks"]["succeeded"], 4, "{result}");
    assert_eq!(result["tasks"]["stopped"], 1, "{result}");
    assert_eq!(result["reason"], "2 of 6 tasks were cancelled", "{result}");
    let status = job.status();
    assert_eq!(status["tasks"]["not_started_tasks"], "4", "{status}");
    job.gone();
}

pub(crate) fn r19_cancel_gives_running_tasks_their_grace_and_starts_no_other(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let dir = user.path("").display().to_string();
    // Longer than Slurm's own patience (KillWait).
    let run = format!(
        "trap 'touch {dir}/asked-$HERD_ARRAY_INDEX; sleep 12; touch {dir}/saved-$HERD_ARRAY_INDEX; exit 0' TERM\n\
         touch {dir}/up-$HERD_ARRAY_INDEX\nwhile :; do sleep 0.1 || :; done"
    );
    let job = user.submit(json!({"array": "0-9%2", "run": run}));
    user.await_file("up-0");
    user.await_file("up-1");
    let began = Instant::now();
    let answer = user.ask(&["cancel", &job.id, "--grace", "60s"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(began.elapsed() < DEADLINE / 6, "{:?}", began.elapsed());
    let result = job.ends("CANCELLED", 130);
    assert_eq!(result["reason"], "asked for by herd cancel", "{result}");
    assert!(
        user.has("saved-0") && user.has("saved-1"),
        "{}",
        job.story()
    );
    assert!(!user.has("up-2"));
    let status = job.status();
    assert_eq!(status["tasks"]["not_started_tasks"], "2-9", "{status}");
    assert_eq!(status["tasks"]["stopped_tasks"], "0-1", "{status}");
    job.gone();
}

pub(crate) fn i1_tasks_whose_drivers_are_killed_end_the_job(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(json!({"array": "0-1", "run": waiting(&user)}));
    user.await_file("up-0-1");
    user.await_file("up-1-1");
    for pid in job.drivers() {
        let pid = nix::unistd::Pid::from_raw(pid);
        let _gone = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
    // Slurm's answer is all that is left.
    let code = job.wait();
    let result = job.record("result.json");
    assert!(code >= 125, "{result}\n{}", job.story());
    for index in 0..2 {
        let ended = task_record(&job, index, "result.json");
        assert!(ended.is_object(), "{ended}");
        let end = task_record(&job, index, "attempts/1/end");
        assert_eq!(end["state"], ended["state"], "{end} {ended}");
    }
    job.gone();
}

pub(crate) fn half_of_the_tasks_wait_and_are_held_and_released(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(json!({"array": "0-7%4", "run": waiting(&user)}));
    for index in 0..4 {
        user.await_file(&format!("up-{index}-1"));
    }
    let tasks = counts(&job);
    assert_eq!(tasks["running"], 4, "{tasks}");
    assert_eq!(tasks["not_started_tasks"], "4-7", "{tasks}");
    within(DEADLINE, "Slurm has looked at those that wait", || {
        let why = user.ask(&["why", &job.id, "-o", "json"]);
        why.out.contains("JobArrayTaskLimit")
    });
    assert_eq!(user.ask(&["hold", &job.id]).code, 0);
    for index in 0..4 {
        user.touch(&format!("go-{index}"));
    }
    within(DEADLINE, "those that ran to end", || {
        counts(&job)["succeeded"] == 4
    });
    let held = user.ask(&["status", &job.id]);
    assert!(
        held.out.contains("QUEUED") && held.out.contains("held"),
        "{held:?}"
    );
    assert!(!user.has("up-4-1"));
    user.touch("go");
    assert_eq!(user.ask(&["release", &job.id]).code, 0);
    let result = job.ends("SUCCEEDED", 0);
    assert_eq!(result["tasks"]["succeeded"], 8, "{result}");
    job.gone();
}

pub(crate) fn an_array_after_a_job_and_a_job_after_an_array(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let run = waiting(&user);
    let first = user.submit(json!({"run": run}));
    let array = user
        .submit(json!({"array": "0-2", "after": [first.id], "run": "[ $HERD_ARRAY_INDEX = 0 ]"}));
    let any = user.submit(json!({"after": [{"job": array.id, "when": "any"}], "run": "true"}));
    let ok = user.submit(json!({"after": [array.id], "run": "true"}));
    array.await_state("QUEUED");
    let waits = array.in_slurm();
    let after = format!("Dependency=afterok:{}", first.number());
    assert!(waits.contains(&after), "{waits}");
    user.touch("go");
    let result = array.ends("FAILED", 1);
    assert_eq!(result["tasks"]["succeeded"], 1, "{result}");
    any.ends("SUCCEEDED", 0);
    ok.ends("CANCELLED", 130);
}

pub(crate) fn an_array_that_is_too_large_is_several_of_slurms(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let dir = user.path("now").display().to_string();
    fs::create_dir(&dir).unwrap();
    let run = format!(
        "touch {dir}/$HERD_ARRAY_INDEX; sleep 0.2; ls {dir} | wc -l; rm {dir}/$HERD_ARRAY_INDEX\n\
         echo $HERD_ARRAY_INDEX $SLURM_ARRAY_TASK_ID"
    );
    let job = user.submit(json!({"array": "0-11%2", "run": run}));
    let result = job.ends("SUCCEEDED", 0);
    assert_eq!(result["tasks"]["succeeded"], 12, "{result}");
    let parts = job.record("slurm.json")["parts"].clone();
    let tasks: Vec<&str> = parts
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["tasks"].as_str().unwrap())
        .collect();
    assert_eq!(tasks, ["0-4", "0-4", "0-1"], "{parts}");
    for index in 0..12 {
        let own = logs(&user, &[&job.id, "--task", &index.to_string()]);
        let (at_once, indices) = own.split_once('\n').unwrap();
        assert!(["1", "2"].contains(&at_once), "task {index}: {at_once}");
        assert_eq!(indices, format!("{index} {index}\n"));
    }
    let file = user.file("job.yaml", json!({"array": "0-11%2", "run": "true"}));
    let script = user.ask(&["render", &file]).out;
    assert!(script.contains("#SBATCH --array=0-4%2\n"), "{script}");
    assert!(script.contains("2 more scripts"), "{script}");
}

pub(crate) fn cancel_reaches_all_parts_of_an_array(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    // Each part has a task that runs.
    let job = user.submit(json!({"array": "3,7,11", "run": waiting(&user)}));
    for index in [3, 7, 11] {
        user.await_file(&format!("up-{index}-1"));
    }
    assert_eq!(user.ask(&["cancel", &job.id]).code, 0);
    let result = job.ends("CANCELLED", 130);
    assert_eq!(result["tasks"]["stopped"], 3, "{result}");
    job.gone();
}

pub(crate) fn i4_a_lost_node_costs_one_task_its_attempt(lab: &Lab) {
    // It takes three nodes whole, and needs a fourth.
    let _alone = lab.alone();
    let user = User::new(lab);
    let job = user.submit(json!({
        "array": "0-2",
        "resources": {"cpus": 8},
        "run": waiting(&user),
    }));
    for index in 0..3 {
        user.await_file(&format!("up-{index}-1"));
    }
    let host = task_record(&job, 1, "attempts/1/driver.json")["host"].clone();
    let node = host.as_str().unwrap().to_owned();
    lab.slurm(&["node", "cut", &node]);
    // Slurm gives the node up, after a minute if nobody tells it, and gives the task another one.
    let of = format!("nodename={node}");
    lab.ask(&["scontrol", "update", &of, "state=down", "reason=cut"]);
    user.await_file("up-1-2");
    let end = task_record(&job, 1, "attempts/1/end");
    assert_eq!(end["state"], "PREEMPTED", "{end}");
    // What still runs there is of an attempt that nobody obeys.
    user.touch("go-1");
    within(DEADLINE, "the end of the second attempt", || {
        task_record(&job, 1, "result.json")["attempts"] == 2
    });
    lab.slurm(&["node", "join", &node]);
    lab.ask(&["scontrol", "update", &of, "state=resume"]);
    user.touch("go");
    let result = job.ends("SUCCEEDED", 0);
    assert_eq!(result["tasks"]["succeeded"], 3, "{result}");
    for (index, attempts) in [(0, 1), (1, 2), (2, 1)] {
        let ended = task_record(&job, index, "result.json");
        assert_eq!(ended["attempts"], attempts, "{ended}");
        assert_eq!(ended["state"], "SUCCEEDED", "{ended}");
    }
    job.gone_within(DEADLINE);
}

pub(crate) fn one_sbatch_hands_over_an_array(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let calls = user.path("calls").display().to_string();
    for program in ["sbatch", "scontrol", "squeue", "srun", "scancel"] {
        user.replace(
            program,
            &format!("echo {program} >>{calls}\nexec REAL \"$@\""),
        );
    }
    let of = |job: Value| {
        fs::write(&calls, "").unwrap();
        let file = user.file("job.yaml", job);
        let answer = user.ask(&["submit", "-b", "slurm", &file]);
        assert_eq!(answer.code, 0, "{answer:?}");
        let said = fs::read_to_string(&calls).unwrap();
        user.ask(&["cancel", answer.out.trim()]);
        said.lines()
            .filter(|line| *line == "sbatch" || *line == "scontrol")
            .count()
    };
    // The same questions, and one submission.
    assert_eq!(
        of(json!({"array": "0-4", "run": "true"})),
        of(json!({"run": "true"}))
    );
    user.put_back("sbatch");
}
