//! `ls`, `status`, `logs`, `events`, `wait`, `why` over jobs that are on disk.

use herd_core::state::JobState;
use serde_json::Value;

use crate::fixture::Bench;

#[test]
fn an_empty_home_has_no_jobs_and_says_so_where_one_is_named() {
    let bench = Bench::new();
    let list = bench.ask(&["ls"]);
    assert_eq!((list.code, list.out.lines().count()), (0, 1));
    assert_eq!(bench.ask(&["ls", "-o", "json"]).out, "[]\n");
    for command in ["status", "logs", "events", "why"] {
        let answer = bench.ask(&[command]);
        assert_eq!(answer.code, 2, "{command}");
        assert!(answer.err.contains("there is no job in"), "{}", answer.err);
    }
}

#[test]
fn selectors_mean_one_job_or_say_what_they_could_mean() {
    let bench = Bench::new();
    let job = bench.failed_job("digits");
    bench.failed_job("other");
    let id = job.id().to_string();
    for selector in [id.as_str(), &job.id().short(), "digits"] {
        let shown = bench.ask(&["status", selector, "-o", "id"]);
        assert_eq!(shown.out.trim(), id, "{selector}: {}", shown.err);
    }
    assert_ne!(bench.ask(&["status", "last", "-o", "id"]).out.trim(), id);
    let near = bench.ask(&["status", "digit"]);
    assert_eq!(near.code, 2);
    assert!(
        near.err.contains("did you mean \"digits\"?"),
        "{}",
        near.err
    );
    // Both ids were made in the same millisecond or close to it.
    let ambiguous = bench.ask(&["status", &id[..6]]);
    assert_eq!(ambiguous.code, 2);
    assert!(ambiguous.err.contains("could be"), "{}", ambiguous.err);
}

#[test]
fn ls_has_stable_keys_and_columns() {
    let bench = Bench::new();
    let job = bench.failed_job("digits");
    let table = bench.ask(&["ls"]).out;
    let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(
        head,
        [
            "ID", "NAME", "TYPE", "STATE", "NODES", "AGE", "TIME", "EXIT"
        ]
    );
    assert!(
        table.contains(&job.id().short()) && table.contains("FAILED"),
        "{table}"
    );
    let rows: Value = serde_json::from_str(&bench.ask(&["ls", "-o", "json"]).out).unwrap();
    let keys: Vec<&str> = rows[0]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys,
        [
            "attempt",
            "backend",
            "backend_id",
            "command",
            "created_ms",
            "ended_ms",
            "exit_code",
            "id",
            "name",
            "nodes",
            "short",
            "started_ms",
            "state",
            "type",
            "why"
        ]
    );
    for _ in 0..3 {
        bench.job("more");
    }
    let short = bench.ask(&["ls", "-n", "2"]);
    assert_eq!(short.out.lines().count(), 3);
    assert!(short.err.contains("2 more"), "{}", short.err);
}

