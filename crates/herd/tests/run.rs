//! `herd run` and `herd submit` from outside: real executors over the real link, real processes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use live::{Herd, assert_code, eventually, pid_of, signal, stderr, stdout};

#[test]
fn one_command_runs_and_its_streams_stay_apart() {
    let herd = Herd::new();
    let output = herd.run(&["run", "--", "sh", "-c", "echo out; echo err >&2"]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "out\n");
    assert!(stderr(&output).contains("err\n"), "{}", stderr(&output));
}

#[test]
fn i8_exit_codes_reach_the_caller() {
    let herd = Herd::new();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -9 $$", 137),
        ("kill -11 $$", 139),
    ] {
        assert_code(&herd.run(&["run", "--", "sh", "-c", script]), code);
    }
    assert_code(&herd.run(&["run", "--", "no-such-program-anywhere"]), 127);
    let plain = herd.file("plain.txt", "not a program");
    assert_code(&herd.run(&["run", "--", plain.to_str().unwrap()]), 126);
}

#[test]
fn i8_the_time_limit_is_124() {
    let herd = Herd::new();
    let begun = Instant::now();
    let output = herd.run(&["run", "-t", "3s", "--", "sleep", "600"]);
    assert_code(&output, 124);
    // The program has the time that was asked for, all but a tenth.
    assert!(begun.elapsed() >= Duration::from_millis(2700));
    let said = stderr(&output);
    assert!(
        said.contains("limit of 3s was reached: asked to end 300ms before it"),
        "{said}"
    );
}

#[test]
fn two_nodes_have_their_identity_and_prefixes() {
    let herd = Herd::new();
    let script =
        "echo $HERD_NODE_RANK/$HERD_NUM_NODES $HERD_RANK/$HERD_WORLD_SIZE $SKYPILOT_NODE_RANK";
    let output = herd.run(&["run", "-N", "2", "--", "sh", "-c", script]);
    assert_code(&output, 0);
    let text = stdout(&output);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["(node0, rank=0) 0/2 0/2 0", "(node1, rank=1) 1/2 1/2 1"]
    );
}

#[test]
fn pytorch_ranks_get_the_variables_of_torchrun() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "type: pytorch\nnodes: 2\nprocs_per_node: 2\nrun: 'echo $RANK $LOCAL_RANK $WORLD_SIZE \
         $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR ${MASTER_PORT:+port}'\n",
    );
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 0);
    let text = stdout(&output);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "(node0, rank=0) 0 0 4 2 0 127.0.0.1 port",
            "(node0, rank=1) 1 1 4 2 0 127.0.0.1 port",
            "(node1, rank=2) 2 0 4 2 1 127.0.0.1 port",
            "(node1, rank=3) 3 1 4 2 1 127.0.0.1 port",
        ]
    );
}

#[test]
fn i13_a_launcher_among_ranks_that_herd_starts_is_refused() {
    let herd = Herd::new();
    for run in [
        "torchrun --nproc_per_node 2 x.py",
        "python -m torch.distributed.run x.py",
    ] {
        herd.file(
            "job.yaml",
            &format!("type: pytorch\nprocs_per_node: 2\nrun: {run}\n"),
        );
        let output = herd.run(&["run", "job.yaml"]);
        assert_code(&output, 2);
        assert!(
            stderr(&output).contains("launcher: user"),
            "{}",
            stderr(&output)
        );
    }
    let flags = [
        "run",
        "--type",
        "pytorch",
        "--",
        "accelerate",
        "launch",
        "x.py",
    ];
    assert_code(&herd.run(&flags), 2);
}

#[test]
fn setup_runs_before_any_rank_and_its_failure_is_the_jobs() {
    let herd = Herd::new();
    let marker = herd.path("marker");
    let text = format!(
        "nodes: 2\nsetup: {{run: 'touch {0}', on: first}}\nrun: test -e {0}\n",
        marker.display()
    );
    herd.file("job.yaml", &text);
    assert_code(&herd.run(&["run", "job.yaml"]), 0);
    herd.file("bad.yaml", "setup: 'echo no; exit 9'\nrun: echo never\n");
    let output = herd.run(&["run", "bad.yaml"]);
    assert_code(&output, 9);
    assert!(!stdout(&output).contains("never"));
}

#[test]
fn the_first_failing_rank_is_named_and_its_peers_end() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "type: pytorch\nprocs_per_node: 3\nrun: 'if [ $RANK = 1 ]; then echo broken pipe dream \
         >&2; exit 5; fi; exec sleep 600'\n",
    );
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 5);
    let text = stderr(&output);
    assert!(
        text.contains("rank 1") && text.contains("broken pipe dream"),
        "{text}"
    );
}

