//! Jobs that are ended or started again from outside.

use std::fs;
use std::time::Duration;

use herd_runtime::executor::LEASE;
use herd_testing::within;
use serde_json::{Value, json};

use crate::case;
use crate::lab::Lab;
use crate::user::{DEADLINE, Job, User};

pub(crate) fn cases() -> Vec<crate::Case> {
    vec![
        case!(cancel::r19_cancelled_in_the_queue),
        case!(cancel::r19_cancelled_in_setup_and_in_run_with_grace),
        case!(cancel::r19_scancel_from_outside_cancels_with_grace),
        case!(cancel::r19_scancel_in_the_queue_and_in_setup_cancels),
        case!(cancel::i2_requeued_from_outside_is_the_next_attempt),
        case!(cancel::i2_requeued_in_setup_begins_with_setup),
        case!(cancel::i1_a_requeue_at_the_end_changes_no_result),
        case!(cancel::r22_i5_a_driver_that_is_killed_is_the_end),
        case!(cancel::the_jobs_own_time_limit_ends_it),
        case!(cancel::slurms_time_limit_ends_it),
    ]
}

/// A rank that says how it was asked to end, after it has said that it is there.
fn trapping(user: &User<'_>) -> String {
    let dir = user.path("").display().to_string();
    // Without a process of its own: Slurm and herd both send the signal, and the second one would end that.
    format!(
        "trap ': >{dir}/asked-$HERD_RANK; exit 0' TERM\ntouch {dir}/up-$HERD_RANK\n\
         while :; do sleep 0.1 || :; done"
    )
}

fn await_ranks(user: &User<'_>, ranks: u32) {
    for rank in 0..ranks {
        user.await_file(&format!("up-{rank}"));
    }
}

pub(crate) fn r19_cancelled_in_the_queue(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let go = user.path("go");
    let first =
        user.submit(json!({"run": format!("while [ ! -e {} ]; do sleep 0.1; done", go.display())}));
    let job = user.submit(json!({"run": "true", "after": [first.id]}));
    job.await_state("QUEUED");
    assert_eq!(user.ask(&["cancel", &job.id]).code, 0);
    let result = job.ends("CANCELLED", 130);
    assert_eq!(result["reason"], "asked for by herd cancel");
    assert_eq!(job.status()["why"], "asked for by herd cancel");
    user.touch("go");
    first.ends("SUCCEEDED", 0);
}

pub(crate) fn r19_cancelled_in_setup_and_in_run_with_grace(lab: &Lab) {
    let _shared = lab.shared();
    for phase in ["setup", "run"] {
        let user = User::new(lab);
        let mut job = json!({"nodes": 2, "run": "touch never; sleep 600"});
        job[phase] = if phase == "setup" {
            json!({"on": "each", "run": trapping(&user)})
        } else {
            trapping(&user).into()
        };
        let job = user.submit(job);
        await_ranks(&user, 2);
        assert_eq!(user.ask(&["cancel", &job.id]).code, 0);
        job.ends("CANCELLED", 130);
        assert!(user.has("asked-0") && user.has("asked-1"), "{phase}");
        job.gone();
    }
}

pub(crate) fn r19_scancel_from_outside_cancels_with_grace(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(json!({"nodes": 2, "run": trapping(&user)}));
    // Slurm signals every process of these, and whose turn comes first differs. A shell tells of the signal
    // by its code.
    let dir = user.path("").display().to_string();
    let others = [0, 1, 2].map(|index| {
        let run = format!("touch {dir}/other-{index}; sleep 300; exit $?");
        user.submit(json!({"run": run}))
    });
    await_ranks(&user, 2);
    for index in 0..3 {
        user.await_file(&format!("other-{index}"));
    }
    // Each rank gets the signal once, from Slurm or from herd, however Slurm tracks processes.
    let counting = user.submit(json!({"nodes": 2, "run": format!(
        "told={dir}/told-$HERD_RANK\ntrap 'echo TERM >> $told' TERM\nsleep 1; touch {dir}/counts-$HERD_RANK\n\
         while [ ! -e $told ]; do sleep 0.1 || :; done\nsleep 2 || :"
    )}));
    user.await_file("counts-0");
    user.await_file("counts-1");
    let all = others.iter().chain([&job, &counting]);
    let numbers: Vec<String> = all.clone().map(Job::number).collect();
    let numbers = numbers.iter().map(String::as_str);
    lab.ask(&["scancel"].into_iter().chain(numbers).collect::<Vec<_>>());
    for job in all {
        let result = job.ends("CANCELLED", 130);
        by_root(&result, job);
        let end = job.record("attempts/1/end");
        assert_eq!(end["state"], "CANCELLED", "{}", job.story());
        assert!(!job.story().contains("starts it again"), "{}", job.story());
    }
    assert!(user.has("asked-0") && user.has("asked-1"));
    for rank in 0..2 {
        let told = fs::read_to_string(user.path(&format!("told-{rank}"))).unwrap();
        assert_eq!(told, "TERM\n", "{}", counting.story());
    }
    job.gone();
}