#[test]
fn status_and_why_tell_the_failure() {
    let bench = Bench::new();
    bench.failed_job("digits");
    let shown = bench.ask(&["status"]).out;
    for part in [
        "FAILED",
        "rank 1 failed first, on node1: exit code 3",
        "stopped by herd",
        "node0",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let why = bench.ask(&["why"]).out;
    assert!(
        why.contains("rank 1 failed first, on node1: exit code 3"),
        "{why}"
    );
    let detail: Value = serde_json::from_str(&bench.ask(&["status", "-o", "json"]).out).unwrap();
    assert_eq!(detail["rank_list"][1]["end"]["exited"], 3);
    assert_eq!(detail["failure"]["reason"], "rank-failed");
}

#[test]
fn lists_fit_the_terminal_and_are_whole_elsewhere() {
    let bench = Bench::new();
    let name = "n".repeat(90);
    bench.job(&name);
    let herd = env!("CARGO_BIN_EXE_herd");
    let mut shell = std::process::Command::new("sh");
    shell
        .args([
            "-c",
            "stty cols 70; $0 ls; echo WHOLE; $0 ls | cat; $0 ls -o wide",
            herd,
        ])
        .env("HERD_HOME", bench.dir.path().join("home"))
        .env("NO_COLOR", "1");
    let (_, screen) = herd_testing::Terminal::start(&shell).wait();
    let (fitting, whole) = screen.split_once("WHOLE").unwrap();
    let widest = fitting
        .lines()
        .map(|line| line.trim_end().chars().count())
        .max();
    assert!(widest.unwrap() <= 70, "{screen}");
    assert!(fitting.contains("nnn…"), "{screen}");
    assert_eq!(whole.matches(&name).count(), 2, "{screen}");
    assert!(!whole.contains('…'), "{screen}");
}

#[test]
fn logs_are_filtered_and_cleaned() {
    let bench = Bench::new();
    bench.failed_job("digits");
    let all = bench.ask(&["logs"]).out;
    assert_eq!(
        all,
        "(node0, rank=0) hello from 0\n(node1, rank=1) hello from 1\n\
         (node1, rank=1) ValueError: no data\n"
    );
    assert!(
        bench
            .ask(&["logs", "--raw"])
            .out
            .contains("\x1b]0;title\x07")
    );
    let lines = |args: &[&str]| {
        bench
            .ask(&[&["logs", "--prefix", "rank"], args].concat())
            .out
    };
    assert_eq!(lines(&["--rank", "0"]), "[0] hello from 0\n");
    assert_eq!(
        lines(&["--node", "node1", "--stream", "stderr"]),
        "[1] ValueError: no data\n"
    );
    assert_eq!(lines(&["--tail", "1"]), "[1] ValueError: no data\n");
    assert_eq!(
        lines(&["--grep", "hello", "--rank", "1"]),
        "[1] hello from 1\n"
    );
    assert_eq!(lines(&["--since", "2999-01-01T00:00:00Z"]), "");
    assert_eq!(
        lines(&["--since", "10m", "--rank", "0"]),
        "[0] hello from 0\n"
    );
    assert_eq!(bench.ask(&["logs", "-f"]).out, all);
    let colored = bench.ask(&["logs", "--color", "always", "--rank", "0"]).out;
    assert!(
        colored.contains("\x1b[36m(node0, rank=0) \x1b[0mhello"),
        "{colored:?}"
    );
    for wrong in [["--rank", "x"], ["--since", "soon"], ["--node", "nowhere"]] {
        let answer = bench.ask(&[&["logs"], &wrong[..]].concat());
        assert_eq!(answer.code, 2, "{wrong:?}: {}", answer.err);
    }
}

#[test]
fn logs_of_a_task() {
    let bench = Bench::new();
    let job = bench.failed_job("array");
    job.create_task_dirs(&[7]).unwrap();
    std::fs::write(job.task_log(7), "one\ntwo\x1b[2J\nthree").unwrap();
    assert_eq!(bench.ask(&["logs", "--task", "7"]).out, "one\ntwo\nthree");
    assert_eq!(
        bench.ask(&["logs", "--task", "7", "--tail", "1", "-f"]).out,
        "three"
    );
    let missing = bench.ask(&["logs", "--task", "8"]);
    assert_eq!(missing.code, 125);
    assert_eq!(bench.ask(&["logs", "--task", "7", "--rank", "1"]).code, 2);
}

#[test]
fn events_are_lines() {
    let bench = Bench::new();
    bench.failed_job("digits");
    let table = bench.ask(&["events"]).out;
    assert_eq!(table.lines().count(), 7, "{table}");
    assert!(table.contains("rank 1 on node1: exit code 3"), "{table}");
    let json = bench.ask(&["events", "-f", "-o", "json"]).out;
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["attempt"], &first["event"]),
        (&1.into(), &"node-joined".into())
    );
}

#[test]
fn i8_wait_ends_with_the_jobs_code() {
    let bench = Bench::new();
    let good = bench.job("good");
    Bench::finish(&good, JobState::Succeeded, None, 0);
    bench.failed_job("bad");
    let over = bench.ask(&["wait", "good"]);
    assert_eq!(over.code, 0);
    // A job that had ended is answered as one that ends while waited for.
    let said = format!("herd: {} SUCCEEDED\n", good.id().short());
    assert_eq!(over.err, said);
    assert_eq!(bench.ask(&["wait", "good", "bad"]).code, 3);
    assert_eq!(bench.ask(&["wait", "good", "nonsense"]).code, 2);
}

#[test]
fn wait_sees_a_job_end_and_gives_up_in_time() {
    let bench = Bench::new();
    let job = bench.job("slow");
    let late = bench.ask(&["wait", "slow", "--timeout", "50ms"]);
    assert_eq!(late.code, 124, "{}", late.err);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| bench.ask(&["wait", "slow", "--timeout", "30s"]).code);
        Bench::finish(&job, JobState::Cancelled, None, 130);
        assert_eq!(waiting.join().unwrap(), 130);
    });
}

#[test]
fn commands_that_need_a_running_job_say_so() {
    let bench = Bench::new();
    bench.failed_job("digits");
    let answer = bench.ask(&["exec", "digits", "--", "true"]);
    assert_eq!(answer.code, 125);
    assert!(
        answer.err.contains("is FAILED") && answer.err.contains("hint:"),
        "{}",
        answer.err
    );
    let cancel = bench.ask(&["cancel", "digits"]);
    assert_eq!(cancel.code, 0, "{}", cancel.err);
    assert!(cancel.err.contains("has ended already"), "{}", cancel.err);
    assert_eq!(
        bench
            .ask(&["cancel", "digits", "--signal", "NONSENSE"])
            .code,
        2
    );
}

