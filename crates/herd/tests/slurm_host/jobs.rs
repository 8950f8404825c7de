//! From the laptop everything works as it does locally.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use herd_core::JobId;
use herd_core::spec::Command::Argv;
use herd_core::spec::JobSpec;
use herd_login::protocol::{Job, Reply, Request, Secrets, Submitted};
use herd_testing::process::arguments_and_environment;
use herd_testing::{signal, within};

use crate::laptop::{DEADLINE, Laptop, Running};

#[test]
fn a_first_job_works_in_a_copy_of_its_directory_and_its_code_comes_back() {
    let laptop = Laptop::new();
    fs::write(laptop.path("work/data.txt"), "from the laptop\n").unwrap();
    fs::write(laptop.path("work/.herdignore"), "*.big\n").unwrap();
    fs::write(laptop.path("work/x.big"), "no").unwrap();
    let script = "cat data.txt; ls; hostname; mkdir out; echo result > out/x.big; exit 7";
    let answer = laptop.ask(&["run", "-b", "far", "--", "sh", "-c", script]);
    assert_eq!(answer.code, 7, "{answer:?}");
    let lines: Vec<&str> = answer.out.lines().collect();
    assert_eq!(lines[..2], ["from the laptop", "data.txt"], "{answer:?}");
    assert!(lines[2].starts_with("node"), "{answer:?}");
    assert!(answer.err.contains("of Slurm, on login1"), "{answer:?}");
    let row = &laptop.json(&["ls"])[0];
    assert_eq!(
        (&row["state"], &row["exit_code"]),
        (&"FAILED".into(), &7.into())
    );
    assert_eq!(row["backend"], "far");
    let got = laptop.ask(&["get", "last", "back"]);
    assert_eq!(got.code, 0, "{got:?}");
    assert_eq!(
        fs::read(laptop.path("work/back/out/x.big")).unwrap(),
        b"result\n"
    );
    assert_eq!(laptop.ask(&["get", "last", "back"]).code, 2);
    fs::remove_dir_all(laptop.path("work/back")).unwrap();
    // Two nodes, and once more without copying the programs.
    let answer = laptop.ask(&["run", "-b", "far", "-N", "2", "--", "hostname"]);
    assert_eq!(
        (answer.code, answer.out.lines().count()),
        (0, 2),
        "{answer:?}"
    );
    let programs = laptop.cluster.home.join(".local/state/herd/programs");
    let names = fs::read_dir(programs).unwrap().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // Another test's copy may be on its way.
    assert_eq!(names.filter(|name| !name.starts_with("new.")).count(), 1);
    let logs = laptop.ask(&["logs", "--rank", "1"]);
    assert_eq!(logs.out.lines().count(), 1, "{logs:?}");
}

#[test]
fn i7_a_job_that_is_known_to_have_ended_is_followed_to_its_last_line() {
    let laptop = Laptop::new();
    let job = laptop.submit(&["--", "sh", "-c", "echo one; echo two"]);
    // Its end is heard of, and nothing of what it has printed.
    assert_eq!(laptop.ask(&["wait", &job]).code, 0);
    assert!(!laptop.path("home/jobs").join(&job).join("run.log").exists());
    let logs = laptop.ask(&["logs", "--follow", &job]);
    assert_eq!(
        (logs.code, logs.out.as_str()),
        (0, "one\ntwo\n"),
        "{logs:?}"
    );
}

