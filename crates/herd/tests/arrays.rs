//! Arrays from outside: attempts of their tasks, the limit, nodes that are idle or lost, logs and
//! what `status` says meanwhile (issue A, point 8).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs;
use std::path::PathBuf;

use live::{Herd, assert_code, eventually, pid_of, pids, signal, stderr, stdout};
use serde_json::Value;

/// The directory of the only job.
fn job(herd: &Herd) -> PathBuf {
    let jobs = fs::read_dir(herd.path("home/jobs")).unwrap();
    let mut jobs: Vec<PathBuf> = jobs.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(jobs.len(), 1);
    jobs.pop().unwrap()
}

fn lines(path: PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Task and attempt of each line of `tasks.jsonl`.
fn ended(herd: &Herd) -> Vec<(u64, u64)> {
    let number = |line: &Value, key: &str| line[key].as_u64().unwrap();
    lines(job(herd).join("tasks.jsonl"))
        .iter()
        .map(|line| (number(line, "index"), number(line, "attempt")))
        .collect()
}

fn events(herd: &Herd, attempt: u32, name: &str) -> Vec<Value> {
    let path = job(herd).join(format!("attempts/{attempt}/events.jsonl"));
    let all = lines(path).into_iter();
    all.filter(|event| event["event"] == name).collect()
}

#[test]
fn a_failed_task_is_run_again_after_its_pause_and_its_attempts_share_a_log() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "array: 0-2\nretry: {max: 2, on: ['exit:75'], backoff: 1500ms}\nrun: |\n  echo task \
         $HERD_ARRAY_INDEX attempt $HERD_ATTEMPT\n  [ $HERD_ARRAY_INDEX != 1 ] || [ -e marker ] || \
         { touch marker; exit 75; }\n",
    );
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 0);
    let mut order = ended(&herd);
    // The others did not wait for the pause.
    assert_eq!(order.pop(), Some((1, 2)));
    order.sort_unstable();
    assert_eq!(order, [(0, 1), (1, 1), (2, 1)]);
    let log = herd.run(&["logs", "last", "--task", "1"]);
    assert_eq!(stdout(&log), "task 1 attempt 1\ntask 1 attempt 2\n");
    let shown = stdout(&output);
    for line in ["(task 1) task 1 attempt 1\n", "(task 1) task 1 attempt 2\n"] {
        assert_eq!(shown.matches(line).count(), 1, "{shown}");
    }
    let retried = events(&herd, 1, "task-retried");
    assert_eq!(retried.len(), 1);
    assert_eq!(retried[0]["task"], 1);
    assert_eq!(retried[0]["after_ms"], 1500);
    assert!(!job(&herd).join("attempts/2").exists());
    let status = stdout(&herd.run(&["status", "last"]));
    assert!(status.contains("3 succeeded, 0 failed, of 3"), "{status}");
    let last = lines(job(&herd).join("tasks.jsonl")).pop().unwrap();
    assert_eq!(last["log_offset"], "task 1 attempt 1\n".len());
}

#[test]
fn i8_the_jobs_code_is_that_of_the_task_that_failed_for_good_first() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "array: 0-2%1\nretry: {max: 1, on: ['exit:75'], backoff: 1s}\nrun: '[ $HERD_ARRAY_INDEX != 0 \
         ] || exit 75; [ $HERD_ARRAY_INDEX != 1 ] || exit 4'\n",
    );
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 4);
    let said = stderr(&output);
    assert!(said.contains("1 of 3 tasks succeeded"), "{said}");
    assert_eq!(ended(&herd), [(0, 1), (1, 1), (2, 1), (0, 2)]);
}

