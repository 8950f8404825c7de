//! I5 with real processes: whichever of guard and worker dies, nothing is left within two seconds.
//! Tests use the example `guarded`, which `cargo test` builds.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use herd_launch::{Pid, Signal, tree};
use herd_testing::{eventually, pids, within};

/// Five times the bound of I5.
const DEADLINE: Duration = Duration::from_secs(10);

/// A rank that starts every kind of descendant, then writes `ready`.
const FAMILY: &str = r#"
    sleep 600 &
    sh -c 'sleep 600 & sleep 600' &
    sh -c 'trap "" TERM; sleep 600 & sleep 600; sleep 600' &
    setsid sh -c 'setsid sleep 600 & trap "" TERM HUP; sleep 600' &
    setsid -f sleep 600
    sh -c 'kill -STOP $$' &
    touch "$DIRECTORY/ready"
    wait
"#;

struct Guarded {
    guard: Child,
    directory: tempfile::TempDir,
}

impl Guarded {
    fn start(script: &str) -> Self {
        Self::start_with(script, Duration::from_mins(10))
    }

    /// With a bound on how long the worker may be stopped.
    fn start_with(script: &str, stopped_bound: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut example = std::env::current_exe().unwrap();
        example.pop();
        example.pop();
        example.push("examples/guarded");
        assert!(
            example.exists(),
            "build it with: cargo build -p herd-runtime --examples"
        );
        let guard = Command::new(example)
            .arg(directory.path())
            .args(["sh", "-c", script])
            .env("DIRECTORY", directory.path())
            .env("STOPPED_BOUND_MS", stopped_bound.as_millis().to_string())
            .stdin(Stdio::null())
            .stderr(File::create(directory.path().join("said")).unwrap())
            .process_group(0)
            .spawn()
            .unwrap();
        let this = Self { guard, directory };
        eventually("the rank is started", || this.number("worker").is_some());
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn number(&self, name: &str) -> Option<Pid> {
        number(&self.path(name))
    }

    fn guard_pid(&self) -> Pid {
        Pid::from_raw(self.guard.id().try_into().unwrap()).unwrap()
    }

    /// All processes of this test, by the environment that they inherit; zombies have none.
    fn family(&self) -> Vec<Pid> {
        let marker = format!("DIRECTORY={}", self.directory.path().display());
        let init = Pid::from_raw(1).unwrap();
        let mut all = tree::descendants(init);
        all.retain(|&pid| tree::environ_has(pid, &marker));
        all
    }

    fn signals(&self) -> String {
        fs::read_to_string(self.path("signals")).unwrap_or_default()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.path("said")).unwrap_or_default()
    }

    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the guard has ended", || {
            status = self.guard.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    fn all_gone(&self) {
        until("nothing is left", || self.family().is_empty());
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        for pid in self.family() {
            let _gone = rustix::process::kill_process(pid, Signal::KILL);
        }
        let _reaped = self.guard.wait();
    }
}

fn number(path: &Path) -> Option<Pid> {
    pids(path).first().and_then(|&pid| Pid::from_raw(pid))
}

fn until(what: &str, condition: impl FnMut() -> bool) {
    within(DEADLINE, what, condition);
}

fn state(pid: Pid) -> Option<char> {
    herd_testing::state(pid.as_raw_nonzero().get())
}

#[test]
fn i5_a_killed_worker_leaves_nothing_and_the_guard_reports_it() {
    let mut guarded = Guarded::start(FAMILY);
    eventually("the family is complete", || guarded.path("ready").exists());
    assert!(guarded.family().len() > 8);
    let killed = Instant::now();
    rustix::process::kill_process(guarded.number("worker").unwrap(), Signal::KILL).unwrap();
    assert_eq!(guarded.wait().code(), Some(128 + 9));
    guarded.all_gone();
    assert!(killed.elapsed() < DEADLINE);
}

#[test]
fn i5_a_killed_guard_leaves_nothing() {
    let mut guarded = Guarded::start(FAMILY);
    eventually("the family is complete", || guarded.path("ready").exists());
    rustix::process::kill_process(guarded.guard_pid(), Signal::KILL).unwrap();
    assert_eq!(guarded.wait().signal(), Some(9));
    guarded.all_gone();
    assert_eq!(guarded.signals(), "TERM\n");
}

#[test]
fn i5_a_killed_process_group_leaves_nothing() {
    let guarded = Guarded::start(FAMILY);
    eventually("the family is complete", || guarded.path("ready").exists());
    rustix::process::kill_process_group(guarded.guard_pid(), Signal::KILL).unwrap();
    guarded.all_gone();
}

#[test]
fn i5_the_end_of_the_work_leaves_nothing() {
    let mut guarded =
        Guarded::start("setsid -f sleep 600; setsid -f sh -c 'trap \"\" TERM; sleep 600'; exit 7");
    assert_eq!(guarded.wait().code(), Some(7));
    guarded.all_gone();
}

#[test]
fn the_exit_code_comes_through() {
    assert_eq!(Guarded::start("exit 0").wait().code(), Some(0));
    assert_eq!(Guarded::start("exit 200").wait().code(), Some(200));
    assert_eq!(
        Guarded::start("kill -USR2 $$").wait().code(),
        Some(128 + 12)
    );
}