#[test]
fn output_comes_while_the_job_runs_and_exec_goes_into_it() {
    let laptop = Laptop::new();
    let script = "echo first; while ! [ -e end ]; do sleep 0.05; done; echo second; exit 4";
    let mut run =
        Running::start(laptop.herd(&["run", "-b", "far", "-J", "slow", "--", "sh", "-c", script]));
    assert_eq!(run.line(), "first");
    let mut exec = laptop
        .herd(&["exec", "slow", "--", "sh", "-c", "cat > go; cat go; exit 9"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    exec.stdin.take().unwrap().write_all(b"passed on").unwrap();
    let output = exec.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"passed on", "{output:?}");
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    laptop.touch_in("slow", "end");
    let answer = run.end();
    assert_eq!(
        (answer.code, answer.out.as_str()),
        (4, "second\n"),
        "{answer:?}"
    );
}

#[test]
fn jobs_in_the_queue_are_held_released_explained_and_cancelled() {
    let laptop = Laptop::new();
    // It waits for nodes that no other test needs.
    let job = laptop.submit(&["-J", "waits", "--", "sleep", "600"]);
    laptop.await_state(&job, "RUNNING");
    let after = laptop.path("work/after.yaml");
    fs::write(
        &after,
        format!("name: second\nrun: 'true'\nafter: [{job}]\n"),
    )
    .unwrap();
    let second = laptop.submit(&[after.to_str().unwrap()]);
    let why = laptop.json(&["why", &second]);
    assert!(why["why"].as_str().unwrap().contains("Dependency"), "{why}");
    let held = laptop.ask(&["hold", &second]);
    assert_eq!(held.code, 0, "{held:?}");
    let again = laptop.ask(&["requeue", &second]);
    assert_eq!(again.code, 125, "{again:?}");
    assert!(
        again.err.contains("waits in the queue already"),
        "{again:?}"
    );
    assert!(again.err.contains("hint: `herd why"), "{again:?}");
    assert_eq!(laptop.ask(&["release", &second]).code, 0);
    assert_eq!(laptop.ask(&["cancel", "second"]).code, 0);
    assert_eq!(laptop.ask(&["cancel", "waits"]).code, 0);
    let ended = laptop.ask(&["wait", &job, &second]);
    assert_eq!(ended.code, 130, "{ended:?}");
    assert_eq!(laptop.state(&job), "CANCELLED");
}

#[test]
fn asked_to_end_herd_run_cancels_the_job() {
    let laptop = Laptop::new();
    let script = "trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.05; done";
    let mut run = Running::start(laptop.herd(&["run", "-b", "far", "--", "sh", "-c", script]));
    assert_eq!(run.line(), "up");
    signal(i32::try_from(run.child.id()).unwrap(), "-TERM");
    let answer = run.end();
    assert_eq!(answer.code, 130, "{answer:?}");
    assert!(answer.out.contains("asked"), "{answer:?}");
    assert!(answer.err.contains("CANCELLED"), "{answer:?}");
}

#[test]
fn arrays_and_their_tasks_are_seen_from_here() {
    let laptop = Laptop::new();
    let file = laptop.path("work/sweep.yaml");
    fs::write(
        &file,
        "array: 0-3\nrun: 'echo task $HERD_ARRAY_INDEX; exit $((HERD_ARRAY_INDEX == 2))'\n",
    )
    .unwrap();
    let answer = laptop.ask(&["run", "-b", "far", file.to_str().unwrap()]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert_eq!(answer.out.lines().count(), 4, "{answer:?}");
    let log = laptop.ask(&["logs", "--task", "3"]);
    assert_eq!(log.out, "task 3\n", "{log:?}");
    assert_eq!(laptop.json(&["status"])["tasks"]["failed"], 1);
}

/// Where jobs are on the login node, which knows nothing of this process's variables.
fn home_there() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective());
    let home = user.unwrap().unwrap().dir;
    home.join(".local/state/herd").display().to_string()
}

#[test]
fn render_and_doctor_ask_the_login_node() {
    let laptop = Laptop::new();
    let script = laptop.ask(&["render", "-b", "far", "-N", "2", "--", "true"]);
    let plan = laptop.ask(&["render", "-b", "far", "-o", "json", "--", "true"]);
    assert!(script.out.contains("#SBATCH --nodes=2"), "{script:?}");
    let home = home_there();
    assert!(script.out.contains(&home), "{script:?}");
    assert!(plan.out.contains("\"far\""), "{plan:?}");
    let doctor = laptop.json(&["doctor", "-b", "far"]);
    let of = |check: &str| {
        let found = doctor
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["check"] == check);
        found.unwrap_or_else(|| panic!("no {check}: {doctor}"))["detail"].to_string()
    };
    assert!(of("ssh").contains("login1 answered after"));
    assert!(of("remote").contains(&home));
    assert!(of("slurm").contains("cluster lab"));
}