#[test]
fn values_arrive_byte_identical() {
    let herd = Herd::new();
    let show = "import os,sys; sys.stdout.write(ascii((os.environ['TRICKY'], sys.argv[1])))";
    let text = format!(
        "env: {{TRICKY: \"a'b\\\"c\\n$HOME \\\\ ü\"}}\nrun: [python3, -c, \"{show}\", \"x'y\\\"z\\n$HOME \\\\ ü\"]\n"
    );
    herd.file("job.yaml", &text);
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 0);
    assert_eq!(
        stdout(&output),
        r#"('a\'b"c\n$HOME \\ \xfc', 'x\'y"z\n$HOME \\ \xfc')"#
    );
}

#[test]
fn stdin_reaches_the_only_rank() {
    let herd = Herd::new();
    let input = herd.file("input", "hello\n");
    let output = herd
        .command(&["run", "--", "cat"])
        .stdin(fs::File::open(input).unwrap())
        .output()
        .unwrap();
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "hello\n");
}

#[test]
fn i7_merged_output_loses_no_line_of_64_busy_ranks() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "type: pytorch\nprocs_per_node: 64\nrun: 'for i in $(seq 200); do echo $RANK:$i; done'\n",
    );
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 0);
    let text = stdout(&output);
    for rank in 0..64 {
        let prefix = format!("(node0, rank={rank}) ");
        let lines: Vec<&str> = text
            .lines()
            .filter_map(|l| l.strip_prefix(&prefix))
            .collect();
        let expected: Vec<String> = (1..=200).map(|i| format!("{rank}:{i}")).collect();
        assert_eq!(lines, expected);
    }
}

#[test]
fn ctrl_c_once_gives_grace_and_ends_with_130() {
    let herd = Herd::new();
    let ready = herd.path("ready");
    let text = format!(
        "trap 'echo saved; exit 0' INT TERM\ntouch {}\nwhile :; do sleep 0.1; done\n",
        ready.display()
    );
    herd.file("graceful.sh", &text);
    let run = herd.start(&["run", "--", "bash", "graceful.sh"]);
    eventually("the trap", || ready.exists());
    signal(pid_of(&run), "-INT");
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 130);
    assert!(stdout(&output).contains("saved"), "{}", stdout(&output));
}

#[test]
fn submit_detaches_wait_returns_the_code_and_cancel_ends() {
    let herd = Herd::new();
    let submitted = herd.run(&["submit", "--", "sh", "-c", "exit 6"]);
    assert_code(&submitted, 0);
    let id = stdout(&submitted).trim().to_owned();
    assert_code(&herd.run(&["wait", &id]), 6);

    let submitted = herd.run(&["submit", "--", "sleep", "600"]);
    let id = stdout(&submitted).trim().to_owned();
    eventually("RUNNING", || {
        stdout(&herd.run(&["status", &id])).contains("RUNNING")
    });
    assert_code(&herd.run(&["cancel", &id]), 0);
    assert_code(&herd.run(&["wait", &id]), 130);
    assert!(stdout(&herd.run(&["status", &id])).contains("CANCELLED"));
}

#[test]
fn i12_a_secret_is_seen_by_the_rank_alone() {
    let herd = Herd::new();
    herd.file("token", "s3cr3t-value\n");
    herd.file(
        "job.yaml",
        "secrets: {TOKEN: {file: token}}\nrun: '[ ${#TOKEN} = 12 ] && echo right'\n",
    );
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "right\n");
    let found = Command::new("grep")
        .args(["-rl", "s3cr3t-value"])
        .arg(herd.path("home"))
        .output()
        .unwrap();
    assert_eq!(stdout(&found), "", "no record may hold the secret");
}

#[test]
fn retry_makes_a_new_attempt() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "retry: {max: 2, on: ['exit:75'], backoff: 10ms}\nrun: 'echo attempt $HERD_ATTEMPT; [ \
         $HERD_ATTEMPT = 3 ] || exit 75'\n",
    );
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "attempt 1\nattempt 2\nattempt 3\n");
}

#[test]
fn a_job_that_waits_for_its_next_attempt_can_be_cancelled() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "retry: {max: 2, on: ['exit:75'], backoff: 1h}\nrun: exit 75\n",
    );
    let submitted = herd.run(&["submit", "job.yaml"]);
    let id = stdout(&submitted).trim().to_owned();
    let status = || stdout(&herd.run(&["status", &id]));
    // What is left of the pause, not the pause.
    eventually("the wait for the next attempt", || {
        status().contains("retries in 59m")
    });
    let why = stdout(&herd.run(&["why", &id]));
    assert!(why.contains("QUEUED: retries in 59m"), "{why}");
    assert_code(&herd.run(&["cancel", &id]), 0);
    eventually("the end", || status().contains("CANCELLED"));
}

