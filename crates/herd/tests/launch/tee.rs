//! Row 13 (D4) at its full size: four ranks, a million numbered lines each, into a file, a pipe and a
//! terminal. Every line must be there once, whole, and in the order of its rank.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::process::Stdio;

use herd_testing::Terminal;

use crate::fixture::{Launch, assert_status, out};

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
