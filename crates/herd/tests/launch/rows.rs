//! Rows of the launcher specification §18 on a machine that does nothing else.

use std::fs;
use std::io::Read as _;
use std::process::Command;
use std::time::{Duration, Instant};

use herd_testing::{alive, eventually, signal};

use crate::fixture::{
    Launch, assert_status, end_by_repeating, err, files, out, pid, program, sorted,
};

#[test]
pub(crate) fn row_5_the_environment_is_the_launchers_with_that_of_the_rank_over_it() {
    let launch = Launch::new("echo $RANK/$WORLD_SIZE $LOCAL_RANK $GIVEN");
    let output = launch
        .command(&["--nproc-per-node=2"], &[])
        .env("GIVEN", "kept")
        .env("RANK", "77")
        .output()
        .unwrap();
    assert_status(&output, 0);
    assert_eq!(sorted(&out(&output)), ["0/2 0 kept", "1/2 1 kept"]);
}

#[test]
pub(crate) fn row_6_what_goes_into_files_is_said_for_all_or_for_each_rank() {
    let launch = Launch::new("echo o; echo e >&2");
    for (value, rank, made) in [
        ("10:1", 10, ["stdout.log"].as_slice()),
        ("0:2,10:3", 10, &["stderr.log", "stdout.log"]),
        ("0:2", 0, &["stderr.log"]),
        ("3", 7, &["stderr.log", "stdout.log"]),
    ] {
        let logs = format!("logs-{value}");
        let flags = [
            "--nproc-per-node=11",
            "--log-dir",
            &logs,
            "--redirects",
            value,
        ];
        assert_status(&launch.run(&flags), 0);
        let of_rank = format!("attempt_0/{rank}/");
        let found = files(&launch.path(&logs));
        let found: Vec<&str> = found
            .iter()
            .filter_map(|f| Some(f.split_once(&of_rank)?.1))
            .collect();
        assert_eq!(found, made, "{value}");
    }
    for value in ["4", "0:1,", "a:1", "0:1:2", "-1"] {
        let output = launch.run(&[&format!("--redirects={value}")]);
        assert_status(&output, 2);
        assert!(err(&output).contains(value), "{value}: {}", err(&output));
    }
}

#[test]
pub(crate) fn row_7_tee_of_stdout_makes_only_that_file_for_each_rank() {
    let launch = Launch::new("echo o; echo e >&2");
    let output = launch.run(&["--nproc-per-node=2", "--log-dir=logs", "--tee=1"]);
    assert_status(&output, 0);
    assert_eq!(sorted(&out(&output)), ["[default0]:o", "[default1]:o"]);
    assert_eq!(err(&output), "e\ne\n");
    let found = files(&launch.path("logs"));
    let ends: Vec<&str> = found.iter().map(|f| f.split_once('/').unwrap().1).collect();
    assert_eq!(ends, ["attempt_0/0/stdout.log", "attempt_0/1/stdout.log"]);
}

#[test]
pub(crate) fn row_8_each_restart_is_an_attempt_with_its_own_directory() {
    let launch = Launch::new("echo $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS; exit 1");
    let output = launch.run(&["--max-restarts=3", "--log-dir=logs", "--redirects=3"]);
    assert_status(&output, 1);
    let found = files(&launch.path("logs"));
    for attempt in 0..4 {
        let name = found
            .iter()
            .find(|f| f.ends_with(&format!("attempt_{attempt}/0/stdout.log")))
            .unwrap();
        let text = fs::read_to_string(launch.path("logs").join(name)).unwrap();
        assert_eq!(text, format!("{attempt}/3\n"));
    }
}

#[test]
pub(crate) fn rows_9_and_10_a_file_is_no_log_directory_and_dev_null_keeps_nothing() {
    let launch = Launch::new("echo \"[$TORCHELASTIC_ERROR_FILE]\"");
    fs::write(launch.path("file"), "").unwrap();
    let output = launch.run(&["--log-dir=file"]);
    assert_status(&output, 1);
    assert!(err(&output).contains("not a directory"), "{}", err(&output));
    let output = launch.run(&["--log-dir=/dev/null", "--tee=3"]);
    assert_status(&output, 0);
    assert_eq!(out(&output), "[]\n");
    assert_eq!(files(launch.directory.path()), ["file", "worker"]);
}

