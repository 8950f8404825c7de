//! `herd exec` and `herd rsh`: commands inside a running job, over the link.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use live::{Herd, alive, assert_code, eventually, pid_of, pids, signal, stderr, stdout};

/// A job of two nodes that runs until `stop` exists.
fn running(herd: &Herd) -> Child {
    let script = "touch ready.$HERD_RANK; until [ -e stop ]; do sleep 0.05; done";
    let child = herd.start(&[
        "run",
        "-N",
        "2",
        "--env",
        "COLOUR=blue",
        "--",
        "sh",
        "-c",
        script,
    ]);
    eventually("both nodes run", || {
        herd.path("ready.0").exists() && herd.path("ready.1").exists()
    });
    child
}

/// Lets the job end; it must not have suffered.
fn end(herd: &Herd, child: Child) {
    herd.file("stop", "");
    assert_code(&child.wait_with_output().unwrap(), 0);
}

#[test]
fn a_command_has_the_ranks_environment_and_its_streams_and_code_come_back() {
    let herd = Herd::new();
    let job = running(&herd);
    let script = "echo $HERD_RANK $HERD_NODE_NAME $COLOUR; echo complaint >&2; exit 5";
    let output = herd.run(&["exec", "last", "--rank", "1", "--", "sh", "-c", script]);
    assert_code(&output, 5);
    assert_eq!(stdout(&output), "1 node1 blue\n");
    assert_eq!(stderr(&output), "complaint\n");
    let killed = herd.run(&["exec", "last", "--", "sh", "-c", "kill -9 $$"]);
    assert_code(&killed, 137);
    let missing = herd.run(&["exec", "last", "--", "no-such-program"]);
    assert_code(&missing, 127);
    assert!(
        stderr(&missing).contains("did not start"),
        "{}",
        stderr(&missing)
    );
    let nowhere = herd.run(&["exec", "last", "--rank", "9", "--", "true"]);
    assert_code(&nowhere, 2);
    assert!(
        stderr(&nowhere).contains("ranks 0 to 1"),
        "{}",
        stderr(&nowhere)
    );
    let nowhere = herd.run(&["exec", "last", "--node", "node9", "--", "true"]);
    assert_code(&nowhere, 2);
    assert!(stderr(&nowhere).contains("node0, node1"));
    for node in ["1", "node1"] {
        let script = ["sh", "-c", "echo $HERD_NODE_NAME"];
        let output = herd.run(&[&["exec", "last", "--node", node, "--"][..], &script].concat());
        assert_eq!(stdout(&output), "node1\n");
    }
    end(&herd, job);
    let over = herd.run(&["exec", "last", "--", "true"]);
    assert_code(&over, 125);
}

#[test]
fn in_an_array_a_command_runs_on_the_node_and_a_rank_is_refused() {
    let herd = Herd::new();
    let text =
        "array: 0-1\nrun: touch ready.$HERD_ARRAY_INDEX; until [ -e stop ]; do sleep 0.05; done\n";
    herd.file("array.yaml", text);
    let job = herd.start(&["run", "array.yaml"]);
    eventually("a task runs", || herd.path("ready.0").exists());
    let output = herd.run(&["exec", "last", "--", "sh", "-c", "echo $HERD_NODE_NAME"]);
    assert_eq!(stdout(&output), "node0\n", "{}", stderr(&output));
    let rank = herd.run(&["exec", "last", "--rank", "0", "--", "true"]);
    assert_code(&rank, 2);
    assert!(stderr(&rank).contains("have no ranks"), "{}", stderr(&rank));
    end(&herd, job);
}