pub(crate) fn r19_scancel_in_the_queue_and_in_setup_cancels(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let setup = json!({"on": "each", "run": trapping(&user)});
    let first = user.submit(json!({"nodes": 2, "setup": setup, "run": "echo never"}));
    let queued = user.submit(json!({"run": "echo never", "after": [first.id]}));
    await_ranks(&user, 2);
    queued.await_state("QUEUED");
    lab.ask(&["scancel", &queued.number()]);
    let accounting = ["sacct", "-n", "-X", "-P", "-o", "State", "-j"];
    within(DEADLINE, "the word of accounting", || {
        let number = queued.number();
        let state = lab.ask(&[&accounting[..], &[&number]].concat());
        state.trim() == "CANCELLED by 0"
    });
    let result = queued.ends("CANCELLED", 130);
    assert_eq!(result["reason"], "cancelled in Slurm by root", "{result}");
    lab.ask(&["scancel", &first.number()]);
    first.wait();
    let result = first.record("result.json");
    assert_eq!(result["state"], "CANCELLED", "{}", first.story());
    by_root(&result, &first);
    assert!(user.has("asked-0") && user.has("asked-1"));
    for job in [first, queued] {
        assert!(!job.log().contains("never"));
        job.gone();
    }
}

pub(crate) fn i2_requeued_in_setup_begins_with_setup(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let dir = user.path("").display().to_string();
    let setup =
        format!("[ $HERD_ATTEMPT = 1 ] || exit 0; touch {dir}/up-$HERD_NODE_RANK; sleep 600");
    let job =
        user.submit(json!({"nodes": 2, "setup": {"on": "each", "run": setup}, "run": "echo ran"}));
    await_ranks(&user, 2);
    lab.ask(&["scontrol", "requeue", &job.number()]);
    let result = job.ends("SUCCEEDED", 0);
    assert_eq!(result["attempts"], 2, "{result}");
    let first = job.record("attempts/1/end");
    assert_eq!(first["state"], "PREEMPTED", "{}", job.story());
    assert_eq!(job.log().matches(") ran\n").count(), 2);
    job.gone();
}

/// Waits until Slurm has run the job for the last time, and well.
fn completed(job: &Job<'_>, restarts: &str) {
    within(DEADLINE, "the end of the last run", || {
        let said = job.in_slurm();
        said.contains("JobState=COMPLETED") && said.contains(&format!("Restarts={restarts}"))
    });
}

pub(crate) fn i1_a_requeue_at_the_end_changes_no_result(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let say = "echo attempt $HERD_ATTEMPT";
    // One that has ended; one whose rank asks for it as the last thing it does; one just before.
    let ended = user.submit(json!({"run": say}));
    let asks = [
        format!("{say}; exec scontrol requeue $SLURM_JOB_ID"),
        format!("{say}; setsid --fork scontrol requeue $SLURM_JOB_ID >/dev/null 2>&1; exit 0"),
    ];
    let once = |ask: &String| format!("[ $HERD_ATTEMPT = 1 ] || {{ {say}; exit 0; }}; {ask}");
    let racing = asks
        .each_ref()
        .map(|ask| user.submit(json!({"run": once(ask)})));
    let result = ended.ends("SUCCEEDED", 0);
    within(DEADLINE, "the end in Slurm", || {
        ended.in_slurm().contains("JobState=COMPLETED")
    });
    lab.ask(&["scontrol", "requeue", &ended.number()]);
    assert_eq!(ended.state(), "SUCCEEDED");
    completed(&ended, "1");
    assert_eq!(ended.record("result.json"), result);
    assert_eq!(ended.log(), "attempt 1\n");
    assert!(!ended.dir.join("attempts/2").exists());
    ended.gone();
    for job in racing {
        let result = job.ends("SUCCEEDED", 0);
        // One that had ended was not requeued, or did nothing when it ran again.
        completed(&job, "");
        assert_eq!(job.record("result.json"), result);
        // Either it had ended, or it was preempted and ran again: never both.
        let attempts = result["attempts"].as_u64().unwrap();
        let first = job.record("attempts/1/end")["state"].clone();
        let log = job.log();
        match attempts {
            1 => assert_eq!((first, &*log), (json!("SUCCEEDED"), "attempt 1\n")),
            2 => assert_eq!(
                (first, &*log),
                (json!("PREEMPTED"), "attempt 1\nattempt 2\n")
            ),
            _ => panic!("{result}\n{}", job.story()),
        }
        assert!(!job.dir.join(format!("attempts/{}", attempts + 1)).exists());
        job.gone();
    }
}

