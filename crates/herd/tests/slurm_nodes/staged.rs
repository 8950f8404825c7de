//! Nodes that share no directory with the submitting side: program, plan, workdir and secrets get there, and
//! output, records and codes get back.

use std::fs;
use std::process::Command;

use herd_testing::within;
use serde_json::json;

use crate::lab::{Cluster, DEADLINE, User, seen_by_all};

/// A rank that says how it was asked to end, after it has said that it is there. Slurm signals one process after
/// the other: where that of `sleep` comes first, the script must not end by it.
const TRAPPING: &str = "trap 'echo rank $HERD_RANK was asked; exit 0' TERM\n\
    echo rank $HERD_RANK is up; while :; do sleep 0.1 || :; done";

#[test]
fn i7_i8_output_and_code_of_a_first_job_arrive() {
    let user = User::of(Cluster::shared());
    let shared = seen_by_all();
    let said = shared.path().display();
    let job = user.submit(json!({
        "nodes": 3,
        "run": format!(
            "echo out $HERD_RANK on $SLURMD_NODENAME; echo err >&2; touch {said}/$HERD_RANK\n\
             [ $HERD_RANK = 2 ] || exit 0\n\
             until [ -e {said}/0 ] && [ -e {said}/1 ]; do sleep 0.1; done; exit 7"
        ),
    }));
    let result = job.ends("FAILED", 7);
    assert!(
        result["failure"].to_string().contains("\"rank\":2"),
        "{result}"
    );
    let log = job.text("run.log");
    for rank in 0..3 {
        assert!(
            log.contains(&format!("rank={rank}) out {rank} on node")),
            "{log}"
        );
        let own = job.text(&format!("attempts/1/ranks/{rank}/stdout.log"));
        assert!(own.starts_with(&format!("out {rank} on node")), "{own}");
        assert_eq!(
            job.text(&format!("attempts/1/ranks/{rank}/stderr.log")),
            "err\n"
        );
    }
    let shown = user.ask(&["logs", &job.id, "--rank", "1", "--stream", "stderr"]);
    assert!(shown.out.contains("err\n"), "{shown:?}");
    job.leaves_nothing();
}

#[test]
fn a_workdir_goes_along_and_ranks_meet() {
    let user = User::of(Cluster::shared());
    let work = user.path("work");
    fs::create_dir_all(work.join("lib")).unwrap();
    let script = "import os, socket\n\
        import lib.words as words\n\
        rank, port = int(os.environ['RANK']), int(os.environ['MASTER_PORT'])\n\
        if rank == 0:\n\
        \x20   with socket.create_server((os.environ['MASTER_ADDR'], port)) as server:\n\
        \x20       peers = [server.accept()[0] for _ in range(int(os.environ['WORLD_SIZE']) - 1)]\n\
        \x20       print(words.MET, sorted(peer.recv(9).decode() for peer in peers))\n\
        else:\n\
        \x20   for _ in range(600):\n\
        \x20       try:\n\
        \x20           peer = socket.create_connection((os.environ['MASTER_ADDR'], port))\n\
        \x20           break\n\
        \x20       except OSError:\n\
        \x20           __import__('time').sleep(0.1)\n\
        \x20   peer.sendall(str(rank).encode())\n";
    fs::write(work.join("train.py"), script).unwrap();
    fs::write(work.join("lib/words.py"), "MET = 'met'\n").unwrap();
    fs::write(work.join("big.bin"), "x").unwrap();
    fs::write(work.join(".herdignore"), "*.bin\n").unwrap();
    let job = user.submit(json!({
        "type": "pytorch",
        "nodes": 2,
        "procs_per_node": 2,
        "workdir": work.to_str().unwrap(),
        "run": "ls; python3 -B train.py",
    }));
    job.ends("SUCCEEDED", 0);
    let log = job.text("run.log");
    assert!(log.contains("met ['1', '2', '3']"), "{log}");
    assert!(!log.contains("big.bin"), "{log}");
    job.leaves_nothing();
    assert!(!job.dir.join("work.tar").exists());
}