#[test]
fn a_name_of_several_jobs_that_run_is_not_guessed_by_commands_that_act() {
    let bench = Bench::new();
    let older = bench.job("train");
    let newer = bench.job("train");
    for args in [&["cancel", "train"][..], &["exec", "train", "--", "true"]] {
        let answer = bench.ask(args);
        assert_eq!(answer.code, 2, "{}", answer.err);
        for part in [
            &newer.id().short(),
            &older.id().short(),
            "hint: give the id",
        ] {
            assert!(answer.err.contains(part), "{part}: {}", answer.err);
        }
    }
    // Of several, the one that is left.
    Bench::finish(&newer, JobState::Succeeded, None, 0);
    let answer = bench.ask(&["exec", "train", "--", "true"]);
    assert!(answer.err.contains(&older.id().short()), "{}", answer.err);
    Bench::finish(&older, JobState::Succeeded, None, 0);
    let answer = bench.ask(&["cancel", "train"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains(&newer.id().short()), "{}", answer.err);
}

#[test]
fn a_name_that_would_choose_another_job_is_refused() {
    let bench = Bench::new();
    for name in ["last", "20260131", "deadbeef"] {
        let answer = bench.ask(&["render", "--name", name, "--", "true"]);
        assert_eq!(answer.code, 2, "{name}");
        for part in [
            format!("--name `{name}`: "),
            format!("hint: choose another, such as `job-{name}`"),
        ] {
            assert!(answer.err.contains(&part), "{part}: {}", answer.err);
        }
        bench.file("job.yaml", format!("name: {name}\nrun: a\n").as_bytes());
        let answer = bench.ask(&["render", "job.yaml"]);
        assert!(
            answer.err.contains("job.yaml:1:7: name: "),
            "{}",
            answer.err
        );
    }
}

#[test]
fn ranks_nodes_and_tasks_that_cannot_exist_are_refused() {
    let bench = Bench::new();
    let ran = bench.ask(&["run", "-N", "2", "--name", "pair", "--", "echo", "hi"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    bench.file("array.yaml", b"name: many\narray: 0-3,7\nrun: echo hi\n");
    let ran = bench.ask(&["run", "array.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for (job, args, said) in [
        ("pair", ["--rank", "2"], "ranks 0 to 1"),
        ("pair", ["--rank", "0,9"], "ranks 0 to 1"),
        ("pair", ["--node", "7"], "node0, node1"),
        ("pair", ["--node", "node7"], "node0, node1"),
        ("pair", ["--task", "0"], "is no array"),
        ("many", ["--task", "9"], "tasks 0-3,7"),
        ("many", ["--rank", "0"], "--task"),
        ("many", ["--stream", "stderr"], "one log"),
        ("many", ["--node", "1"], "node0"),
    ] {
        let answer = bench.ask(&["logs", job, args[0], args[1]]);
        assert_eq!(answer.code, 2, "{job} {args:?}: {}", answer.err);
        assert!(answer.err.contains(said), "{said}: {}", answer.err);
        assert!(answer.out.is_empty());
    }
    for node in ["1", "node1"] {
        let shown = bench.ask(&["logs", "pair", "--node", node, "--prefix", "none"]);
        assert_eq!((shown.code, shown.out.as_str()), (0, "hi\n"));
    }
    assert_eq!(bench.ask(&["logs", "many", "--task", "7"]).out, "hi\n");
}

#[test]
fn ls_shows_what_is_asked_for() {
    let bench = Bench::new();
    let waiting = bench.job("train");
    bench.failed_job("train");
    let good = bench.job("other");
    Bench::finish(&good, JobState::Succeeded, None, 0);
    let ids = |args: &[&str]| {
        let answer = bench.ask(&[&["ls", "-o", "id"], args].concat());
        assert_eq!(answer.code, 0, "{}", answer.err);
        answer.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(ids(&["--name", "train"]).len(), 2);
    assert_eq!(ids(&["--state", "active"]), [waiting.id().to_string()]);
    assert_eq!(ids(&["--state", "succeeded"]), [good.id().to_string()]);
    assert_eq!(ids(&["--state", "Failed,succeeded"]).len(), 2);
    assert_eq!(ids(&["--state", "failed", "--name", "other"]).len(), 0);
    let one = bench.ask(&["ls", "--name", "train", "-n", "1", "-o", "id"]);
    assert_eq!(one.out.lines().count(), 1);
    assert!(one.err.contains("1 more"), "{}", one.err);
    for wrong in [["--state", "sleeping"], ["-n", "0"]] {
        assert_eq!(
            bench.ask(&[&["ls"], &wrong[..]].concat()).code,
            2,
            "{wrong:?}"
        );
    }
}