pub(crate) fn i2_requeued_from_outside_is_the_next_attempt(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let dir = user.path("").display().to_string();
    let job = user.submit(json!({
        "nodes": 2,
        "run": format!("echo attempt $HERD_ATTEMPT of $SLURM_JOB_ID; [ $HERD_ATTEMPT = 1 ] || exit 0\ntouch {dir}/up-$HERD_RANK; sleep 600"),
    }));
    let by_herd = user.submit(json!({
        "run": format!("[ $HERD_ATTEMPT = 1 ] || exit 0\ntouch {dir}/by-herd; sleep 600"),
    }));
    await_ranks(&user, 2);
    user.await_file("by-herd");
    let number = job.number();
    lab.ask(&["scontrol", "requeue", &number]);
    assert_eq!(user.ask(&["requeue", &by_herd.id]).code, 0);
    for (job, why) in [
        (&job, "requeued in Slurm"),
        (&by_herd, "requeued by herd requeue"),
    ] {
        within(DEADLINE, "the end of the first attempt", || {
            job.record("attempts/1/end").is_object()
        });
        let told = job.record("attempts/1/end")["why"].to_string();
        assert!(told.contains(why), "{told}\n{}", job.story());
        let events = user.ask(&["events", &job.id]).out;
        assert!(!events.contains("by signal 15"), "{events}");
    }
    by_herd.ends("SUCCEEDED", 0);
    let result = job.ends("SUCCEEDED", 0);
    assert_eq!(result["attempts"], 2, "{result}");
    assert_eq!(
        job.record("attempts/1/end")["state"],
        "PREEMPTED",
        "{}",
        job.story()
    );
    for attempt in 1..=2 {
        assert_eq!(
            job.log()
                .matches(&format!("attempt {attempt} of {number}\n"))
                .count(),
            2
        );
        let own = job
            .dir
            .join(format!("attempts/{attempt}/ranks/1/stdout.log"));
        assert_eq!(
            fs::read_to_string(own).unwrap(),
            format!("attempt {attempt} of {number}\n")
        );
        let owner = fs::read_to_string(job.dir.join(format!("attempts/{attempt}/owner"))).unwrap();
        assert!(
            owner.contains(&format!("slurm:{number}.{}\"", attempt - 1)),
            "{owner}"
        );
    }
    job.gone();
}

pub(crate) fn r22_i5_a_driver_that_is_killed_is_the_end(lab: &Lab) {
    let _shared = lab.shared();
    // The guard, what it guards, and both, which leaves the executors to their lease.
    for which in [vec![0], vec![1], vec![0, 1]] {
        let user = User::new(lab);
        let job = user.submit(json!({"nodes": 2, "run": trapping(&user)}));
        await_ranks(&user, 2);
        let mut drivers = job.drivers();
        drivers.sort_unstable();
        assert_eq!(drivers.len(), 2, "{drivers:?}");
        for index in &which {
            // The second may have followed the first.
            let pid = nix::unistd::Pid::from_raw(drivers[*index]);
            let _gone = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        // The lease and two seconds, and a loaded machine.
        job.gone_within(5 * (LEASE + Duration::from_secs(2)));
        let code = job.wait();
        let result = job.record("result.json");
        assert!(code >= 125, "{which:?}: {result}");
        assert!(
            ["FAILED", "CANCELLED"].contains(&result["state"].as_str().unwrap()),
            "{result}"
        );
        job.gone();
    }
}

pub(crate) fn the_jobs_own_time_limit_ends_it(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(json!({"nodes": 2, "walltime": "8s", "run": trapping(&user)}));
    let result = job.ends("FAILED", 124);
    assert!(
        result["failure"].to_string().contains("time-limit"),
        "{result}"
    );
    job.gone();
}

pub(crate) fn slurms_time_limit_ends_it(lab: &Lab) {
    let _shared = lab.shared();
    let user = User::new(lab);
    let job = user.submit(json!({"nodes": 2, "run": trapping(&user)}));
    await_ranks(&user, 2);
    limit(lab, &job);
    let result = job.ends("FAILED", 124);
    assert!(
        result["failure"].to_string().contains("time-limit"),
        "{result}"
    );
    assert!(user.has("asked-0") && user.has("asked-1"));
    job.gone();
}

/// Slurm looks at limits every 30 s, and takes none below a minute.
fn limit(lab: &Lab, job: &Job<'_>) {
    lab.ask(&[
        "scontrol",
        "update",
        &format!("JobId={}", job.number()),
        "TimeLimit=1",
    ]);
    within(DEADLINE, "the limit", || {
        job.in_slurm().contains("TimeLimit=00:01:00")
    });
}

/// Accounting, which tells who it was, may be late, or not be there.
fn by_root(result: &Value, job: &Job<'_>) {
    let reason = result["reason"].as_str().unwrap_or_default();
    assert!(
        ["cancelled in Slurm", "cancelled in Slurm by root"].contains(&reason),
        "{result} {}",
        job.story()
    );
}