#[test]
pub(crate) fn row_11_a_rank_filter_hides_the_others_and_their_files_are_whole() {
    let launch = Launch::new("echo $RANK; echo e$RANK >&2");
    let output = launch.run(&["--nproc-per-node=2", "--local-ranks-filter=1"]);
    assert_eq!((out(&output), err(&output)), ("1\n".into(), "e1\n".into()));
    let flags = [
        "--nproc-per-node=2",
        "--local-ranks-filter=1",
        "--tee=3",
        "--log-dir=logs",
    ];
    let output = launch.run(&flags);
    assert_eq!(out(&output), "[default1]:1\n");
    let found = files(&launch.path("logs"));
    let rank0 = found
        .iter()
        .find(|f| f.ends_with("0/0/stdout.log"))
        .unwrap();
    assert_eq!(
        fs::read_to_string(launch.path("logs").join(rank0)).unwrap(),
        "0\n"
    );
}

/// What the filter of standard output has kept.
fn filtered(launch: &Launch) -> String {
    let found = files(&launch.path("logs"));
    let file = found
        .iter()
        .find(|f| f.ends_with("attempt_0/filtered_stdout.log"))
        .unwrap();
    fs::read_to_string(launch.path("logs").join(file)).unwrap()
}

#[test]
pub(crate) fn row_12_filtered_lines_are_written_once_more_with_their_headers() {
    let launch = Launch::new("echo an apple; echo a zebra,led; echo nothing");
    let flags = [
        "--tee=3",
        "--log-dir=logs",
        "--duplicate-stdout-filters=app,,le,zed,ra,,l",
    ];
    assert_status(&launch.run(&flags), 0);
    assert_eq!(filtered(&launch), "[default0]:a zebra,led\n");
    // What only the header has is no match.
    let launch = Launch::new("echo loss");
    let flags = [
        "--tee=1",
        "--log-dir=logs",
        "--duplicate-stdout-filters=default",
    ];
    assert_status(&launch.run(&flags), 0);
    assert_eq!(filtered(&launch), "");
}

#[test]
pub(crate) fn row_13_lines_of_busy_ranks_are_shown_whole_and_once() {
    const LINES: usize = 100_000;
    let launch = Launch::new(&format!("seq -f \"$RANK:%.0f:{}\" {LINES}", "x".repeat(40)));
    let output = launch.run(&["--nproc-per-node=4", "--tee=3"]);
    assert_status(&output, 0);
    let text = out(&output);
    let mut next = [1; 4];
    for line in text.lines() {
        let rest = line.strip_prefix("[default").unwrap();
        let (rank, rest) = rest.split_once("]:").unwrap();
        let rank: usize = rank.parse().unwrap();
        assert_eq!(rest, format!("{rank}:{}:{}", next[rank], "x".repeat(40)));
        next[rank] += 1;
    }
    assert_eq!(next, [LINES + 1; 4]);
}

#[test]
pub(crate) fn rows_14_to_16_lines_come_soon_partial_ones_whole_and_the_last_at_the_end() {
    let launch = Launch::new(
        "echo first; until [ -e go ]; do sleep 0.02; done; printf abc; sleep 0.3; printf 'def\\n'; printf tail",
    );
    let mut child = launch.start(&["--tee=3"]);
    let mut stdout = child.stdout.take().unwrap();
    let mut seen = String::new();
    let mut byte = [0; 1];
    let began = Instant::now();
    while !seen.ends_with('\n') {
        stdout.read_exact(&mut byte).unwrap();
        seen.push(char::from(byte[0]));
    }
    // 0.3 s is the bound.
    assert!(began.elapsed() < Duration::from_millis(1500 + 5000));
    assert_eq!(seen, "[default0]:first\n");
    fs::write(launch.path("go"), "").unwrap();
    seen.clear();
    stdout.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, "[default0]:abcdef\n[default0]:tail\n");
    assert!(child.wait().unwrap().success());
}