#[test]
fn a_traceback_on_the_screen_is_not_repeated_by_the_report() {
    let herd = Herd::new();
    let program = "def f():\n    raise ValueError('no data')\nf()\n";
    herd.file("train.py", program);
    let output = herd.run(&["run", "--", "python3", "train.py"]);
    assert_code(&output, 1);
    let said = stderr(&output);
    assert_eq!(said.matches("Traceback").count(), 1, "{said}");
    let line = "\nherd: rank 0 failed first, on node0: exit code 1: ValueError: no data\n";
    assert!(said.contains(line) && !said.contains('│'), "{said}");
    // Among other ranks' output it is looked for, so it is shown at the end.
    let output = herd.run(&["run", "-N", "2", "--", "python3", "train.py"]);
    assert!(stderr(&output).contains("│ ValueError: no data"));
}

#[test]
fn status_says_how_much_of_a_script_it_leaves_out() {
    let herd = Herd::new();
    herd.file("job.yaml", "run: |\n  echo 1\n  echo \t2\n\n  echo 3\n");
    assert_code(&herd.run(&["run", "job.yaml"]), 0);
    let status = |args: &[&str]| stdout(&herd.run(&[&["status"], args].concat()));
    let short = status(&[]);
    assert!(
        short.contains("Command:   echo 1 … and 3 more lines\n"),
        "{short}"
    );
    let wide = status(&["-o", "wide"]);
    let whole = "Command:   echo 1\n           echo \t2\n\n           echo 3\n";
    assert!(wide.contains(whole), "{wide}");
    let json: serde_json::Value = serde_json::from_str(&status(&["-o", "json"])).unwrap();
    assert_eq!(json["command"], "echo 1\necho \t2\n\necho 3\n");
    assert_code(&herd.run(&["run", "--", "echo", "a"]), 0);
    assert!(status(&[]).contains("Command:   echo a\n"));
}

#[test]
fn an_array_has_a_log_and_a_code_for_each_task_and_the_first_failure_is_the_jobs() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "nodes: 2\narray: 0-9:3,20%2\nrun: 'echo task $HERD_ARRAY_INDEX $SLURM_ARRAY_TASK_ID; [ \
         $HERD_ARRAY_INDEX != 6 ] || exit 4'\n",
    );
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 4);
    assert!(
        stderr(&output).contains("4 of 5 tasks succeeded"),
        "{}",
        stderr(&output)
    );
    for index in ["0", "3", "6", "9", "20"] {
        let log = herd.run(&["logs", "last", "--task", index]);
        assert_eq!(stdout(&log), format!("task {index} {index}\n"));
    }
    assert!(stdout(&herd.run(&["status", "last"])).contains('5'));
}

#[test]
fn a_cancelled_array_starts_no_further_task() {
    let herd = Herd::new();
    let started = herd.path("started");
    herd.file(
        "job.yaml",
        &format!(
            "array: 0-99%2\nrun: 'echo $$ >> {}; exec sleep 600'\n",
            started.display()
        ),
    );
    let run = herd.start(&["run", "job.yaml"]);
    eventually("two tasks", || live::pids(&started).len() == 2);
    signal(pid_of(&run), "-TERM");
    assert_code(&run.wait_with_output().unwrap(), 143);
    assert_eq!(live::pids(&started).len(), 2);
}

/// The job file that the home's newest job keeps.
fn kept_job_file(herd: &Herd, submitted: &std::process::Output) -> Vec<u8> {
    let id = stdout(submitted).trim().to_owned();
    assert_code(submitted, 0);
    assert_code(&herd.run(&["wait", &id]), 0);
    fs::read(herd.path("home/jobs").join(id).join("job.yaml")).unwrap()
}

#[test]
fn a_job_keeps_the_file_it_came_from_byte_for_byte() {
    let herd = Herd::new();
    let job = "# why it runs\r\nrun:   'true' # no newline at the end";
    herd.file("job.yaml", job);
    let submitted = herd.run(&["submit", "-N", "2", "job.yaml"]);
    assert_eq!(kept_job_file(&herd, &submitted), job.as_bytes());
    // SkyPilot's form stays what the user wrote, too.
    let task = "num_nodes: 1 # one\nrun: |\n  true\n";
    herd.file("task.yaml", task);
    let submitted = herd.run(&["submit", "task.yaml"]);
    assert_eq!(kept_job_file(&herd, &submitted), task.as_bytes());
    // A command has no file: what is kept is one that says the same.
    let submitted = herd.run(&["submit", "--", "sh", "-c", "true # 'quoted'"]);
    herd.file(
        "again.yaml",
        &String::from_utf8(kept_job_file(&herd, &submitted)).unwrap(),
    );
    assert_code(&herd.run(&["run", "again.yaml"]), 0);
}

