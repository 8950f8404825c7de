//! What is told of a job that waits, and what is done to it.

use std::os::unix::fs::PermissionsExt as _;

use herd_testing::within;

use crate::lab::{Bench, DEADLINE};

/// A job that has all CPUs, and runs.
fn fill(bench: &Bench<'_>) -> String {
    let big = bench.submit(&["-N", "3", "-c", "8", "-J", "big", "--", "sleep", "600"]);
    within(DEADLINE, "the big job runs", || {
        bench.state(&big) == "RUNNING"
    });
    big
}

fn end(bench: &Bench<'_>, jobs: &[&str]) {
    for job in jobs {
        bench.ask(&["cancel", "--grace", "0s", job]);
        bench.ask(&["wait", job]);
    }
}

#[test]
fn build8_why_names_the_reason_the_nodes_and_what_to_change() {
    let bench = Bench::new();
    let big = fill(&bench);
    let small = bench.submit(&["-c", "4", "-J", "small", "--", "true"]);
    let mut why = serde_json::Value::Null;
    within(DEADLINE, "Slurm has looked at the job", || {
        why = bench.json(&["why", &small]);
        why["queue"]["reason"] == "Resources"
    });
    let queue = &why["queue"];
    assert_eq!(why["state"], "QUEUED");
    assert_eq!(queue["job"].to_string(), bench.number(&small));
    assert_eq!(queue["class"], "turn");
    assert_eq!(queue["charge"]["account"], "lab");
    assert_eq!(queue["nodes"]["wanted"], 1);
    assert_eq!(queue["nodes"]["fit"], 0);
    assert_eq!(queue["nodes"]["obstacles"][0]["nodes"], "node[1-3]");
    assert_eq!(queue["nodes"]["obstacles"][0]["obstacle"]["cpus"], 0);
    assert_eq!(queue["unanswered"].as_array().unwrap().len(), 0, "{why}");
    for key in ["meaning", "change"] {
        assert!(queue[key].as_str().unwrap().len() > 10, "{why}");
    }
    let said = bench.ask(&["why", &small]).out;
    for part in ["(Resources)", "too few CPUs free (0)", "change: "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // A node that is out says so, in the administrator's words.
    bench.lab.ask(&[
        "scontrol",
        "update",
        "nodename=node3",
        "state=drain",
        "reason=bad fan",
    ]);
    let said = bench.ask(&["why", &small]).out;
    bench
        .lab
        .ask(&["scontrol", "update", "nodename=node3", "state=resume"]);
    assert!(
        said.contains("node3: out of service (drain") && said.contains("bad fan, by root at 20"),
        "{said}"
    );
    end(&bench, &[&small, &big]);
    assert_eq!(bench.json(&["why", &big]).get("queue"), None);
}

#[test]
fn build8_why_understands_a_reason_that_is_a_sentence() {
    let bench = Bench::new();
    let drain = |state: &str| {
        let (state, reason) = (format!("state={state}"), "reason=bad fan");
        let words = ["scontrol", "update", "nodename=node3", &state, reason];
        bench.lab.ask(&words);
    };
    drain("drain");
    let job = bench.submit(&["-N", "3", "--", "true"]);
    let mut why = serde_json::Value::Null;
    within(DEADLINE, "Slurm has looked at the job", || {
        why = bench.json(&["why", &job]);
        why["queue"]["reason"] == "Nodes"
    });
    let queue = &why["queue"];
    assert_eq!(queue["class"], "turn", "{why}");
    assert!(
        queue["detail"].as_str().unwrap().contains("DRAINED"),
        "{why}"
    );
    let obstacle = &queue["nodes"]["obstacles"][0]["obstacle"]["out-of-service"];
    assert_eq!(obstacle[0], "drained", "{why}");
    drain("resume");
    end(&bench, &[&job]);
}

#[test]
fn build8_why_says_that_a_job_beyond_a_limit_never_starts() {
    let bench = Bench::new();
    let limit = |nodes: &str| {
        bench.limit(["qos", "low"], &format!("MaxTRESPerUser=node={nodes}"));
    };
    limit("2");
    let job = bench.submit(&["-q", "low", "-N", "3", "--", "true"]);
    let mut why = serde_json::Value::Null;
    within(DEADLINE, "Slurm has looked at the job", || {
        why = bench.json(&["why", &job]);
        why["queue"]["reason"] == "QOSMaxNodePerUserLimit"
    });
    let said = bench.ask(&["why", &job]).out;
    limit("-1");
    end(&bench, &[&job]);
    assert_eq!(why["queue"]["class"], "never", "{why}");
    let change = why["queue"]["change"].as_str().unwrap();
    assert!(change.starts_with("lower `nodes`"), "{change}");
    assert!(said.contains("never: it never starts as it is"), "{said}");
}

#[test]
fn build8_why_names_the_job_that_another_comes_after() {
    let bench = Bench::new();
    let go = bench.dir.path().join("go");
    let wait = format!(
        "while [ ! -e {} ]; do sleep 0.1; done; exit 3",
        go.display()
    );
    let first = bench.submit(&["-J", "prep", "--", "sh", "-c", &wait]);
    let file = format!("name: dep\nrun: [\"true\"]\nafter: [{first}]\n");
    bench.file("dep.yaml", &file);
    let second = bench.submit(&["dep.yaml"]);
    let mut why = serde_json::Value::Null;
    within(DEADLINE, "Slurm has looked at the job", || {
        why = bench.json(&["why", &second]);
        why["queue"]["reason"] == "Dependency"
    });
    assert_eq!(why["queue"]["after"][0]["id"], first.as_str(), "{why}");
    let said = bench.ask(&["why", &second]).out;
    assert!(said.contains("after: prep ("), "{said}");
    std::fs::write(go, "").unwrap();
    assert_eq!(bench.ask(&["wait", &second]).code, 130);
    let said = bench.ask(&["why", &second]).out;
    assert!(said.contains("ended FAILED"), "{said}");
}

#[test]
fn slurms_number_is_shown_and_finds_the_job() {
    let bench = Bench::new();
    bench.file(
        "array.yaml",
        "array: 0-5\nresources: {cpus: 8}\nrun: [sleep, \"600\"]\n",
    );
    let array = bench.submit(&["array.yaml"]);
    within(DEADLINE, "three tasks run", || {
        bench.json(&["status", &array])["tasks"]["running"] == 3
    });
    let number = bench.number(&array);
    // Of an array, the tasks that wait and the nodes of those that run are told.
    let mut said = String::new();
    within(DEADLINE, "Slurm has looked at the tasks", || {
        said = bench.ask(&["why", &array]).out;
        said.contains("tasks 3-5 wait: ")
    });
    let status = bench.ask(&["status", &array]).out;
    for part in [&format!("array {number}"), "node[1-3]"] {
        assert!(status.contains(part), "{part}: {status}");
    }
    for selector in [format!("slurm:{number}"), format!("slurm:{number}_2")] {
        let found = bench.json(&["status", &selector]);
        assert_eq!(found["id"], array.as_str(), "{selector}");
        assert_eq!(found["backend_id"], number.as_str());
    }
    let bare = bench.ask(&["status", &number]);
    assert!(bare.err.contains(&format!("slurm:{number}")), "{bare:?}");
    end(&bench, &[&array]);
    assert_eq!(bench.json(&["ls"])[0]["backend_id"], number.as_str());
}

#[test]
fn build8_why_shows_a_limit_and_what_is_used_of_it() {
    let bench = Bench::new();
    let limit = |gpus: &str| {
        bench.limit(["account", "lab"], &format!("GrpTRES=gres/gpu={gpus}"));
    };
    limit("3");
    let first = bench.submit(&["--gpus", "2", "--", "sleep", "600"]);
    within(DEADLINE, "the first job runs", || {
        bench.state(&first) == "RUNNING"
    });
    let second = bench.submit(&["--gpus", "2", "--", "true"]);
    let mut why = serde_json::Value::Null;
    within(DEADLINE, "Slurm has looked at the job", || {
        why = bench.json(&["why", &second]);
        why["queue"]["reason"] == "AssocGrpGRES"
    });
    let said = bench.ask(&["why", &second]).out;
    limit("-1");
    let limits = &why["queue"]["limits"];
    assert_eq!(limits[0]["of"], "account lab", "{why}");
    assert_eq!(limits[0]["what"], "gres/gpu");
    assert_eq!(
        (
            limits[0]["limit"].to_string(),
            limits[0]["used"].to_string()
        ),
        ("3".to_owned(), "2".to_owned())
    );
    let line = "limit: account lab: 2 of 3 gres/gpu, and the job asks for 2";
    assert!(said.contains(line), "{said}");
    end(&bench, &[&second, &first]);
}

/// Sets a limit of QOS `low`; a job has all of it and another waits. What `why` says of that one.
fn against_a_qos(limit: &str, value: &str, reason: &str) -> String {
    let bench = Bench::new();
    let set = |value: &str| {
        bench.limit(["qos", "low"], &format!("{limit}={value}"));
    };
    set(value);
    let first = bench.submit(&["-q", "low", "-c", "2", "--", "sleep", "600"]);
    within(DEADLINE, "the first job runs", || {
        bench.state(&first) == "RUNNING"
    });
    let second = bench.submit(&["-q", "low", "-c", "2", "--", "true"]);
    within(DEADLINE, "Slurm has looked at the job", || {
        bench.json(&["why", &second])["queue"]["reason"] == reason
    });
    let said = bench.ask(&["why", &second]).out;
    set(if value.contains('=') { "cpu=-1" } else { "-1" });
    end(&bench, &[&second, &first]);
    said
}

#[test]
fn build8_why_shows_what_a_qos_allows_all_its_jobs() {
    let said = against_a_qos("GrpTRES", "cpu=3", "QOSGrpCpuLimit");
    let line = "limit: QOS low: 2 of 3 cpu, and the job asks for 2";
    assert!(said.contains(line), "{said}");
}

#[test]
fn build8_why_shows_what_a_qos_allows_one_user() {
    let said = against_a_qos("MaxJobsPerUser", "1", "QOSMaxJobsPerUserLimit");
    let line = "limit: QOS low, user root: 1 of 1 running jobs, and the job asks for 1";
    assert!(said.contains(line), "{said}");
}

#[test]
fn build8_why_shows_the_fair_share_of_a_job_that_waits_for_its_turn() {
    let bench = Bench::new();
    let big = fill(&bench);
    let small = bench.submit(&["-c", "4", "--", "true"]);
    let mut why = serde_json::Value::Null;
    within(DEADLINE, "Slurm has looked at the job", || {
        why = bench.json(&["why", &small]);
        why["queue"]["class"] == "turn"
    });
    let said = bench.ask(&["why", &small]).out;
    end(&bench, &[&small, &big]);
    let shares = why["queue"]["shares"].as_array().unwrap();
    assert_eq!(shares[0]["of"], "account lab", "{why}");
    assert!(shares[1]["of"].as_str().unwrap().starts_with("user "));
    for share in shares {
        assert!(share["due"].as_f64().unwrap() > 0.0, "{why}");
        assert!(share["shares"].as_u64().unwrap() > 0, "{why}");
    }
    assert!(
        said.contains("share: account lab: 1 shares, due "),
        "{said}"
    );
}

#[test]
fn jobs_in_the_queue_are_held_released_and_requeued() {
    let bench = Bench::new();
    let big = fill(&bench);
    let small = bench.submit(&["-c", "4", "--", "true"]);
    let runs = bench.ask(&["hold", &big]);
    assert_eq!(runs.code, 125);
    assert!(
        runs.err.contains("runs already") && runs.err.contains("hint:"),
        "{}",
        runs.err
    );
    let waits = bench.ask(&["requeue", &small]);
    assert!(
        waits.err.contains("waits in the queue already"),
        "{}",
        waits.err
    );
    assert_eq!(bench.ask(&["hold", &small]).code, 0);
    assert_eq!(bench.json(&["why", &small])["queue"]["class"], "held");
    // The big job goes back and waits, and the small one does not start in its place.
    let again = bench.ask(&["requeue", "--hold", &big]);
    assert_eq!(again.code, 0, "{}", again.err);
    within(DEADLINE, "the big job is held", || {
        bench.json(&["why", &big])["queue"]["class"] == "held"
    });
    assert_eq!(bench.state(&small), "QUEUED");
    assert_eq!(bench.ask(&["release", &small]).code, 0);
    assert_eq!(bench.ask(&["wait", &small]).code, 0);
    // What the batch script prints is nobody else's.
    let output = format!("slurm-{}.out", bench.number(&small));
    let output = std::fs::metadata(bench.job_dir(&small).join(output)).unwrap();
    assert_eq!(output.permissions().mode() & 0o777, 0o600);
    assert_eq!(bench.ask(&["release", &big]).code, 0);
    within(DEADLINE, "the big job runs again", || {
        let status = bench.json(&["status", &big]);
        status["state"] == "RUNNING" && status["attempt"] == 2
    });
    end(&bench, &[&big]);
    let ended = bench.ask(&["requeue", &big]);
    assert!(ended.err.contains("has ended already"), "{}", ended.err);
}

#[test]
fn jobs_of_this_machine_are_not_held() {
    let bench = Bench::new();
    let answer = bench.ask(&["submit", "-b", "local", "--", "sleep", "600"]);
    let job = answer.out.trim();
    for command in ["hold", "release", "requeue"] {
        let refused = bench.ask(&[command, job]);
        assert_eq!(refused.code, 125);
        assert!(
            refused.err.contains("only a cluster does"),
            "{}",
            refused.err
        );
    }
    end(&bench, &[job]);
}

/// A job of low priority on all nodes, whose ranks say how they were asked to end, and take this long then.
fn preempted(bench: &Bench<'_>, seconds: &str, options: &[&str]) -> (String, String) {
    let script = "trap 'sleep $1; echo saved >saved-$HERD_RANK; exit 0' TERM; [ $HERD_ATTEMPT = 1 ] || exit 0\n\
                  touch up-$HERD_RANK; while :; do sleep 0.1; done";
    let low = ["-q", "low", "-N", "3", "-c", "8"];
    let command = ["--", "sh", "-c", script, "sh", seconds];
    let job = bench.submit(&[&low, options, &command].concat());
    within(DEADLINE, "the ranks", || {
        (0..3).all(|rank| bench.dir.path().join(format!("up-{rank}")).exists())
    });
    let mut sbatch = bench.lab.command("sbatch");
    let high = [
        "-q",
        "high",
        "-N",
        "3",
        "-c",
        "8",
        "-o",
        "/dev/null",
        "--wrap",
        "true",
    ];
    assert!(sbatch.args(high).output().unwrap().status.success());
    assert_eq!(bench.ask(&["wait", &job]).code, 0);
    let events = bench.ask(&["events", &job]).out;
    let end = bench.job_dir(&job).join("attempts/1/end");
    let end = std::fs::read_to_string(end).unwrap();
    assert!(end.contains("PREEMPTED"), "{end}");
    let attempts = bench.json(&["status", &job])["attempts"].clone();
    assert_eq!(attempts.as_array().unwrap().len(), 2, "{attempts}");
    (job, events)
}

/// Slurm's `scontrol` on a node, whose first call dies of Slurm's notice as a process of the job may.
struct Struck<'a> {
    bench: &'a Bench<'static>,
    node: &'static str,
}

