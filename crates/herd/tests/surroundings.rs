//! Whatever surroundings herd is started in: namespaces, dispositions that a parent has left, jobs
//! that somebody removes meanwhile.

mod live;

use live::{Herd, alive, assert_code, children, eventually, pid_of, pids, signal, stderr, stdout};

#[test]
fn i8_in_a_pid_namespace_whose_group_lies_outside_the_code_still_comes_through() {
    let herd = Herd::new();
    let wrapper = ["unshare", "-pf", "--mount-proc"];
    let args = ["run", "--", "sh", "-c", "exit 4"];
    let output = herd.under(&wrapper, &args).output().unwrap();
    assert_code(&output, 4);
}

#[test]
fn i6_a_parent_that_ignores_sigchld_does_not_make_herd_wait_for_ever() {
    let herd = Herd::new();
    let script = "trap '' CHLD; exec timeout 60 \"$0\" \"$@\"";
    let args = ["run", "--", "sh", "-c", "exit 3"];
    let output = herd.under(&["bash", "-c", script], &args).output().unwrap();
    assert_code(&output, 3);
}

#[test]
fn i6_waiting_for_a_job_that_is_removed_ends_with_a_sentence() {
    let herd = Herd::new();
    assert_code(
        &herd.run(&["submit", "-J", "gone", "--", "sleep", "600"]),
        0,
    );
    eventually("it runs", || {
        stdout(&herd.run(&["ls", "-o", "json"])).contains("RUNNING")
    });
    let waiting = [
        &["wait", "gone"][..],
        &["logs", "-f", "gone"],
        &["events", "-f", "gone"],
    ]
    .map(|args| herd.start(args));
    let job = herd.job_dir();
    // As somebody would who knows no better; the driver ends with its directory, or by our signal.
    let driver = std::fs::read_to_string(job.join("attempts/1/driver.json")).unwrap();
    let driver: serde_json::Value = serde_json::from_str(&driver).unwrap();
    let driver = i32::try_from(driver["pid"].as_i64().unwrap()).unwrap();
    std::fs::rename(&job, herd.path("elsewhere")).unwrap();
    for child in waiting {
        let output = child.wait_with_output().unwrap();
        assert!(!output.status.success());
        let said = stderr(&output);
        // One that had not found it yet never will.
        let told = [
            "removed meanwhile",
            "no job is called",
            "cannot open the job",
        ];
        let told = told.iter().any(|text| said.contains(text));
        assert!(told, "{said}");
    }
    signal(driver, "-TERM");
    eventually("the driver is gone", || !alive(driver));
}

#[test]
fn i5_executors_end_what_is_left_when_guard_and_driver_are_killed_together() {
    let herd = Herd::new();
    let script = "trap '' TERM; echo $$ >> all; (setsid sleep 600 & echo $! >> all); \
                  (trap '' TERM; echo $BASHPID >> all; exec sleep 600) & while :; do sleep 0.1; done";
    let mut run = herd.start(&["run", "-N", "2", "--", "bash", "-c", script]);
    eventually("all run", || pids(&herd.path("all")).len() == 6);
    let guard = pid_of(&run);
    for pid in children(guard).into_iter().chain([guard]) {
        signal(pid, "-KILL");
    }
    run.wait().unwrap();
    let all = pids(&herd.path("all"));
    eventually("all are gone", || !all.iter().any(|&pid| alive(pid)));
}

#[test]
fn i6_a_lost_executor_is_named_with_what_it_said_last() {
    let herd = Herd::new();
    // Without loopback no executor reaches its coordinator.
    let mut command = herd.under(&["unshare", "-n"], &["run", "--", "true"]);
    let output = command.output().unwrap();
    assert_code(&output, 125);
    assert!(stderr(&output).contains("etwork"), "{}", stderr(&output));
}

#[test]
fn i13_what_this_machine_cannot_do_is_refused() {
    let herd = Herd::new();
    let long = format!("run: ['true', '{}']\n", "x".repeat(200_000));
    for (name, text, said) in [
        ("nodes", "nodes: 5000\nrun: 'true'\n", "at most 1024 nodes"),
        (
            "driver",
            "retry: {max: 1, on: [driver-lost]}\nrun: 'true'\n",
            "driver-lost",
        ),
        ("long", long.as_str(), "128 KiB"),
    ] {
        let file = herd.file(&format!("{name}.yaml"), text);
        let output = herd.run(&["run", file.to_str().unwrap()]);
        assert_code(&output, 2);
        assert!(
            stderr(&output).contains(said),
            "{name}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn i5_without_the_processes_of_its_own_namespace_nothing_is_started() {
    let herd = Herd::new();
    // The numbers that this `/proc` shows are other processes' here.
    for (wrapper, said) in [
        (&["unshare", "-pf"][..], "another PID namespace"),
        (
            &[
                "unshare",
                "-m",
                "sh",
                "-c",
                "mount -t tmpfs none /proc && exec \"$0\" \"$@\"",
            ],
            "cannot be seen in /proc",
        ),
    ] {
        let args = ["run", "-J", "blind", "--", "sh", "-c", "echo started"];
        let output = herd.under(wrapper, &args).output().unwrap();
        assert_code(&output, 125);
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
        assert!(stderr(&output).contains("hint:"), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
        // It has ended for all who look later.
        assert_code(&herd.run(&["wait", "blind"]), 125);
    }
}

#[test]
fn herd_raises_its_limit_of_open_files_and_ranks_get_the_callers() {
    let herd = Herd::new();
    let script = "ulimit -Sn 64; exec \"$0\" \"$@\"";
    let args = ["run", "-N", "40", "--prefix", "none", "--"];
    let args = [&args[..], &["sh", "-c", "ulimit -Sn"]].concat();
    let output = herd.under(&["bash", "-c", script], &args).output().unwrap();
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "64\n".repeat(40));
}

#[test]
fn a_limit_of_file_sizes_is_told_like_a_full_disk() {
    let herd = Herd::new();
    let script = "ulimit -f 1; exec \"$0\" \"$@\"";
    // More nodes than records of that size can tell of.
    let args = ["run", "-N", "40", "--", "true"];
    let output = herd.under(&["bash", "-c", script], &args).output().unwrap();
    assert_code(&output, 125);
    let said = stderr(&output);
    assert!(said.contains("File too large"), "{said}");
}

#[test]
fn i2_a_job_that_no_driver_took_is_cancelled_by_taking_it() {
    let herd = Herd::new();
    assert_code(&herd.run(&["run", "-J", "left", "--", "true"]), 0);
    // As a crash leaves it between the writing of the job and the start of its driver.
    let job = herd.job_dir();
    std::fs::remove_file(job.join("result.json")).unwrap();
    for name in ["owner", "driver.json", "end", "events.jsonl"] {
        std::fs::remove_file(job.join("attempts/1").join(name)).unwrap();
    }
    assert_code(&herd.run(&["cancel", "left"]), 0);
    assert_code(&herd.run(&["wait", "left"]), 130);
    assert!(stdout(&herd.run(&["status", "left"])).contains("CANCELLED"));
    let home = herd.path("home");
    let id = job.file_name().unwrap().to_str().unwrap();
    let late = herd.run(&["driver", home.to_str().unwrap(), id]);
    assert_code(&late, 125);
    assert!(stdout(&herd.run(&["status", "left"])).contains("CANCELLED"));
}
