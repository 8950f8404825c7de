//! `herd run` in a terminal: a shell with job control, keys that become signals, and what reaches
//! the screen.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use herd_testing::terminal::{CTRL_C, CTRL_Z};
use herd_testing::{Terminal, state};
use live::{Herd, alive, assert_code, eventually, pids, stdout};

/// Processes that each rank of the job in [`stubborn`] starts.
const PER_RANK: usize = 3;

/// An interactive shell with `herd` on its path, whose prompt is `ready>`. Its hang-ups are a
/// terminal's, also where the tests run under nohup.
fn shell(herd: &Herd) -> Terminal {
    let herd = herd.command(&[]);
    let mut shell = Command::new("env");
    shell.args([
        "--default-signal=HUP",
        "bash",
        "--norc",
        "--noprofile",
        "-i",
    ]);
    herd_testing::surroundings::copy(&herd, &mut shell);
    shell
        .env("TERM", "dumb")
        .env("PS1", "ready>")
        .env("HERD", herd.get_program())
        .current_dir(herd.get_current_dir().unwrap());
    let terminal = Terminal::start(&shell);
    terminal.expect("ready>");
    terminal
}

/// Ranks with a child and a daemon in another session, which end with 7 when `go` exists.
fn stubborn(herd: &Herd) -> PathBuf {
    herd.file(
        "job.sh",
        "echo $$ >> pids\nsleep 3000 & echo $! >> pids\n\
         setsid sh -c 'echo $$ >> pids; exec sleep 3000' &\n\
         until [ -e go ]; do sleep 0.1; done\nexit 7\n",
    );
    herd.path("pids")
}

fn all_gone(list: &Path) {
    eventually("the end of every process", || {
        pids(list).iter().all(|&pid| !alive(pid))
    });
}

/// Stopped, or waiting in the kernel for a stopped child that has not become its program yet.
fn stands_still(pid: i32) -> bool {
    matches!(state(pid), Some('T' | 'D'))
}

/// Types the command and waits until both ranks run, then presses Ctrl-Z and waits for the prompt.
fn run_and_stop(herd: &Herd) -> (Terminal, PathBuf) {
    let list = stubborn(herd);
    let mut terminal = shell(herd);
    terminal.write("$HERD run -N 2 -- sh job.sh\n");
    eventually("both ranks", || pids(&list).len() == 2 * PER_RANK);
    terminal.write(CTRL_Z);
    terminal.expect("Stopped");
    eventually("the stop of every process of the job", || {
        pids(&list).iter().all(|&pid| stands_still(pid))
    });
    (terminal, list)
}

#[test]
fn ctrl_z_stops_herd_and_all_its_ranks_and_fg_goes_on() {
    let herd = Herd::new();
    let (mut terminal, list) = run_and_stop(&herd);
    assert!(herd.events().contains("\"paused\""), "{}", herd.events());
    // What ranks would do now, they do after they were continued.
    fs::write(herd.path("go"), "").unwrap();
    let status = stdout(&herd.run(&["status", "last"]));
    assert!(status.contains("RUNNING"), "{status}");
    terminal.write("fg; echo code=$?\n");
    terminal.expect("code=7");
    assert!(herd.events().contains("\"resumed\""), "{}", herd.events());
    all_gone(&list);
}

#[test]
fn bg_after_ctrl_z_goes_on_in_the_background() {
    let herd = Herd::new();
    let (mut terminal, list) = run_and_stop(&herd);
    terminal.write("bg\n");
    eventually("every rank going on", || {
        pids(&list).iter().all(|&pid| !stands_still(pid))
    });
    fs::write(herd.path("go"), "").unwrap();
    terminal.write("wait %1; echo code=$?\n");
    terminal.expect("code=7");
    all_gone(&list);
}

#[test]
fn a_stopped_job_can_be_cancelled_from_elsewhere() {
    let herd = Herd::new();
    let (mut terminal, list) = run_and_stop(&herd);
    assert_code(&herd.run(&["cancel", "last"]), 0);
    // Nobody has continued the stopped `herd run`: its driver ends the job all the same.
    all_gone(&list);
    assert_code(&herd.run(&["wait", "last"]), 130);
    terminal.write("fg; echo code=$?\n");
    terminal.expect("code=130");
}

#[test]
fn a_stopped_job_ends_when_the_shell_ends_it() {
    let herd = Herd::new();
    let (mut terminal, list) = run_and_stop(&herd);
    // The shell sends SIGTERM and SIGCONT.
    terminal.write("kill %1\n");
    all_gone(&list);
    assert_code(&herd.run(&["wait", "last"]), 143);
}

