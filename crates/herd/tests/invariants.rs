//! Invariants of whole jobs that no other test of the built binary is about: one end (I1), absence
//! is not death (I3), one owner (I4), nothing started that cannot be honoured (I13).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs;
use std::path::Path;
use std::process::Command;

use herd_testing::job::ends;
use live::{Herd, alive, assert_code, children, eventually, pid_of, pids, signal, stderr, stdout};

fn content(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

#[test]
fn i1_an_attempt_has_one_end_however_many_reasons_come_together() {
    let herd = Herd::new();
    let list = herd.path("pids");
    let run = herd.start(&[
        "run",
        "-N",
        "2",
        "--",
        "sh",
        "-c",
        "echo $$ >> pids; exec sleep 3000",
    ]);
    eventually("both ranks", || pids(&list).len() == 2);
    // A rank dies, an executor dies, the user cancels: all within a moment.
    let executors = children(children(pid_of(&run))[0]);
    // Whichever is first may have ended the others before their signal comes.
    let kills = format!(
        "kill -KILL {}; kill -KILL {}; kill -TERM {}",
        pids(&list)[0],
        executors[1],
        pid_of(&run)
    );
    drop(Command::new("sh").args(["-c", &kills]).output());
    let output = run.wait_with_output().unwrap();
    assert!(
        matches!(output.status.code(), Some(125 | 137 | 143)),
        "{:?}",
        output.status
    );
    assert_eq!(ends(&herd.events()), 1, "{}", herd.events());
    let end = fs::read_to_string(herd.job_dir().join("attempts/1/end")).unwrap();
    assert_eq!(end.lines().count(), 1);
    let code = format!("\"exit_code\":{}", output.status.code().unwrap());
    assert!(end.contains(&code), "{end}");
}

#[test]
fn i1_a_job_that_has_ended_does_not_change() {
    let herd = Herd::new();
    assert_code(&herd.run(&["run", "--", "sh", "-c", "exit 5"]), 5);
    let job = herd.job_dir();
    let files = [
        job.join("result.json"),
        job.join("attempts/1/end"),
        job.join("attempts/1/events.jsonl"),
    ];
    let before: Vec<_> = files.iter().map(|file| content(file)).collect();
    herd.run(&["cancel", "last"]);
    // A driver that is started again finds the job owned.
    let home = herd.path("home");
    let id = job.file_name().unwrap().to_str().unwrap();
    assert_code(&herd.run(&["driver", home.to_str().unwrap(), id]), 125);
    for args in [
        &["status", "last"][..],
        &["ls", "--all"],
        &["wait", "last"],
        &["why", "last"],
    ] {
        herd.run(args);
    }
    let after: Vec<_> = files.iter().map(|file| content(file)).collect();
    assert_eq!(before, after);
}

#[test]
fn i3_a_driver_that_does_not_answer_is_not_called_dead() {
    let herd = Herd::new();
    let (ready, go) = (herd.path("ready"), herd.path("go"));
    let run = herd.start(&[
        "run",
        "--",
        "sh",
        "-c",
        "touch ready; until [ -e go ]; do sleep 0.1; done; exit 4",
    ]);
    eventually("the rank", || ready.exists());
    let driver = children(pid_of(&run))[0];
    signal(driver, "-STOP");
    for _ in 0..3 {
        let status = stdout(&herd.run(&["status", "last"]));
        assert!(status.contains("RUNNING"), "{status}");
    }
    assert!(!herd.job_dir().join("result.json").exists());
    signal(driver, "-CONT");
    fs::write(go, "").unwrap();
    assert_code(&run.wait_with_output().unwrap(), 4);
}

#[test]
fn i4_a_second_driver_of_a_job_stops_itself_and_writes_nothing() {
    let herd = Herd::new();
    let (ready, go) = (herd.path("ready"), herd.path("go"));
    let run = herd.start(&[
        "run",
        "--",
        "sh",
        "-c",
        "touch ready; until [ -e go ]; do sleep 0.1; done; exit 4",
    ]);
    eventually("the rank", || ready.exists());
    let home = herd.path("home");
    let job = herd.job_dir();
    let id = job.file_name().unwrap().to_str().unwrap();
    let driver = content(&job.join("attempts/1/driver.json"));
    let second = herd.run(&["driver", home.to_str().unwrap(), id]);
    assert_code(&second, 125);
    assert!(
        stderr(&second).contains("has a driver already"),
        "{}",
        stderr(&second)
    );
    assert_eq!(content(&job.join("attempts/1/driver.json")), driver);
    assert!(!job.join("result.json").exists());
    fs::write(go, "").unwrap();
    assert_code(&run.wait_with_output().unwrap(), 4);
    assert_eq!(ends(&herd.events()), 1);
}

#[test]
fn i4_an_executor_of_an_earlier_attempt_is_not_let_in() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "retry: {max: 1, on: ['exit:75'], backoff: 10ms}\nrun: |\n  \
         [ $HERD_ATTEMPT = 2 ] || exit 75\n  touch ready\n  until [ -e go ]; do sleep 0.1; done\n",
    );
    let run = herd.start(&["run", "job.yaml"]);
    eventually("the second attempt", || herd.path("ready").exists());
    let job = herd.job_dir();
    let text = fs::read_to_string(job.join("attempts/2/driver.json")).unwrap();
    let (_, rest) = text.split_once("\"address\":\"").unwrap();
    let address = rest.split('"').next().unwrap();
    let key = job.join("key");
    let late = herd.run(&[
        "executor",
        "--coordinator",
        address,
        "--job",
        job.file_name().unwrap().to_str().unwrap(),
        "--attempt",
        "1",
        "--node",
        "node0",
        "--address",
        "127.0.0.1",
        "--key-file",
        key.to_str().unwrap(),
    ]);
    assert_code(&late, 125);
    fs::write(herd.path("go"), "").unwrap();
    assert_code(&run.wait_with_output().unwrap(), 0);
}

#[test]
fn i13_what_cannot_be_honoured_is_refused_and_nothing_is_written_or_started() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "image: registry/x:1\ndatasets: [{name: a/b, mode: required, mount: /data}]\n\
         org: lab\nbackend: local\nresources: {gpus: 999}\nrun: touch ran\n",
    );
    let output = herd.run(&["run", "job.yaml"]);
    assert_code(&output, 2);
    let text = stderr(&output);
    // Every reason at once, each with what to change.
    for key in ["image", "datasets", "org", "gpus"] {
        assert!(text.contains(key), "{key} is not in\n{text}");
    }
    assert!(text.matches("hint:").count() >= 4, "{text}");
    assert!(!herd.path("ran").exists());
    let jobs = fs::read_dir(herd.path("home/jobs")).map_or(0, Iterator::count);
    assert_eq!(jobs, 0);
    assert!(
        children(i32::try_from(std::process::id()).unwrap())
            .iter()
            .all(|&pid| alive(pid))
    );
}