#[test]
fn a_cancel_ends_pauses_at_once_and_status_knows_them() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "array: 0-1\nretry: {max: 1, on: [rank-failed], backoff: 1h}\nrun: 'exit \
         $HERD_ARRAY_INDEX'\n",
    );
    let run = herd.start(&["run", "job.yaml"]);
    eventually("a pause", || {
        let status = herd.run(&["status", "last"]);
        stdout(&status).contains("1 succeeded, 0 failed, 1 failed and to run again, of 2")
    });
    assert_code(&herd.run(&["cancel", "last"]), 0);
    assert_code(&run.wait_with_output().unwrap(), 130);
    let status = stdout(&herd.run(&["status", "last"]));
    assert!(status.contains("1 succeeded, 1 failed, of 2"), "{status}");
}

#[test]
fn the_time_limit_ends_pauses() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "array: 0-1\nwalltime: 3s\nretry: {max: 1, on: [rank-failed], backoff: 1h}\nrun: exit 5\n",
    );
    assert_code(&herd.run(&["run", "job.yaml"]), 124);
}

#[test]
fn never_more_tasks_run_than_the_limit_says() {
    let herd = Herd::new();
    // Each task holds a file while it runs and writes down how many there are.
    herd.file(
        "job.yaml",
        "nodes: 2\narray: 0-59%3\nrun: 'mkdir -p held; touch held/$HERD_ARRAY_INDEX; ls held | wc -l \
         >> counts; sleep 0.05; rm held/$HERD_ARRAY_INDEX'\n",
    );
    assert_code(&herd.run(&["run", "job.yaml"]), 0);
    let counts = pids(&herd.path("counts"));
    assert_eq!(counts.len(), 60);
    assert!(counts.iter().all(|&count| count <= 3), "{counts:?}");
    assert!(counts.contains(&3), "{counts:?}");
}

#[test]
fn tasks_that_wait_behind_a_long_one_go_to_a_node_that_is_idle() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "nodes: 2\narray: 0-9%2\nwalltime: 2m\nrun: |\n  if [ $HERD_ARRAY_INDEX = 0 ]; then\n    while \
         [ \"$(ls done | wc -l)\" -lt 9 ]; do sleep 0.02; done\n  else\n    touch \
         done/$HERD_ARRAY_INDEX\n  fi\n",
    );
    fs::create_dir(herd.path("done")).unwrap();
    assert_code(&herd.run(&["run", "job.yaml"]), 0);
    assert_eq!(ended(&herd).len(), 10);
}

#[test]
fn after_a_lost_node_only_what_was_not_done_runs_again() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "nodes: 2\narray: 0-7%2\nretry: {max: 1, on: [node-lost], backoff: 100ms}\nrun: |\n  echo \
         $HERD_ARRAY_INDEX:$HERD_ATTEMPT >> runs\n  if [ $HERD_ARRAY_INDEX:$HERD_ATTEMPT = 1:1 ]; \
         then echo $$ > blocked; exec sleep 600; fi\n",
    );
    let run = herd.start(&["run", "job.yaml"]);
    eventually("all but one", || {
        pids(&herd.path("blocked")).len() == 1 && ended(&herd).len() == 7
    });
    let joined = events(&herd, 1, "node-joined");
    let lost = joined.iter().find(|event| event["node"] == 1).unwrap();
    let pid = i32::try_from(lost["pid"].as_i64().unwrap()).unwrap();
    signal(pid, "-KILL");
    assert_code(&run.wait_with_output().unwrap(), 0);
    let text = fs::read_to_string(herd.path("runs")).unwrap();
    let mut runs: Vec<&str> = text.lines().collect();
    runs.sort_unstable();
    let all = [
        "0:1", "1:1", "1:2", "2:1", "3:1", "4:1", "5:1", "6:1", "7:1",
    ];
    assert_eq!(runs, all);
    let status = stdout(&herd.run(&["status", "last"]));
    assert!(status.contains("8 succeeded, 0 failed, of 8"), "{status}");
}

