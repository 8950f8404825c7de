//! What cannot work is told at once, with what helps, and nothing is started.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use herd_testing::{Answer, within};

use crate::laptop::{DEADLINE, Laptop};

fn refused(laptop: &Laptop, code: i32, words: &[&str]) -> Answer {
    let answer = laptop.ask(&["run", "-b", "far", "--", "true"]);
    assert_eq!(answer.code, code, "{answer:?}");
    for word in words {
        assert!(answer.err.contains(word), "{word}: {answer:?}");
    }
    assert!(!laptop.path("home/jobs").exists() || laptop.ask(&["ls"]).out.lines().count() <= 1);
    answer
}

fn key(laptop: &Laptop, name: &str) -> String {
    let path = laptop.path(name);
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&path)
        .status();
    assert!(made.unwrap().success());
    path.display().to_string()
}

#[test]
fn a_host_key_that_is_not_the_known_one_is_not_accepted() {
    let laptop = Laptop::new();
    let other = key(&laptop, "other");
    let public = fs::read_to_string(format!("{other}.pub")).unwrap();
    fs::write(laptop.path("known"), format!("login {public}")).unwrap();
    laptop.ssh_config(&format!(
        "UserKnownHostsFile {}",
        laptop.path("known").display()
    ));
    refused(&laptop, 2, &["Host key verification failed", "hint: "]);
    // One that is not known at all.
    fs::write(laptop.path("known"), "").unwrap();
    refused(
        &laptop,
        2,
        &["Host key verification failed", "connect once by hand"],
    );
    assert_eq!(fs::read_to_string(laptop.path("known")).unwrap(), "");
}

#[test]
fn a_key_that_is_refused_is_told_with_what_helps() {
    let laptop = Laptop::new();
    let own = key(&laptop, "own");
    let config = fs::read_to_string(laptop.path("ssh_config")).unwrap();
    let user = format!("{}/user", laptop.cluster.ssh.display());
    fs::write(laptop.path("ssh_config"), config.replace(&user, &own)).unwrap();
    refused(&laptop, 2, &["Permission denied (publickey", "ssh-add"]);
    let doctor = laptop.ask(&["doctor", "-b", "far"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(doctor.out.contains("ssh-add"), "{doctor:?}");
}

#[test]
fn i6_an_ssh_that_hangs_is_given_up() {
    let laptop = Laptop::new();
    let pid = laptop.path("hangs");
    let hangs = format!(
        "ProxyCommand /bin/sh -c 'echo $$ > {}; exec /bin/sleep 1000'",
        pid.display()
    );
    laptop.ssh_config(&hangs);
    let began = Instant::now();
    refused(&laptop, 2, &["hint: "]);
    assert!(began.elapsed() < Duration::from_mins(2));
    let hung = *herd_testing::pids(&pid).first().unwrap();
    within(DEADLINE, "the end of what hung", || {
        !herd_testing::alive(hung)
    });
}

#[test]
fn a_machine_that_nobody_answers_on_is_told() {
    let laptop = Laptop::new();
    laptop.ssh_config("Port 1");
    refused(&laptop, 2, &["Connection refused", "hint: "]);
}

#[test]
fn a_full_disk_there_is_told() {
    let laptop = Laptop::new();
    let small = format!("/run/small-{}", std::process::id());
    let script = format!("mkdir {small} && mount -t tmpfs -o size=2m small {small}");
    laptop
        .cluster
        .lab
        .slurm(&["node", "in", "login", "sh", "-c", &script]);
    laptop.config(&format!("home = \"{small}/herd\""));
    refused(&laptop, 2, &["No space left on device", "free space"]);
    let left = laptop.cluster.lab.slurm(&[
        "node",
        "in",
        "login",
        "ls",
        &format!("{small}/herd/programs"),
    ]);
    assert_eq!(left.trim(), "");
}

#[test]
fn i13_a_directory_that_is_too_large_is_not_copied() {
    let laptop = Laptop::new();
    let large = fs::File::create(laptop.path("work/large")).unwrap();
    large.set_len(2 << 30).unwrap();
    refused(&laptop, 2, &["1 GiB", ".herdignore"]);
    fs::write(laptop.path("work/.herdignore"), "large\n").unwrap();
    let answer = laptop.ask(&["run", "-b", "far", "--", "true"]);
    assert_eq!(answer.code, 0, "{answer:?}");
}

#[test]
fn i13_what_the_cluster_cannot_do_is_refused_with_the_line_of_the_file() {
    let laptop = Laptop::new();
    fs::write(
        laptop.path("work/job.yaml"),
        "name: big\nnodes: 99\nrun: a\n",
    )
    .unwrap();
    let answer = laptop.ask(&["run", "-b", "far", "job.yaml"]);
    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.err.contains("job.yaml:2:8: nodes:"), "{answer:?}");
}