#[test]
fn row26_each_signal_is_passed_on_exactly_once() {
    let mut guarded = Guarded::start("touch $DIRECTORY/ready; sleep 600");
    eventually("the rank runs", || guarded.path("ready").exists());
    rustix::process::kill_process(guarded.guard_pid(), Signal::USR1).unwrap();
    until("USR1 came", || guarded.signals() == "USR1\n");
    // To the whole group, as a terminal or a shell sends it.
    rustix::process::kill_process_group(guarded.guard_pid(), Signal::INT).unwrap();
    until("INT came", || guarded.signals() == "USR1\nINT\n");
    rustix::process::kill_process_group(guarded.guard_pid(), Signal::TERM).unwrap();
    assert_eq!(guarded.wait().code(), Some(128 + 15));
    assert_eq!(guarded.signals(), "USR1\nINT\nTERM\n");
}

#[test]
fn a_stop_from_the_terminal_stops_both_and_continuing_continues_both() {
    let mut guarded = Guarded::start("touch $DIRECTORY/ready; sleep 600");
    let (guard, worker) = (guarded.guard_pid(), guarded.number("worker").unwrap());
    rustix::process::kill_process(guard, Signal::TSTP).unwrap();
    until("both are stopped", || {
        state(guard) == Some('T') && state(worker) == Some('T')
    });
    rustix::process::kill_process(guard, Signal::CONT).unwrap();
    until("both run", || {
        state(guard) != Some('T') && state(worker) != Some('T')
    });
    rustix::process::kill_process(guard, Signal::TERM).unwrap();
    assert_eq!(guarded.wait().code(), Some(128 + 15));
}

#[test]
fn i6_a_worker_that_stays_stopped_is_lost_and_leaves_nothing() {
    let mut guarded = Guarded::start_with(FAMILY, Duration::from_millis(200));
    eventually("the family is complete", || guarded.path("ready").exists());
    let worker = guarded.number("worker").unwrap();
    rustix::process::kill_process(worker, Signal::STOP).unwrap();
    assert_eq!(guarded.wait().code(), Some(125));
    guarded.all_gone();
    let said = guarded.said();
    let pid = worker.as_raw_nonzero();
    assert!(
        said.contains(&format!("hint: `kill -CONT {pid}`")),
        "{said}"
    );
    assert!(said.contains("stood still"), "{said}");
}

#[test]
fn a_worker_that_is_let_go_on_in_time_is_not_lost() {
    let mut guarded = Guarded::start_with(
        "until [ -e \"$DIRECTORY/go\" ]; do sleep 0.1; done; exit 7",
        Duration::from_secs(5),
    );
    let worker = guarded.number("worker").unwrap();
    for stops in 1..3 {
        rustix::process::kill_process(worker, Signal::STOP).unwrap();
        let count = || guarded.said().matches("was stopped").count();
        until("the guard has said so", || count() == stops);
        rustix::process::kill_process(worker, Signal::CONT).unwrap();
        until("it goes on", || state(worker) != Some('T'));
    }
    let continued = Instant::now();
    until("the bound has passed", || {
        continued.elapsed() > Duration::from_secs(6)
    });
    fs::write(guarded.path("go"), "").unwrap();
    assert_eq!(guarded.wait().code(), Some(7));
}

#[test]
fn a_stopped_worker_can_be_asked_for_the_end() {
    let mut guarded = Guarded::start("sleep 600");
    let worker = guarded.number("worker").unwrap();
    rustix::process::kill_process(worker, Signal::STOP).unwrap();
    until("the guard has said so", || {
        guarded.said().contains("was stopped")
    });
    rustix::process::kill_process(guarded.guard_pid(), Signal::TERM).unwrap();
    assert_eq!(guarded.wait().code(), Some(128 + 15));
}

#[test]
fn the_terminal_gets_its_shell_back_while_the_worker_stands_still() {
    let mut guarded = Guarded::start("sleep 600");
    let (guard, worker) = (guarded.guard_pid(), guarded.number("worker").unwrap());
    rustix::process::kill_process(worker, Signal::STOP).unwrap();
    until("the guard has said so", || {
        guarded.said().contains("was stopped")
    });
    rustix::process::kill_process(guard, Signal::TSTP).unwrap();
    until("the guard stands still", || state(guard) == Some('T'));
    rustix::process::kill_process(guard, Signal::CONT).unwrap();
    until("both run", || {
        state(guard) != Some('T') && state(worker) != Some('T')
    });
    rustix::process::kill_process(guard, Signal::TERM).unwrap();
    assert_eq!(guarded.wait().code(), Some(128 + 15));
}

#[test]
fn the_guard_is_small_and_has_one_thread() {
    let guarded = Guarded::start("sleep 600");
    let read = |name: &str| {
        fs::read_to_string(format!(
            "/proc/{}/{name}",
            guarded.guard_pid().as_raw_nonzero()
        ))
        .unwrap()
    };
    let sum: u64 = read("smaps")
        .lines()
        .filter_map(|line| {
            line.strip_prefix("Private_Dirty:")?
                .trim()
                .strip_suffix(" kB")
        })
        .map(|number| number.trim().parse::<u64>().unwrap())
        .sum();
    assert!(sum < 1024, "{sum} KiB");
    assert!(read("status").contains("Threads:\t1\n"));
}