#[test]
fn i7_the_log_of_a_task_is_what_it_wrote() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "array: 3,1700\nrun: 'head -c 300000 /dev/urandom | tee written.$HERD_ARRAY_INDEX'\n",
    );
    assert_code(&herd.run(&["run", "job.yaml"]), 0);
    for (index, group) in [(3, 0), (1700, 1)] {
        let written = fs::read(herd.path(&format!("written.{index}"))).unwrap();
        let log = fs::read(job(&herd).join(format!("tasks/{group}/{index}.log"))).unwrap();
        assert!(written.len() == 300_000 && written == log);
        let shown = herd.run(&["logs", "last", "--raw", "--task", &index.to_string()]);
        assert!(shown.stdout == written);
    }
}

#[test]
fn a_cancel_drops_the_tasks_that_wait_at_a_node() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "array: 0-199%1\nrun: 'echo hello; echo $HERD_ARRAY_INDEX >> started; exec sleep 600'\n",
    );
    let run = herd.start(&["run", "job.yaml"]);
    eventually("the first task", || pids(&herd.path("started")).len() == 1);
    // Its log can be read while it runs.
    let log = herd.run(&["logs", "last", "--task", "0"]);
    assert_eq!(stdout(&log), "hello\n");
    signal(pid_of(&run), "-INT");
    assert_code(&run.wait_with_output().unwrap(), 130);
    assert_eq!(pids(&herd.path("started")), [0]);
    assert_eq!(ended(&herd), [(0, 1)]);
}

#[test]
fn failed_tasks_are_named_with_what_they_wrote_and_how_to_run_them_again() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "array: 0-29\nrun: 'echo about to fail; case $HERD_ARRAY_INDEX in *3|7|8|9) echo broken pipe dream >&2; exit \
         5;; esac'\n",
    );
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 5);
    let said = stderr(&output);
    assert!(!said.contains("rank"), "{said}");
    for part in [
        " failed first, on node0: exit code 5",
        "│ broken pipe dream",
        "6 tasks failed; to run them again: `array: 3,7-9,13,23`",
        "24 of 30 tasks succeeded, 6 failed",
        "herd logs ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let command = said
        .lines()
        .find(|line| line.contains("herd logs"))
        .unwrap();
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    assert!(command.contains("--task"), "{command}");
    assert!(stdout(&herd.run(&words)).contains("broken pipe dream"));
    for question in ["why", "status", "events"] {
        let answer = stdout(&herd.run(&[question, "last"]));
        assert!(
            answer.contains("task ") && !answer.contains("rank "),
            "{answer}"
        );
    }
    let status = stdout(&herd.run(&["status", "last"]));
    assert!(status.contains("Failed:    3,7-9,13,23"), "{status}");
    let json = stdout(&herd.run(&["status", "last", "-o", "json"]));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["tasks"]["failed_tasks"], "3,7-9,13,23");
    assert_eq!(json["failure"]["reason"], "task-failed");
    for option in [["--rank", "3"], ["--stream", "stderr"]] {
        let refused = herd.run(&["logs", "last", option[0], option[1]]);
        assert_code(&refused, 2);
        assert!(stderr(&refused).contains("array"), "{}", stderr(&refused));
    }
}

#[test]
fn a_cancelled_array_tells_what_ran_and_what_did_not() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "array: 0-5%2\nrun: '[ $HERD_ARRAY_INDEX != 0 ] || exit 0; exec sleep 600'\n",
    );
    let run = herd.start(&["run", "job.yaml"]);
    eventually("two run after the first", || {
        let status = herd.run(&["status", "last"]);
        stdout(&status).contains("1 succeeded, 0 failed, 2 running, 3 not started, of 6")
    });
    signal(pid_of(&run), "-INT");
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 130);
    let said = stderr(&output);
    assert!(
        said.contains("1 of 6 tasks succeeded, 2 stopped, 3 not started"),
        "{said}"
    );
    let status = stdout(&herd.run(&["status", "last"]));
    for part in [
        "1 succeeded, 0 failed, 2 stopped, 3 not started, of 6",
        "Stopped:   1-2",
        "Unstarted: 3-5",
    ] {
        assert!(status.contains(part), "{part}: {status}");
    }
}