#[test]
fn i12_a_secret_is_on_no_command_line_and_in_no_file_that_others_read() {
    let laptop = Laptop::new();
    let secret = "hunter2-of-the-laptop";
    let script = "printf %s \"$TOKEN\" | wc -c; while ! [ -e go ]; do sleep 0.05; done";
    let mut command = laptop.herd(&[
        "run", "-b", "far", "-J", "quiet", "--secret", "TOKEN", "--", "sh", "-c", script,
    ]);
    command.env("TOKEN", secret);
    let mut run = Running::start(command);
    let seen = |bytes: &[u8]| {
        bytes
            .windows(secret.len())
            .any(|part| part == secret.as_bytes())
    };
    let scan = || {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let (arguments, _) = arguments_and_environment(pid);
            assert!(!seen(&arguments), "process {pid} shows it");
        }
    };
    // While it travels.
    within(DEADLINE, "the job", || {
        scan();
        laptop.path("home/jobs").is_dir() && laptop.ask(&["ls"]).out.contains("RUNNING")
    });
    assert_eq!(run.line().trim(), secret.len().to_string());
    scan();
    let mut found = 0;
    for root in [laptop.dir.path(), &laptop.cluster.home] {
        let mut directories = vec![root.to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let Ok(meta) = fs::symlink_metadata(entry.path()) else {
                    continue;
                };
                if meta.is_dir() && !entry.path().ends_with("programs") {
                    directories.push(entry.path());
                } else if meta.is_file() && fs::read(entry.path()).is_ok_and(|bytes| seen(&bytes)) {
                    found += 1;
                    assert_eq!(meta.permissions().mode() & 0o077, 0, "{:?}", entry.path());
                    assert!(
                        !entry.path().starts_with(laptop.dir.path()),
                        "{:?}",
                        entry.path()
                    );
                }
            }
        }
    }
    assert_eq!(found, 1, "only the job's own file on the cluster holds it");
    laptop.touch_in("quiet", "go");
    assert_eq!(run.end().code, 0);
}

#[test]
fn i2_a_submission_that_is_sent_again_is_the_same_job() {
    let laptop = Laptop::new();
    let id = JobId::generate();
    let ask = |id: JobId| -> Reply<Submitted> {
        let request = Request::Submit {
            job: Job {
                id,
                backend: "far".to_owned(),
                cluster: None,
                node_dir: None,
                spec: JobSpec {
                    run: Some(Argv(vec!["true".to_owned()])),
                    workdir: Some("/".to_owned()),
                    ..JobSpec::default()
                },
                file_name: None,
                env: BTreeMap::new(),
            },
            secrets: Secrets::default(),
            job_yaml: "run: 'true'\n".to_owned(),
        };
        let bytes = serde_json::to_vec(&request).unwrap();
        let mut asked = laptop
            .cluster
            .lab
            .command(env!("CARGO_BIN_EXE_herd"))
            .args(["login-node", "mark"])
            .env("HERD_HOME", laptop.path("there"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = asked.stdin.take().unwrap();
        input
            .write_all(format!("{}\n", bytes.len()).as_bytes())
            .unwrap();
        input.write_all(&bytes).unwrap();
        drop(input);
        let output = asked.wait_with_output().unwrap();
        let answer = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(answer.lines().last().unwrap()).unwrap()
    };
    let first = ask(id).unwrap().number;
    // Two at once, and one that finds what a process left that died before it had Slurm's answer.
    let together = std::thread::scope(|scope| {
        let both = [scope.spawn(|| ask(id)), scope.spawn(|| ask(id))];
        both.map(|one| one.join().unwrap().unwrap().number)
    });
    assert_eq!(together, [first, first]);
    let record = laptop
        .path("there/jobs")
        .join(id.to_string())
        .join("slurm.json");
    fs::remove_file(record).unwrap();
    assert_eq!(ask(id).unwrap().number, first);
    assert!(ask(JobId::generate()).unwrap().number > first);
}

#[test]
fn a_login_shell_of_another_kind_changes_nothing() {
    let laptop = Laptop::new();
    let key = laptop.path("key");
    let made = std::process::Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&key)
        .status()
        .unwrap();
    assert!(made.success());
    // As sshd gives the command to the shell of a user.
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    let line = format!("command=\"exec tcsh -c \\\"$SSH_ORIGINAL_COMMAND\\\"\" {public}");
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(laptop.cluster.ssh.join("authorized"))
        .unwrap();
    file.write_all(line.as_bytes()).unwrap();
    laptop.ssh_config(&format!("IdentityFile {}", key.display()));
    let answer = laptop.ask(&[
        "run",
        "-b",
        "far",
        "--",
        "sh",
        "-c",
        "echo \"it's !new\"; exit 6",
    ]);
    assert_eq!(
        (answer.code, answer.out.as_str()),
        (6, "it's !new\n"),
        "{answer:?}"
    );
}