#[test]
fn i5_nothing_is_left_when_a_stopped_herd_run_is_killed() {
    let herd = Herd::new();
    let (mut terminal, list) = run_and_stop(&herd);
    terminal.write("kill -KILL %1\n");
    all_gone(&list);
}

#[test]
fn ctrl_c_in_a_terminal_gives_grace_and_ends_with_130() {
    let herd = Herd::new();
    herd.file(
        "job.sh",
        "trap 'echo saved; exit 0' INT TERM\necho up\nwhile :; do sleep 0.1; done\n",
    );
    let mut terminal = shell(&herd);
    terminal.write("$HERD run -N 2 -- bash job.sh; echo code=$?\n");
    terminal.expect("(node0, rank=0) up");
    terminal.expect("(node1, rank=1) up");
    terminal.write(CTRL_C);
    terminal.expect("code=130");
    let screen = terminal.screen();
    assert_eq!(screen.matches(") saved").count(), 2, "{screen}");
}

#[test]
fn ctrl_c_twice_in_a_terminal_ends_what_ignores_it() {
    let herd = Herd::new();
    let list = herd.path("pids");
    herd.file(
        "job.sh",
        "trap '' INT TERM\necho $$ >> pids\nwhile :; do sleep 1; done\n",
    );
    let mut terminal = shell(&herd);
    terminal.write("$HERD run -N 2 -- sh job.sh; echo code=$?\n");
    eventually("both ranks", || pids(&list).len() == 2);
    terminal.write(CTRL_C);
    eventually("the cancellation", || herd.events().contains("signal 2"));
    terminal.write(CTRL_C);
    terminal.expect("code=130");
    all_gone(&list);
}

#[test]
fn closing_the_terminal_ends_the_job() {
    let herd = Herd::new();
    let list = stubborn(&herd);
    let mut terminal = shell(&herd);
    terminal.write("$HERD run -N 2 -- sh job.sh\n");
    eventually("both ranks", || pids(&list).len() == 2 * PER_RANK);
    drop(terminal);
    all_gone(&list);
    assert_code(&herd.run(&["wait", "last"]), 129);
}

#[test]
fn closing_the_terminal_of_a_stopped_job_ends_it() {
    let herd = Herd::new();
    let (terminal, list) = run_and_stop(&herd);
    drop(terminal);
    all_gone(&list);
}

#[test]
fn a_job_under_nohup_outlives_its_terminal() {
    let herd = Herd::new();
    let list = stubborn(&herd);
    let mut terminal = shell(&herd);
    terminal.write("nohup $HERD run -N 2 -- sh job.sh &\n");
    eventually("both ranks", || pids(&list).len() == 2 * PER_RANK);
    drop(terminal);
    assert!(pids(&list).iter().all(|&pid| alive(pid)));
    fs::write(herd.path("go"), "").unwrap();
    assert_code(&herd.run(&["wait", "last"]), 7);
    all_gone(&list);
}

#[test]
fn a_pipe_into_head_warns_and_does_not_stop_the_job() {
    let herd = Herd::new();
    let mut terminal = shell(&herd);
    terminal.write(
        "$HERD run -- sh -c 'yes | head -c 3000000; touch marker' | head -n 1; \
         echo codes=${PIPESTATUS[*]}\n",
    );
    terminal.expect("codes=0 0");
    assert!(herd.path("marker").exists());
    assert!(
        terminal
            .screen()
            .contains("warning: standard output is closed")
    );
}

#[test]
fn control_sequences_of_a_job_do_not_reach_the_screen_except_colour() {
    let herd = Herd::new();
    let script = r"printf '\033[31mred\033[0m\033[2J\033[H \033]0;title\007a\007b\033Pq\033\\c\tdone\n\033[6n\033[?1049h\n'";
    for nodes in ["1", "2"] {
        let mut terminal =
            Terminal::start(&herd.command(&["run", "-N", nodes, "--", "sh", "-c", script]));
        let (status, screen) = terminal.wait();
        assert!(status.success(), "{screen}");
        assert!(screen.contains("\u{1b}[31mred\u{1b}[0m ab"), "{screen:?}");
        assert!(screen.contains("c\tdone"), "{screen:?}");
        let rest = screen.replace("\u{1b}[31m", "").replace("\u{1b}[0m", "");
        let bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
        assert!(!rest.contains(bad), "{screen:?}");
        assert!(!rest.contains("title"), "{screen:?}");
    }
}