#[test]
fn what_a_job_leaves_in_its_directory_of_work_comes_back() {
    let user = User::of(Cluster::shared());
    let work = user.path("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("rate.txt"), "0.1").unwrap();
    let shared = seen_by_all();
    let go = shared.path().join("go");
    let job = user.submit(json!({
        "nodes": 2,
        "workdir": work.to_str().unwrap(),
        "run": format!(
            "mkdir -p out; ln -s model.pt out/last; head -c 3000000 /dev/zero >out/model.pt; echo $HERD_RANK >rank\n\
             until [ -e {} ]; do sleep 0.1; done",
            go.display()
        ),
    }));
    let early = user.ask(&["get", &job.id, "early"]);
    assert_eq!(early.code, 125, "{early:?}");
    assert!(early.err.contains("comes back when it has"), "{early:?}");
    fs::write(go, "").unwrap();
    job.ends("SUCCEEDED", 0);
    let got = user.ask(&["get", &job.id, "results"]);
    assert_eq!(got.code, 0, "{got:?}");
    let text = |name: &str| fs::read_to_string(user.path("results").join(name)).unwrap();
    // That of the first node.
    assert_eq!(
        (text("rank").as_str(), text("rate.txt").as_str()),
        ("0\n", "0.1")
    );
    assert_eq!(
        fs::metadata(user.path("results/out/last")).unwrap().len(),
        3_000_000
    );
    assert!(!work.join("rank").exists());
    job.leaves_nothing();
    // One that nobody asked to be taken along begins empty, and comes back too.
    let bare = user.submit(json!({"run": "ls -A; echo result >model.pt; exit 3"}));
    bare.ends("FAILED", 3);
    assert_eq!(bare.text("run.log"), "");
    assert_eq!(user.ask(&["get", &bare.id, "bare"]).code, 0);
    assert_eq!(
        fs::read_to_string(user.path("bare/model.pt")).unwrap(),
        "result\n"
    );
    bare.leaves_nothing();
}

#[test]
fn a_directory_of_work_that_is_too_large_stays_on_its_node_and_that_is_said() {
    let user = User::of(Cluster::shared());
    let job = user.submit(json!({"run": "truncate -s 1200M big; echo small >small"}));
    job.ends("SUCCEEDED", 0);
    let got = user.ask(&["get", &job.id, "results"]);
    assert_eq!(got.code, 125, "{got:?}");
    let place = job.record("slurm.json")["staged_to"]
        .as_str()
        .unwrap()
        .to_owned()
        + "/work";
    for words in ["1200 MiB", place.as_str(), "on node"] {
        assert!(got.err.contains(words), "{words}: {got:?}");
    }
    let node = got
        .err
        .split(" on node")
        .nth(1)
        .unwrap()
        .trim()
        .get(..1)
        .unwrap()
        .to_owned();
    let lab = &user.cluster.lab;
    let in_place = |command: &str| lab.slurm(&["node", "in", &node, "sh", "-c", command, &place]);
    within(DEADLINE, "nothing but the directory of work", || {
        in_place("ls -A \"$0/..\"") == "work\n"
    });
    assert_eq!(in_place("cat \"$0/small\""), "small\n");
    in_place("rm -r \"${0%/work}\"");
}

#[test]
fn nodes_that_cannot_have_the_directory_say_so_at_once() {
    let user = User::of(Cluster::shared());
    user.configure("shared_home = false\nnode_dir = \"/nonexist/dir\"\n");
    let job = user.submit(json!({"nodes": 2, "run": "true"}));
    let result = job.ends("FAILED", 125);
    let failure = result["failure"].to_string();
    assert!(
        failure.contains("cannot have the job's directory in /nonexist/dir"),
        "{result}"
    );
    assert!(failure.contains("mkdir"), "{result}");
    assert!(!failure.contains("reached"), "{result}");
    let got = user.ask(&["get", &job.id, "results"]);
    assert!(got.err.contains("never began"), "{got:?}");
}

#[test]
fn nodes_that_share_the_directory_are_found_out() {
    let user = User::of(Cluster::shared());
    let shared = seen_by_all();
    let path = shared.path().to_str().unwrap();
    user.configure(&format!("shared_home = false\nnode_dir = \"{path}\"\n"));
    let job = user.submit(json!({"nodes": 2, "run": "true"}));
    let result = job.ends("FAILED", 125);
    let failure = result["failure"].to_string();
    assert!(failure.contains(&format!("nodes share {path}")), "{result}");
    // Whichever they are: other tests have jobs on some.
    assert!(
        failure.contains(": node") && failure.contains(", node"),
        "{result}"
    );
    within(DEADLINE, "nothing left", || {
        fs::read_dir(path).unwrap().count() == 0
    });
    // One node shares it with nobody.
    user.submit(json!({"run": "true"})).ends("SUCCEEDED", 0);
}

#[test]
fn r19_cancelled_with_grace() {
    let user = User::of(Cluster::shared());
    let job = user.submit(json!({"nodes": 2, "run": TRAPPING}));
    job.says("rank 0 is up");
    job.says("rank 1 is up");
    let asked = user.ask(&["cancel", &job.id]);
    assert_eq!(asked.code, 0, "{asked:?}");
    job.ends("CANCELLED", 130);
    let log = job.text("run.log");
    assert!(
        log.contains("rank 0 was asked") && log.contains("rank 1 was asked"),
        "{log}"
    );
    job.leaves_nothing();
}

#[test]
fn r19_cancelled_with_grace_where_only_slurm_reaches_the_nodes() {
    let user = User::of(Cluster::shared());
    let job = user.submit(json!({"run": TRAPPING}));
    job.says("rank 0 is up");
    // As behind a firewall: no driver is at this address.
    let path = job.dir.join("attempts/1/driver.json");
    let mut driver = job.record("attempts/1/driver.json");
    driver["address"] = "127.0.0.1:1".into();
    fs::write(path, driver.to_string()).unwrap();
    let asked = user.ask(&["cancel", "--grace", "100s", &job.id]);
    assert_eq!(asked.code, 0, "{asked:?}");
    job.ends("CANCELLED", 130);
    assert!(job.text("run.log").contains("rank 0 was asked"));
    job.leaves_nothing();
}

#[test]
fn i12_i13_where_the_submitting_side_is_out_of_reach_nothing_leaves_it() {
    let cluster = Cluster::up(1, &[]);
    let user = User::of(&cluster);
    fs::write(user.path("token"), "hunter2").unwrap();
    let token = user.path("token");
    // No packet from the node comes back to where jobs are submitted.
    let cut = "ip route add blackhole $0";
    let lab = &cluster.lab;
    let host = lab.variable("HERD_LAB_SLURM_HOST");
    lab.slurm(&["node", "in", "1", "sh", "-c", cut, &host]);
    let job = user.submit(json!({
        "run": "true",
        "secrets": {"TOKEN": {"file": token.to_str().unwrap()}},
    }));
    let result = job.ends("FAILED", 125);
    let failure = result["failure"].to_string();
    assert!(failure.contains("cannot be reached from here"), "{result}");
    assert!(!job.dir.join("secrets.json").exists());
    within(DEADLINE, "the end in Slurm", || {
        let shown = lab.ask(&["scontrol", "show", "job", &job.number()]);
        shown.contains("JobState=CANCELLED")
    });
}

#[test]
fn r19_scancel_from_outside_cancels_with_grace() {
    let user = User::of(Cluster::shared());
    let job = user.submit(json!({"nodes": 2, "run": TRAPPING}));
    job.says("rank 0 is up");
    job.says("rank 1 is up");
    user.cluster.lab.ask(&["scancel", &job.number()]);
    // The driver's question may be ended by the same signal; then Slurm's word ends the job, and its code.
    user.ask(&["wait", &job.id, "--timeout", "200s"]);
    assert_eq!(job.record("result.json")["state"], "CANCELLED");
    let log = job.text("run.log");
    assert!(
        log.contains("rank 0 was asked") && log.contains("rank 1 was asked"),
        "{log}"
    );
    job.leaves_nothing();
}

#[test]
fn i2_a_requeue_is_the_next_attempt_and_its_output_goes_on() {
    let user = User::of(Cluster::shared());
    let job = user.submit(json!({
        "nodes": 2,
        "run": format!("echo attempt $HERD_ATTEMPT of rank $HERD_RANK; [ $HERD_ATTEMPT != 1 ] || {{ {TRAPPING}; }}"),
    }));
    job.says("rank 0 is up");
    job.says("rank 1 is up");
    user.cluster
        .lab
        .ask(&["scontrol", "requeue", &job.number()]);
    let result = job.ends("SUCCEEDED", 0);
    assert_eq!(result["attempts"], 2, "{result}");
    assert_eq!(job.record("attempts/1/end")["state"], "PREEMPTED");
    let shown = user.ask(&["logs", &job.id]).out;
    for attempt in 1..=2 {
        for rank in 0..2 {
            let line = format!("rank={rank}) attempt {attempt} of rank {rank}\n");
            assert_eq!(shown.matches(&line).count(), 1, "{shown}");
        }
    }
    assert!(!shown.contains('\0'), "{shown}");
    job.leaves_nothing();
}

#[test]
fn a_failure_that_is_listed_is_tried_again() {
    let user = User::of(Cluster::shared());
    let job = user.submit(json!({
        "run": "echo attempt $HERD_ATTEMPT; [ $HERD_ATTEMPT != 1 ] || exit 75",
        "retry": {"max": 1, "on": ["exit:75"], "backoff": "1s"},
    }));
    let result = job.ends("SUCCEEDED", 0);
    assert_eq!(result["attempts"], 2, "{result}");
    assert_eq!(job.record("attempts/1/end")["exit_code"], 75);
    assert_eq!(job.text("run.log"), "attempt 1\nattempt 2\n");
    job.leaves_nothing();
}

#[test]
fn r26_i12_secrets_get_there_and_stand_nowhere() {
    let user = User::of(Cluster::shared());
    let secret = "hunter2-of-the-nodes";
    fs::write(user.path("token"), secret).unwrap();
    let token = user.path("token");
    let shared = seen_by_all();
    let go = shared.path().join("go");
    let job = user.submit(json!({
        "nodes": 2,
        "secrets": {"TOKEN": {"file": token.to_str().unwrap()}},
        "run": format!(
            "echo ${{#TOKEN}} characters; until [ -e {} ]; do sleep 0.1; done",
            go.display()
        ),
    }));
    job.says("rank=1) 20 characters");
    let lab = &user.cluster.lab;
    let shown = lab.ask(&["scontrol", "show", "job", "-dd", &job.number()]);
    let script = lab.ask(&["scontrol", "write", "batch_script", &job.number(), "-"]);
    let key = job.text("key");
    for (what, text) in [("job", &shown), ("script", &script)] {
        assert!(
            !text.contains(secret) && !text.contains(key.trim()),
            "{what}: {text}"
        );
    }
    // Arguments of programs are for all to see.
    let named = herd_testing::process::with_text(&job.id);
    for pid in named {
        let (argv, _) = herd_testing::process::arguments_and_environment(pid);
        let argv = String::from_utf8_lossy(&argv).into_owned();
        assert!(
            !argv.contains(secret) && !argv.contains(key.trim()),
            "{argv}"
        );
    }
    fs::write(go, "").unwrap();
    job.ends("SUCCEEDED", 0);
    job.leaves_nothing();
    assert!(!job.dir.join("secrets.json").exists());
}

/// The process that stages a job.
fn stager(id: &str) -> Option<i32> {
    herd_testing::process::with_text(id)
        .into_iter()
        .find(|pid| {
            let (argv, _) = herd_testing::process::arguments_and_environment(*pid);
            argv.split(|byte| *byte == 0).nth(1) == Some(b"stage")
        })
}

#[test]
fn i3_a_job_goes_on_while_nobody_stages_it_and_is_caught_up_with() {
    let user = User::of(Cluster::shared());
    let job = user.submit(json!({
        "nodes": 2,
        "run": "echo up; for i in $(seq 40); do echo line $i; sleep 0.1; done; exit 4",
    }));
    job.says("rank=1) up");
    within(DEADLINE, "the end of what stages it", || {
        match stager(&job.id) {
            Some(pid) => {
                let _gone = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
                false
            }
            None => true,
        }
    });
    // Whoever asks starts it again.
    job.ends("FAILED", 4);
    let log = job.text("run.log");
    for rank in 0..2 {
        for line in 1..=40 {
            let line = format!("rank={rank}) line {line}\n");
            assert_eq!(log.matches(&line).count(), 1, "{log}");
        }
    }
    job.leaves_nothing();
}

#[test]
fn render_shows_a_script_that_slurm_takes() {
    let user = User::of(Cluster::shared());
    let script = user.ask(&["render", &user.file(json!({"nodes": 2, "run": "true"}))]);
    assert_eq!(script.code, 0, "{script:?}");
    assert!(
        !script.out.contains(user.path("home").to_str().unwrap()),
        "{script:?}"
    );
    let path = user.path("script.sh");
    fs::write(&path, &script.out).unwrap();
    let mut command: Command = user.cluster.lab.command("sbatch");
    let tested = command.arg("--test-only").arg(&path).output().unwrap();
    assert!(tested.status.success(), "{tested:?}");
}