#[test]
fn megabytes_pass_both_ways_byte_for_byte_and_a_slow_reader_loses_nothing() {
    let herd = Herd::new();
    let job = running(&herd);
    let bytes: Vec<u8> = (0u32..750_000)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let mut child = herd
        .command(&["exec", "last", "--node", "1", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let mut back = Vec::new();
    let mut stdout = child.stdout.take().unwrap();
    // Small reads: most of the time the windows are full.
    let mut piece = [0; 997];
    loop {
        let length = stdout.read(&mut piece).unwrap();
        if length == 0 {
            break;
        }
        back.extend_from_slice(&piece[..length]);
    }
    writer.join().unwrap();
    assert_code(&child.wait_with_output().unwrap(), 0);
    assert!(
        back == bytes,
        "{} of {} bytes came back",
        back.len(),
        bytes.len()
    );
    end(&herd, job);
}

#[test]
fn a_reader_that_leaves_ends_the_command_and_not_the_job() {
    let herd = Herd::new();
    let job = running(&herd);
    let mut child = herd
        .command(&["exec", "last", "--", "sh", "-c", "echo $$ > pid; exec yes"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    child.wait().unwrap();
    let command = pids(&herd.path("pid"));
    eventually("the command is gone", || {
        !command.iter().any(|&pid| alive(pid))
    });
    end(&herd, job);
}

#[test]
fn i5_a_client_that_is_killed_takes_its_command_along() {
    let herd = Herd::new();
    let job = running(&herd);
    let script = "trap '' TERM HUP; echo $$ > pid; while :; do sleep 0.1; done";
    let mut child = herd
        .command(&["exec", "last", "--node", "1", "--", "sh", "-c", script])
        .spawn()
        .unwrap();
    eventually("the command runs", || !pids(&herd.path("pid")).is_empty());
    signal(pid_of(&child), "-KILL");
    child.wait().unwrap();
    let command = pids(&herd.path("pid"));
    eventually("the command is gone", || {
        !command.iter().any(|&pid| alive(pid))
    });
    end(&herd, job);
}

#[test]
fn i5_commands_inside_end_with_the_job() {
    let herd = Herd::new();
    let job = running(&herd);
    let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done";
    let child = herd
        .command(&["exec", "last", "--", "sh", "-c", script])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the command runs", || !pids(&herd.path("pid")).is_empty());
    end(&herd, job);
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    let command = pids(&herd.path("pid"));
    assert!(!command.iter().any(|&pid| alive(pid)));
}

#[test]
fn signals_reach_the_command() {
    let herd = Herd::new();
    let job = running(&herd);
    let script = "trap 'echo asked; exit 3' INT; touch waits; while :; do sleep 0.05; done";
    let child = herd
        .command(&["exec", "last", "--", "bash", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the command runs", || herd.path("waits").exists());
    signal(pid_of(&child), "-INT");
    let output = child.wait_with_output().unwrap();
    assert_code(&output, 3);
    assert_eq!(stdout(&output), "asked\n");
    end(&herd, job);
}

#[test]
fn rsh_takes_sshs_arguments_and_reaches_the_other_node_from_inside() {
    let herd = Herd::new();
    let rsh = env!("CARGO_BIN_EXE_herd");
    let script = format!(
        "[ $HERD_NODE_RANK = 1 ] || exec {rsh} rsh -x -o BatchMode=yes node1 'echo \"$HERD_NODE_NAME' \"says 'a  b'\\\";\" exit 6\n"
    );
    let output = herd.run(&["run", "-N", "2", "--", "sh", "-c", &script]);
    assert_code(&output, 6);
    assert!(
        stdout(&output).contains("node1 says 'a  b'\n"),
        "{}\n{}",
        stdout(&output),
        stderr(&output)
    );
    let outside = herd.run(&["rsh", "node1", "true"]);
    assert_code(&outside, 125);
    assert!(
        stderr(&outside).contains("inside a job only"),
        "{}",
        stderr(&outside)
    );
    let nobody = format!("{rsh} rsh elsewhere true");
    let output = herd.run(&["run", "--", "sh", "-c", &nobody]);
    assert_code(&output, 125);
    assert!(
        stderr(&output).contains("`elsewhere` is not a node"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn i13_more_commands_than_a_node_takes_are_refused_and_harm_nothing() {
    let herd = Herd::new();
    let job = running(&herd);
    let mut commands: Vec<Child> = (0..16)
        .map(|number| {
            let script = format!("touch c{number}; exec sleep 600");
            herd.command(&["exec", "last", "--", "sh", "-c", &script])
                .spawn()
                .unwrap()
        })
        .collect();
    eventually("all run", || {
        (0..16).all(|n| herd.path(&format!("c{n}")).exists())
    });
    let output = herd.run(&["exec", "last", "--", "true"]);
    assert_code(&output, 125);
    assert!(
        stderr(&output).contains("which is the most"),
        "{}",
        stderr(&output)
    );
    for child in &mut commands {
        signal(pid_of(child), "-KILL");
        child.wait().unwrap();
    }
    eventually("there is room again", || {
        herd.run(&["exec", "last", "--", "true"]).status.success()
    });
    end(&herd, job);
}

#[test]
fn with_a_terminal_the_command_has_one() {
    let herd = Herd::new();
    let job = running(&herd);
    let (mut ours, theirs) = open_terminal();
    let script = "tty >/dev/null && echo yes $TERM $(stty size); read line; echo got $line; exit 4";
    let mut child = herd
        .command(&["exec", "last", "--", "sh", "-c", script])
        .env("TERM", "vt100")
        .stdin(theirs.try_clone().unwrap())
        .stdout(theirs.try_clone().unwrap())
        .stderr(theirs)
        .spawn()
        .unwrap();
    let mut seen = Vec::new();
    read_until(&mut ours, &mut seen, "yes vt100 40 120");
    ours.write_all(b"hello\r").unwrap();
    read_until(&mut ours, &mut seen, "got hello");
    assert_eq!(child.wait().unwrap().code(), Some(4));
    end(&herd, job);
}

fn open_terminal() -> (fs::File, fs::File) {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::OpenptFlags;
    use rustix::termios::Winsize;
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&master).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let size = Winsize {
        ws_row: 40,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&slave, size).unwrap();
    (master.into(), slave.into())
}

/// Reads until the text was seen; a test that hangs here is ended by the job's own bounds.
fn read_until(from: &mut fs::File, seen: &mut Vec<u8>, text: &str) {
    let mut piece = [0; 512];
    while !String::from_utf8_lossy(seen).contains(text) {
        let length = from.read(&mut piece).unwrap_or(0);
        assert!(
            length > 0,
            "ended without {text:?}: {}",
            String::from_utf8_lossy(seen)
        );
        seen.extend_from_slice(&piece[..length]);
    }
}

#[test]
fn a_job_handed_in_a_moment_ago_is_waited_for() {
    let herd = Herd::new();
    for _ in 0..5 {
        assert_code(&herd.run(&["submit", "-N", "2", "--", "sleep", "600"]), 0);
        let output = herd.run(&["exec", "last", "--node", "1", "--", "echo", "there"]);
        assert_code(&output, 0);
        assert_eq!(stdout(&output), "there\n");
        assert_code(&herd.run(&["cancel", "last"]), 0);
    }
    // One that waits for another job says so at once.
    assert_code(
        &herd.run(&["submit", "-J", "first", "--", "sleep", "600"]),
        0,
    );
    herd.file("job.yaml", "after: [first]\nrun: 'true'\n");
    assert_code(&herd.run(&["submit", "-J", "second", "job.yaml"]), 0);
    eventually("it waits", || {
        stdout(&herd.run(&["why", "second"])).contains("waits for job")
    });
    let begun = Instant::now();
    let output = herd.run(&["exec", "second", "--", "true"]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("QUEUED"), "{}", stderr(&output));
    assert!(begun.elapsed() < Duration::from_secs(10));
    for job in ["second", "first"] {
        assert_code(&herd.run(&["cancel", job]), 0);
    }
}