#[test]
pub(crate) fn rows_21_and_29_the_shutdown_timeout_holds_after_a_failure() {
    let launch = Launch::new(
        "if [ $RANK = 0 ]; then until [ -e ready ]; do sleep 0.02; done; exit 3; fi
         trap '' TERM; touch ready; while :; do sleep 0.1; done",
    );
    let began = Instant::now();
    let output = launch.run(&["--nproc-per-node=2", "--shutdown-timeout=2"]);
    assert_status(&output, 1);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "bound 4 s, times five"
    );
    assert!(err(&output).contains("exitcode  : -9"), "{}", err(&output));
}

#[test]
pub(crate) fn rows_22_and_23_nothing_of_a_worker_is_left_however_it_ends() {
    for code in [0, 1] {
        let launch = Launch::new(&format!(
            "sleep 600 & echo $! >> left; setsid sleep 600 & echo $! >> left; exit {code}"
        ));
        assert_status(&launch.run(&[]), code);
        let left = launch.pids("left");
        assert_eq!(left.len(), 2);
        eventually("all are gone", || !left.iter().any(|&pid| alive(pid)));
    }
}

#[test]
pub(crate) fn row_24_nothing_is_left_when_the_launcher_is_killed() {
    let launch = Launch::new(
        "trap '' TERM; echo $$ >> all; setsid sleep 600 & echo $! >> all; while :; do sleep 0.1; done",
    );
    let mut child = launch.start(&["--nproc-per-node=2"]);
    eventually("all run", || launch.pids("all").len() == 4);
    let began = Instant::now();
    signal(pid(&child), "-KILL");
    child.wait().unwrap();
    let all = launch.pids("all");
    eventually("all are gone", || !all.iter().any(|&pid| alive(pid)));
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "bound 2 s, times five"
    );
}

#[test]
pub(crate) fn row_25_a_worker_leads_its_session() {
    let launch = Launch::new("ps -o pid=,pgid=,sid= -p $$");
    let output = launch.run(&[]);
    let text = out(&output);
    let numbers: Vec<&str> = text.split_whitespace().collect();
    assert!(
        numbers.len() == 3 && numbers.iter().all(|n| *n == numbers[0]),
        "{text}"
    );
}

#[test]
pub(crate) fn row_26_signals_reach_workers_as_themselves_and_the_status_is_1() {
    for (name, code) in [("INT", 1), ("TERM", 1), ("QUIT", 1), ("HUP", 1)] {
        let launch = Launch::new(&format!(
            "trap 'echo {name} >> got; exit 0' {name}; echo $$ >> ready; while :; do sleep 0.05; done"
        ));
        let child = launch.start(&["--nproc-per-node=2"]);
        eventually("both run", || launch.pids("ready").len() == 2);
        signal(pid(&child), &format!("-{name}"));
        let output = child.wait_with_output().unwrap();
        assert_status(&output, code);
        let got = fs::read_to_string(launch.path("got")).unwrap();
        assert_eq!(got, format!("{name}\n{name}\n"));
    }
}

#[test]
pub(crate) fn usr1_is_passed_on_and_ends_nobody() {
    let launch = Launch::new(
        "trap 'touch got' USR1; echo $$ > ready; until [ -e got ]; do sleep 0.05; done",
    );
    let child = launch.start(&[]);
    eventually("it runs", || !launch.pids("ready").is_empty());
    signal(pid(&child), "-USR1");
    assert_status(&child.wait_with_output().unwrap(), 0);
}

