//! Leases between two users of one machine, root and one without any privilege, each with a home of
//! its own: what one holds the other waits for, in the order of one queue. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use live::{Herd, assert_code, eventually, pids, stderr, stdout};

/// A user without privileges.
const NOBODY: u32 = 65534;

#[derive(Clone, Copy)]
enum User {
    Root,
    Nobody,
}

/// A directory that both see, with the programs and a home for each.
struct Machine {
    herd: Herd,
}

impl Machine {
    fn new() -> Self {
        let herd = Herd::new();
        for program in ["herd", "herd-node"] {
            let built = Path::new(env!("CARGO_BIN_EXE_herd")).with_file_name(program);
            fs::copy(built, herd.path(program)).unwrap();
        }
        fs::set_permissions(herd.path(""), Permissions::from_mode(0o777)).unwrap();
        let order = herd.file("order", "");
        fs::set_permissions(order, Permissions::from_mode(0o666)).unwrap();
        Self { herd }
    }

    fn command(&self, user: User, args: &[&str]) -> Command {
        let (id, home) = match user {
            User::Root => (0, "root-home"),
            User::Nobody => (NOBODY, "nobody-home"),
        };
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={id}"))
            .arg(format!("--regid={id}"))
            .args(["--clear-groups", "--"])
            .arg(self.herd.path("herd"))
            .args(args)
            .env("HOME", self.herd.path(""))
            .env("HERD_HOME", self.herd.path(home))
            .env("HERD_LEASE_DIR", self.herd.path("leases"))
            .env("CUDA_VISIBLE_DEVICES", "0")
            .env("NO_COLOR", "1")
            .current_dir(self.herd.path(""));
        command
    }

    fn herd(&self, user: User, args: &[&str]) -> Output {
        self.command(user, args).output().unwrap()
    }

    /// Submits a job that wants the only GPU, says its name in the file `order`, and holds the GPU
    /// until the file that is named after it exists; its id.
    fn submit(&self, user: User, name: &str) -> String {
        let script = format!(
            "echo $$ >> order.{name}; echo {name} >> order; until [ -e {name} ]; do sleep 0.05; done"
        );
        let args = [
            "submit", "-b", "local", "--name", name, "--gpus", "1", "--", "sh", "-c", &script,
        ];
        let output = self.herd(user, &args);
        assert_code(&output, 0);
        stdout(&output).trim().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.herd.path(name)
    }

    fn runs(&self, name: &str) {
        eventually(name, || {
            !pids(&self.path(&format!("order.{name}"))).is_empty()
        });
    }

    #[track_caller]
    fn waits(&self, user: User, id: &str, holder: &str) {
        let short = &holder[holder.len() - 8..];
        eventually("the queue", || {
            let why = stdout(&self.herd(user, &["why", id]));
            why.contains("0 of 1 GPUs free") && why.contains(short)
        });
    }
}

fn other(user: User) -> User {
    match user {
        User::Root => User::Nobody,
        User::Nobody => User::Root,
    }
}

#[test]
fn leases_of_one_user_are_respected_by_another_in_the_order_of_one_queue() {
    for first in [User::Root, User::Nobody] {
        let second = other(first);
        let machine = Machine::new();
        // The first makes the directories.
        let a = machine.submit(first, "a");
        machine.runs("a");
        let b = machine.submit(second, "b");
        machine.waits(second, &b, &a);
        let c = machine.submit(first, "c");
        machine.waits(first, &c, &a);
        fs::write(machine.path("a"), "").unwrap();
        machine.runs("b");
        machine.waits(first, &c, &b);
        fs::write(machine.path("b"), "").unwrap();
        machine.runs("c");
        fs::write(machine.path("c"), "").unwrap();
        for (user, id) in [(first, &a), (second, &b), (first, &c)] {
            let waited = machine.herd(user, &["wait", id]);
            assert_code(&waited, 0);
        }
        assert_eq!(
            fs::read_to_string(machine.path("order")).unwrap(),
            "a\nb\nc\n"
        );
        for directory in ["leases", "leases/queue", "leases/held"] {
            let mode = fs::metadata(machine.path(directory)).unwrap().mode();
            assert_eq!(mode & 0o7777, 0o1777, "{directory}");
        }
        for directory in ["leases/queue", "leases/held"] {
            let left = fs::read_dir(machine.path(directory)).unwrap().count();
            assert_eq!(left, 0, "{directory}");
        }
        // Neither sees into the other's home.
        let owner = |home: &str| fs::metadata(machine.path(home)).unwrap();
        for (home, id) in [("root-home", 0), ("nobody-home", NOBODY)] {
            assert_eq!((owner(home).uid(), owner(home).mode() & 0o777), (id, 0o700));
        }
        let refused = machine
            .command(User::Nobody, &["ls"])
            .env("HERD_HOME", machine.path("root-home"))
            .output()
            .unwrap();
        assert_code(&refused, 125);
        assert!(
            stderr(&refused).contains("root-home"),
            "{}",
            stderr(&refused)
        );
    }
}

#[test]
fn what_a_killed_user_held_is_free_for_the_other() {
    let machine = Machine::new();
    let a = machine.submit(User::Nobody, "a");
    machine.runs("a");
    let b = machine.submit(User::Root, "b");
    machine.waits(User::Root, &b, &a);
    let driver =
        fs::read_to_string(machine.path(&format!("nobody-home/jobs/{a}/attempts/1/driver.json")))
            .unwrap();
    let (_, rest) = driver.split_once("\"pid\":").unwrap();
    live::signal(rest.split(',').next().unwrap().parse().unwrap(), "-KILL");
    machine.runs("b");
    // Root's stale entries are removed by root alone, and are in nobody's way.
    fs::write(machine.path("b"), "").unwrap();
    assert_code(&machine.herd(User::Root, &["wait", &b]), 0);
}

#[test]
fn i8_a_user_who_may_start_no_more_processes_is_told_so() {
    // One whom no other test uses, since the limit counts all processes of a user.
    const CROWDED: u32 = 64_217;
    let machine = Machine::new();
    let limited = |limit: u32, args: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={CROWDED}"))
            .arg(format!("--regid={CROWDED}"))
            .args(["--clear-groups", "--", "bash", "-c"])
            .arg(format!("ulimit -u {limit}; exec \"$0\" \"$@\""))
            .arg(machine.path("herd"))
            .args(args)
            .env("HOME", machine.path(""))
            .env("HERD_HOME", machine.path("crowded"))
            .env("HERD_LEASE_DIR", machine.path("leases"))
            .current_dir(machine.path(""));
        command.output().unwrap()
    };
    // No guard; no executor; no rank; no driver for a job that is handed in.
    for (limit, args) in [
        (1, &["run", "--", "true"][..]),
        (2, &["run", "--", "true"]),
        (3, &["run", "--", "true"]),
        (2, &["submit", "--", "true"]),
    ] {
        let output = limited(limit, args);
        let said = stderr(&output);
        assert_code(&output, 125);
        assert!(said.contains("temporarily unavailable"), "{limit}: {said}");
        assert!(!said.contains("panicked"), "{limit}: {said}");
        assert_eq!(stdout(&output), "", "{limit}");
    }
    let left = limited(20, &["ls", "-o", "json"]);
    assert!(!stdout(&left).contains("ACCEPTED"), "{}", stdout(&left));
}
