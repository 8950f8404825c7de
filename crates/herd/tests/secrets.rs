//! I12: a secret is in the ranks' environment and nowhere else: not in the arguments or environment
//! of herd's own processes, not in a log, a record or an answer.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use herd_testing::process::arguments_and_environment;
use live::{Herd, assert_code, children, eventually, pid_of, pids, signal, stderr, stdout};

const SECRET: &str = "s3cr3t-0f-the-te5t";

fn holds(bytes: &[u8]) -> bool {
    bytes
        .windows(SECRET.len())
        .any(|window| window == SECRET.as_bytes())
}

/// Files below a directory that hold the secret.
fn found_in(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(found_in(&path));
        } else if fs::read(&path).is_ok_and(|bytes| holds(&bytes)) {
            found.push(path.display().to_string());
        }
    }
    found
}

/// All processes below one, with itself, but without `ranks` and what is below those.
fn tree(root: i32, ranks: &[i32]) -> Vec<i32> {
    let mut all = vec![root];
    let mut next = 0;
    while let Some(&parent) = all.get(next) {
        all.extend(children(parent).iter().filter(|pid| !ranks.contains(pid)));
        next += 1;
    }
    all
}

#[test]
fn i12_no_process_of_herd_shows_a_secret_and_no_record_keeps_it() {
    let herd = Herd::new();
    herd.file("token", &format!("{SECRET}\n"));
    let list = herd.path("pids");
    herd.file(
        "job.yaml",
        "nodes: 2\nsecrets: {TOKEN: {file: token}, OTHER: {env: GIVEN}}\nsetup: '[ -n \"$TOKEN\" ]'\n\
         run: |\n  echo $$ >> pids\n  [ \"$TOKEN\" = \"$OTHER\" ] || exit 3\n  \
         until [ -e go ]; do sleep 0.1; done\n  exit 4\n",
    );
    let mut command = herd.command(&["run", "job.yaml"]);
    command
        .env("GIVEN", SECRET)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let run = command.spawn().unwrap();
    eventually("both ranks", || pids(&list).len() == 2);

    let own = tree(pid_of(&run), &pids(&list));
    // Guard, driver and two executors.
    assert_eq!(own.len(), 4);
    for &pid in &own {
        let (arguments, environment) = arguments_and_environment(pid);
        let name = String::from_utf8_lossy(&arguments).replace('\0', " ");
        assert!(!holds(&arguments), "in the arguments of {name}");
        assert!(!holds(&environment), "in the environment of {name}");
    }
    let job = herd.job_dir();
    let secrets = job.join("secrets.json");
    let mode = fs::metadata(&secrets).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(found_in(&job), [secrets.display().to_string()]);
    for args in [
        &["status", "last", "-o", "json"][..],
        &["events", "last"],
        &["events", "last", "-o", "json"],
        &["logs", "last"],
        &["why", "last"],
        &["ls", "-o", "json"],
        &["render", "job.yaml"],
    ] {
        let mut command = herd.command(args);
        let output = command.env("GIVEN", SECRET).output().unwrap();
        assert!(!holds(&output.stdout) && !holds(&output.stderr), "{args:?}");
    }

    fs::write(herd.path("go"), "").unwrap();
    let output = run.wait_with_output().unwrap();
    assert_code(&output, 4);
    assert!(!stdout(&output).contains(SECRET) && !stderr(&output).contains(SECRET));
    assert!(!secrets.exists());
    assert_eq!(found_in(&job), [""; 0]);
}

#[test]
fn i12_secrets_are_deleted_however_a_job_ends() {
    for (name, code) in [("-TERM", Some(143)), ("-KILL", None)] {
        let herd = Herd::new();
        herd.file("token", SECRET);
        herd.file(
            "job.yaml",
            "secrets: {TOKEN: {file: token}}\nrun: echo $$ >> pids; exec sleep 3000\n",
        );
        let run = herd.start(&["run", "job.yaml"]);
        eventually("the rank", || pids(&herd.path("pids")).len() == 1);
        let secrets = herd.job_dir().join("secrets.json");
        assert!(secrets.exists());
        signal(pid_of(&run), name);
        assert_eq!(run.wait_with_output().unwrap().status.code(), code);
        eventually("the end of the secrets", || !secrets.exists());
        assert_eq!(found_in(&herd.job_dir()), [""; 0]);
    }
}

#[test]
fn i12_a_fault_that_names_a_secret_does_not_show_its_value() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        &format!("secrets: {{TOKEN: {SECRET}}}\nrun: true\n"),
    );
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 2);
    assert!(!holds(&output.stderr), "{}", stderr(&output));
}