#[test]
pub(crate) fn row_27_signals_that_come_again_kill_and_leave_nobody() {
    let launch = Launch::new("trap '' TERM; echo $$ >> ready; while :; do sleep 0.05; done");
    let child = launch.start(&["--nproc-per-node=2"]);
    eventually("both run", || launch.pids("ready").len() == 2);
    let began = Instant::now();
    end_by_repeating(pid(&child));
    assert_status(&child.wait_with_output().unwrap(), 1);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "the grace would be 30 s"
    );
    assert!(!launch.pids("ready").iter().any(|&pid| alive(pid)));
}

#[test]
pub(crate) fn row_41_a_worker_has_all_variables_of_torchrun() {
    let launch = Launch::new("env");
    let output = launch
        .command(
            &["--role=trainer", "--max-restarts=2", "--rdzv-id=job7"],
            &[],
        )
        .env("HERD_RDZV_KEY", "secret")
        .output()
        .unwrap();
    let text = out(&output);
    for line in [
        "LOCAL_RANK=0",
        "RANK=0",
        "GROUP_RANK=0",
        "ROLE_RANK=0",
        "ROLE_NAME=trainer",
        "LOCAL_WORLD_SIZE=1",
        "WORLD_SIZE=1",
        "GROUP_WORLD_SIZE=1",
        "ROLE_WORLD_SIZE=1",
        "TORCHELASTIC_RESTART_COUNT=0",
        "TORCHELASTIC_MAX_RESTARTS=2",
        "TORCHELASTIC_USE_AGENT_STORE=False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
        "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT",
    ] {
        assert!(text.lines().any(|have| have == line), "no {line} in {text}");
    }
    for name in [
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_ERROR_FILE",
    ] {
        assert!(text.contains(&format!("{name}=")), "no {name} in {text}");
    }
    assert!(!text.contains("HERD_RDZV_KEY"));
}

#[test]
pub(crate) fn rows_42_and_43_macros_in_arguments_and_in_the_prefix() {
    let launch = Launch::new("echo \"$@\"");
    let output = launch
        .command(
            &["--nproc-per-node=1"],
            &["${local_rank}", "a$local_rank", "$$x", "${y}"],
        )
        .output()
        .unwrap();
    assert_eq!(out(&output), "0 a0 $x ${y}\n");
    let flags = [
        "--tee=3",
        "--log-line-prefix-template=<${role_name} ${rank} ${local_rank} ${node_rank} ${z}>",
    ];
    let output = launch.command(&flags, &["x"]).output().unwrap();
    assert_eq!(out(&output), "<default 0 0 0 ${z}>x\n");
}

#[test]
pub(crate) fn row_45_the_status_is_torchruns_or_the_workers() {
    let launch = Launch::new("exit 7");
    assert_status(&launch.run(&[]), 1);
    assert_status(&launch.run(&["--exit-code=worker"]), 7);
    assert_status(&launch.run(&["--no-such-flag"]), 2);
    let killed = Launch::new("kill -KILL $$");
    assert_status(&killed.run(&["--exit-code=worker"]), 137);
    assert_status(&Launch::new("exit 0").run(&[]), 0);
    let mut missing = program(env!("CARGO_BIN_EXE_herd"));
    let output = missing
        .args(["launch", "--no-python", "./nowhere"])
        .output()
        .unwrap();
    assert_status(&output, 1);
    assert!(err(&output).contains("not found"), "{}", err(&output));
}

#[test]
pub(crate) fn row_46_two_standalone_launches_at_once_do_not_meet() {
    let launch = Launch::new("echo $MASTER_PORT; until [ -e go ]; do sleep 0.02; done");
    let both = [
        launch.start(&["--standalone"]),
        launch.start(&["--standalone"]),
    ];
    fs::write(launch.path("go"), "").unwrap();
    let ports: Vec<String> = both
        .into_iter()
        .map(|child| out(&child.wait_with_output().unwrap()))
        .collect();
    assert_ne!(ports[0], ports[1]);
}

