//! Row 13 (D4) at its full size: four ranks, a million numbered lines each, into a file, a pipe and a
//! terminal. Every line must be there once, whole, and in the order of its rank.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Command, Stdio};

use herd_testing::Terminal;

use crate::fixture::{Launch, assert_status, err, out, program};

const RANKS: usize = 4;
const LINES: usize = 1_000_000;
/// A terminal hands on a few kilobytes at a time.
const TERMINAL_LINES: usize = 50_000;

fn launch(lines: usize) -> Launch {
    Launch::new(&format!(
        "exec seq -f \"$RANK:%.0f:0123456789abcdef\" {lines}"
    ))
}

const FLAGS: &[&str] = &["--nproc-per-node=4", "--tee=3"];

fn check(output: impl Read, lines: usize) {
    let mut reader = BufReader::with_capacity(1 << 20, output);
    let mut next = [1; RANKS];
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap() > 0 {
        let found = line.trim_end_matches(['\r', '\n']);
        let rest = found
            .strip_prefix("[default")
            .unwrap_or_else(|| panic!("{found:?}"));
        let (rank, rest) = rest.split_once("]:").unwrap();
        let rank: usize = rank.parse().unwrap();
        let expected = format!("{rank}:{}:0123456789abcdef", next[rank]);
        assert_eq!(rest, expected);
        next[rank] += 1;
        line.clear();
    }
    assert_eq!(next, [lines + 1; RANKS]);
}

#[test]
fn row_13_a_million_lines_of_four_ranks_into_a_file() {
    let launch = launch(LINES);
    let path = launch.path("shown");
    let file = File::create(&path).unwrap();
    let output = launch.command(FLAGS, &[]).stdout(file).output().unwrap();
    assert_status(&output, 0);
    check(File::open(&path).unwrap(), LINES);
}

#[test]
fn row_13_a_million_lines_of_four_ranks_into_a_pipe() {
    let launch = launch(LINES);
    let mut child = launch
        .command(FLAGS, &[])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check(child.stdout.take().unwrap(), LINES);
    let output = child.wait_with_output().unwrap();
    assert_status(&output, 0);
    assert_eq!(out(&output), "");
}

#[test]
fn row_13_lines_of_four_ranks_onto_a_terminal() {
    let launch = launch(TERMINAL_LINES);
    let mut terminal = Terminal::start(&launch.command(FLAGS, &[]));
    let (status, screen) = terminal.wait();
    assert!(status.success());
    check(screen.as_bytes(), TERMINAL_LINES);
}

/// The command in a shell that has set a limit before.
fn limited(launch: &Launch, limit: &str, flags: &[&str]) -> Command {
    let own = launch.command(flags, &[]);
    let mut command = program("sh");
    herd_testing::surroundings::copy(&own, &mut command);
    command
        .args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")])
        .arg(own.get_program())
        .args(own.get_args())
        .current_dir(launch.directory.path())
        .stdin(Stdio::null());
    command
}

#[test]
fn row_13_no_line_is_lost_where_there_are_fewer_descriptors_than_files() {
    let launch = Launch::new("echo $RANK");
    let flags = ["--nproc-per-node=64", "--tee=3"];
    let output = limited(&launch, "ulimit -n 48", &flags).output().unwrap();
    assert_status(&output, 0);
    let text = out(&output);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let mut expected: Vec<String> = (0..64).map(|n| format!("[default{n}]:{n}")).collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[test]
fn row_13_a_stream_that_takes_no_more_is_given_up_with_a_warning_and_the_workers_go_on() {
    // What is shown is longer than what the worker writes by the headers, and than the limit.
    let launch = Launch::new("seq 1000; touch done");
    let flags = ["--tee=3"];
    let file = File::create(launch.path("shown")).unwrap();
    for (limit, stdout, why) in [
        ("ulimit -f 16", file, "File too large"),
        ("true", File::create("/dev/full").unwrap(), "No space left"),
    ] {
        let output = limited(&launch, limit, &flags).stdout(stdout).output();
        let output = output.unwrap();
        assert_status(&output, 0);
        let said = err(&output);
        assert!(
            said.contains("takes no more of the workers' lines"),
            "{said}"
        );
        assert!(said.contains(why), "{said}");
        std::fs::remove_file(launch.path("done")).unwrap();
    }
}