#[test]
fn events_are_followed_to_the_end_of_the_job() {
    let herd = Herd::new();
    let go = herd.path("go");
    let script = format!("until [ -e {} ]; do sleep 0.1; done; exit 3", go.display());
    let id = stdout(&herd.run(&["submit", "-N", "2", "--", "sh", "-c", &script]));
    let follower = herd.start(&["events", "-f", id.trim()]);
    eventually("RUNNING", || {
        stdout(&herd.run(&["status", id.trim()])).contains("RUNNING")
    });
    fs::write(&go, "").unwrap();
    let output = follower.wait_with_output().unwrap();
    assert_code(&output, 0);
    let text = stdout(&output);
    assert_eq!(text.matches("node-joined").count(), 2, "{text}");
    assert_eq!(text.matches("rank-ended").count(), 2, "{text}");
    let sentence = "failed first, on node";
    assert!(
        text.lines()
            .any(|line| line.contains("FAILED") && line.contains(sentence)),
        "{text}"
    );
}

#[test]
fn every_phase_has_the_variables_of_herd_and_of_skypilot() {
    const NAMES: &str = "HERD_JOB_ID HERD_JOB_NAME HERD_ATTEMPT HERD_NODE_RANK HERD_NODE_NAME \
        HERD_NODE_IPS HERD_NUM_NODES HERD_RANK HERD_LOCAL_RANK HERD_WORLD_SIZE \
        HERD_NUM_GPUS_PER_NODE SKYPILOT_NODE_RANK SKYPILOT_NUM_NODES SKYPILOT_NODE_IPS \
        SKYPILOT_NUM_GPUS_PER_NODE SKYPILOT_TASK_ID";
    let herd = Herd::new();
    let check =
        format!("for n in {NAMES}; do [ -n \"${{!n+x}}\" ] || {{ echo no $n; exit 1; }}; done");
    let text = format!(
        "type: pytorch\nnodes: 2\nprocs_per_node: 2\nsetup:\n  on: each\n  run: |\n    {check}\n    \
         echo $HERD_RANK > setup.$HERD_NODE_RANK\nrun: |\n  {check}\n  echo $HERD_RANK/$HERD_LOCAL_RANK\n"
    );
    herd.file("job.yaml", &text);
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 0);
    let text = stdout(&output);
    let mut ranks: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    ranks.sort_unstable();
    assert_eq!(ranks, ["0/0", "1/1", "2/0", "3/1"]);
    for (node, first) in [("setup.0", "0\n"), ("setup.1", "2\n")] {
        assert_eq!(fs::read_to_string(herd.path(node)).unwrap(), first);
    }
}

#[test]
fn counts_and_times_are_those_of_the_whole_job() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "retry: {max: 1, on: [rank-failed], backoff: 1s}\nrun: exit 3\n",
    );
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 3);
    let said = stderr(&output);
    assert!(
        said.contains("attempt 1 failed, retries after 1 s: rank 0 failed first"),
        "{said}"
    );
    let last = said.lines().find(|line| line.contains("in 2 attempts"));
    let last = last.unwrap_or_else(|| panic!("{said}"));
    // Both attempts took milliseconds; the pause between them is time of the job.
    assert!(!last.contains(" ms in 2 attempts"), "{last}");
    assert_code(&herd.run(&["run", "--", "no-such-program-anywhere"]), 127);
    let status = stdout(&herd.run(&["status", "last"]));
    let rank = status
        .lines()
        .find(|line| line.starts_with("0 ") && line.contains("exit code 127"));
    assert!(rank.is_some_and(|line| line.contains(" - ")), "{status}");
}

#[test]
fn a_failure_that_retry_does_not_name_says_what_would() {
    let herd = Herd::new();
    for (rule, part) in [
        (
            "{max: 2}",
            "without `retry.on` only node-lost and driver-lost are",
        ),
        (
            "{max: 2, on: [time-limit]}",
            "`retry.on` names only time-limit",
        ),
    ] {
        for array in ["", "array: 0-1\n"] {
            herd.file("job.yaml", &format!("retry: {rule}\n{array}run: exit 3\n"));
            let output = herd.run(&["run", "job.yaml"]);
            assert_code(&output, 3);
            let whole = format!("not retried: {part}; this was rank-failed, or \"exit:3\"");
            let said = stderr(&output);
            assert!(said.contains(&whole), "{said}");
            for question in ["why", "status"] {
                let answer = stdout(&herd.run(&[question, "last"]));
                assert!(answer.contains(&whole), "{answer}");
            }
        }
    }
}
