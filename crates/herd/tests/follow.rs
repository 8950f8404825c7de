//! The client role *follow*: the merged output as the job's driver sends it over the link.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Child;

use live::{Herd, assert_code, eventually, pid_of, signal, stderr, stdout};

/// A job whose ranks write `lines` lines, wait for the file `go`, and write one more.
fn submit(herd: &Herd, lines: u32, extra: &str) {
    let go = herd.path("go");
    herd.file(
        "job.yaml",
        &format!(
            "type: pytorch\nnodes: 2\nprocs_per_node: 2\n{extra}run: |\n  \
             for i in $(seq {lines}); do echo $RANK:$i; done\n  \
             while [ ! -e {} ]; do sleep 0.05; done\n  echo last of $RANK\n",
            go.display()
        ),
    );
    assert_code(&herd.run(&["submit", "job.yaml"]), 0);
}

fn go(herd: &Herd) {
    fs::write(herd.path("go"), "").unwrap();
}

/// Reads from a follower until a line comes that contains `text`; what came so far.
fn read_until(child: &mut Child, text: &str) -> String {
    let mut reader = BufReader::new(child.stdout.as_mut().unwrap());
    let mut all = String::new();
    while !all.lines().last().unwrap_or_default().contains(text) {
        let read = reader.read_line(&mut all).unwrap();
        assert!(read > 0, "it ended after:\n{all}");
    }
    // Nothing that was read ahead may be lost.
    all.push_str(&String::from_utf8_lossy(reader.buffer()));
    all
}

fn rest(child: &mut Child) -> String {
    let mut text = String::new();
    let out = child.stdout.as_mut().unwrap();
    out.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn i7_what_is_followed_live_is_the_merged_output_whole_and_in_order() {
    let herd = Herd::new();
    submit(&herd, 2000, "");
    let mut follower = herd.start(&["logs", "-f", "--live"]);
    let mut shown = read_until(&mut follower, ":2000");
    go(&herd);
    shown.push_str(&rest(&mut follower));
    assert_code(&follower.wait_with_output().unwrap(), 0);
    assert_eq!(
        shown,
        fs::read_to_string(herd.job_dir().join("run.log")).unwrap()
    );
    assert_eq!(shown.lines().count(), 4 * 2001);
}

#[test]
fn a_live_follower_selects_as_one_of_the_files_does() {
    let herd = Herd::new();
    submit(&herd, 50, "");
    let mut all = herd.start(&["logs", "-f"]);
    read_until(&mut all, ":50");
    for rank in 0..4 {
        eventually("all ranks' first lines", || {
            let log = fs::read_to_string(herd.job_dir().join("run.log")).unwrap_or_default();
            log.contains(&format!("rank={rank}) {rank}:50\n"))
        });
    }
    let args = ["logs", "-f", "--live", "--rank", "3", "--tail", "2"];
    let mut follower = herd.start(&args);
    let mut shown = read_until(&mut follower, "3:50");
    go(&herd);
    shown.push_str(&rest(&mut follower));
    assert_code(&follower.wait_with_output().unwrap(), 0);
    let expected = "(node1, rank=3) 3:49\n(node1, rank=3) 3:50\n(node1, rank=3) last of 3\n";
    assert_eq!(shown, expected);
    all.kill().unwrap();
    all.wait().unwrap();
}

#[test]
fn a_live_follower_goes_on_with_the_next_attempt() {
    let herd = Herd::new();
    herd.file(
        "job.yaml",
        "retry: {max: 1, on: [\"exit:75\"], backoff: 0s}\n\
         run: |\n  echo attempt $HERD_ATTEMPT\n  [ $HERD_ATTEMPT = 2 ] || exit 75\n",
    );
    assert_code(&herd.run(&["submit", "job.yaml"]), 0);
    let output = herd.run(&["logs", "-f", "--live"]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "attempt 1\nattempt 2\n");
}

#[test]
fn i3_a_live_follower_of_a_driver_that_is_killed_ends_with_what_there_is() {
    let herd = Herd::new();
    submit(&herd, 100, "");
    let mut follower = herd.start(&["logs", "-f", "--live"]);
    let mut shown = read_until(&mut follower, ":100");
    let driver = fs::read_to_string(herd.job_dir().join("attempts/1/driver.json")).unwrap();
    let (_, pid) = driver.split_once("\"pid\":").unwrap();
    let pid: String = pid.chars().take_while(char::is_ascii_digit).collect();
    signal(pid.parse().unwrap(), "-KILL");
    shown.push_str(&rest(&mut follower));
    assert_code(&follower.wait_with_output().unwrap(), 0);
    assert_eq!(
        shown,
        fs::read_to_string(herd.job_dir().join("run.log")).unwrap()
    );
}

#[test]
fn i6_a_follower_that_takes_nothing_does_not_hold_up_the_end() {
    let herd = Herd::new();
    submit(&herd, 40_000, "");
    let mut follower = herd.start(&["logs", "-f", "--live"]);
    read_until(&mut follower, ":");
    signal(pid_of(&follower), "-STOP");
    go(&herd);
    assert_code(&herd.run(&["wait", "last", "--timeout", "60s"]), 0);
    signal(pid_of(&follower), "-CONT");
    let text = rest(&mut follower);
    let output = follower.wait_with_output().unwrap();
    assert_code(&output, 0);
    assert!(text.contains("last of 3\n"), "{}", stderr(&output));
}

#[test]
fn i7_one_that_reads_no_more_ends_alone() {
    let herd = Herd::new();
    submit(&herd, 40_000, "");
    let mut follower = herd.start(&["logs", "-f", "--live"]);
    drop(follower.stdout.take());
    go(&herd);
    assert!(follower.wait().unwrap().code().is_some());
    assert_code(&herd.run(&["wait", "last", "--timeout", "60s"]), 0);
}