#[test]
pub(crate) fn herdrun_is_the_same_by_its_name() {
    let launch = Launch::new("echo $RANK");
    let link = launch.path("herdrun");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_herd"), &link).unwrap();
    let output = program(&link)
        .args(["--nproc_per_node", "2", "--no-python", "./worker"])
        .env("OMP_NUM_THREADS", "1")
        .current_dir(launch.directory.path())
        .output()
        .unwrap();
    assert_status(&output, 0);
    assert_eq!(sorted(&out(&output)), ["0", "1"]);
}

#[test]
pub(crate) fn d3_the_directory_that_nobody_named_goes_with_success_and_stays_after_a_failure() {
    let launch = Launch::new("exit $CODE");
    let left = |code: &str| {
        let mut command = launch.command(&["--redirects=3"], &[]);
        assert!(command.env("CODE", code).output().is_ok());
        fs::read_dir(launch.directory.path())
            .unwrap()
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with("torchelastic_"))
            .count()
    };
    assert_eq!(left("0"), 0);
    assert_eq!(left("1"), 1);
}

#[test]
pub(crate) fn the_console_can_show_some_ranks_while_files_have_all() {
    let launch = Launch::new("echo $RANK; echo e$RANK >&2");
    let flags = ["--nproc-per-node=3", "--tee-ranks=0", "--log-dir=logs"];
    let output = launch.run(&flags);
    assert_status(&output, 0);
    assert_eq!(out(&output), "[default0]:0\n");
    assert_eq!(err(&output), "[default0]:e0\n");
    assert_eq!(files(&launch.path("logs")).len(), 6);
}

#[test]
pub(crate) fn the_summary_tells_what_each_worker_used() {
    let launch = Launch::new("[ $RANK = 0 ] || exit 3");
    let output = launch.run(&["--nproc-per-node=2", "--summary"]);
    assert_status(&output, 1);
    let text = err(&output);
    let table = text.split("2 workers in").nth(1).unwrap();
    let codes: Vec<&str> = table
        .lines()
        .skip(2)
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(codes[1], "3", "{text}");
}

#[test]
fn what_cannot_be_started_is_named_with_what_helps() {
    let launch = Launch::new("touch started");
    fs::write(launch.path("plain"), "true\n").unwrap();
    fs::create_dir(launch.path("gone")).unwrap();
    let says = |command: &mut Command, words: &[&str]| {
        let output = command.output().unwrap();
        assert_status(&output, 1);
        let text = err(&output);
        for word in words {
            assert!(text.contains(word), "no {word:?} in {text}");
        }
        assert!(text.contains("\nhint: "), "{text}");
    };
    let herd = |arguments: &[&str]| {
        let mut command = program(env!("CARGO_BIN_EXE_herd"));
        command
            .arg("launch")
            .args(arguments)
            .current_dir(launch.directory.path());
        command
    };
    says(
        &mut herd(&["--no-python", "./nosuch"]),
        &["./nosuch", "not found"],
    );
    says(
        &mut herd(&["--no-python", "./plain"]),
        &["./plain", "chmod +x"],
    );
    says(
        herd(&["plain"]).env("PYTHON_EXEC", "/nosuch/python"),
        &["/nosuch/python", "PYTHON_EXEC"],
    );
    says(
        &mut herd(&["--log-dir=plain", "--no-python", "./worker"]),
        &["plain", "not a directory"],
    );
    let mut shell = program("sh");
    shell
        .args(["-c", "rmdir ../gone; exec \"$0\" launch --no-python true"])
        .arg(env!("CARGO_BIN_EXE_herd"))
        .current_dir(launch.path("gone"));
    says(&mut shell, &["working directory"]);
    assert!(!launch.path("started").exists());
}

#[test]
pub(crate) fn a_directory_for_temporary_files_that_is_not_there_is_another() {
    let launch = Launch::new("echo \"$TORCHELASTIC_ERROR_FILE\"");
    for missing in ["/nosuch", "/proc"] {
        let mut command = launch.command(&[], &[]);
        let output = command.env("TMPDIR", missing).output().unwrap();
        assert_status(&output, 0);
        assert!(
            out(&output).starts_with("/tmp/torchelastic_"),
            "{}",
            out(&output)
        );
    }
}