impl<'a> Struck<'a> {
    const PROGRAM: &'static str = "/usr/bin/scontrol";

    fn on(bench: &'a Bench<'static>, node: &'static str) -> Self {
        let dir = bench.dir.path().display();
        let script = format!(
            "#!/bin/sh\n[ -e {dir}/struck ] || {{ touch {dir}/struck; kill -USR1 $$; }}\nexec {dir}/real \"$@\"\n"
        );
        bench.file("scontrol", &script);
        let script = bench.dir.path().join("scontrol");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let (script, real) = (script.display().to_string(), format!("{dir}/real"));
        let this = Self { bench, node };
        this.run(&["cp", Self::PROGRAM, &real]);
        this.run(&["mount", "--bind", &script, Self::PROGRAM]);
        this
    }

    fn run(&self, words: &[&str]) {
        let there = ["node", "in", self.node];
        self.bench.lab.slurm(&[&there, words].concat());
    }
}

impl Drop for Struck<'_> {
    fn drop(&mut self) {
        self.run(&["umount", "--lazy", Self::PROGRAM]);
    }
}

#[test]
fn ranks_of_a_preempted_job_have_the_whole_grace_and_the_job_runs_again() {
    let bench = Bench::new();
    let struck = Struck::on(&bench, "node1");
    // Longer than Slurm's KillWait and herd's own grace, shorter than the 15 s of the QOS.
    let (_, events) = preempted(&bench, "12", &["-t", "1h"]);
    assert!(events.contains("preempted by Slurm, 15 s"), "{events}");
    drop(struck);
    assert!(
        bench.dir.path().join("struck").exists(),
        "nothing was asked"
    );
    for rank in 0..3 {
        assert!(
            bench.dir.path().join(format!("saved-{rank}")).exists(),
            "{events}"
        );
    }
}

#[test]
fn ranks_without_a_time_limit_are_told_the_grace_of_their_qos() {
    let bench = Bench::new();
    // Slurm says no end of such jobs.
    let partition = "partitionname=unlimited";
    let words = [
        "scontrol",
        "create",
        partition,
        "nodes=ALL",
        "defaulttime=UNLIMITED",
    ];
    bench.lab.ask(&words);
    let (_, events) = preempted(&bench, "12", &["-p", "unlimited"]);
    bench.lab.ask(&["scontrol", "delete", partition]);
    assert!(events.contains("preempted by Slurm, 15 s"), "{events}");
}
