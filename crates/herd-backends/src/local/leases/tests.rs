//! Queue, locks and directory together.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

fn leases(dir: &tempfile::TempDir) -> Leases {
    Leases::open(Some(&dir.path().join("locks"))).unwrap()
}

fn stock() -> Stock {
    Stock {
        gpus: vec![String::from("0"), String::from("GPU-a/1")],
        cpus: 4,
    }
}

fn ticket(priority: u32, created_ms: u64, gpus: u32, cpus: u32) -> Ticket {
    Ticket {
        job: JobId::generate(),
        user: String::from("ada"),
        priority,
        created_ms,
        inside: None,
        need: Need { gpus, cpus },
    }
}

fn wait(leases: &Leases, ticket: &Ticket) -> Waiting {
    leases.enqueue(ticket.clone(), stock()).unwrap()
}

#[test]
fn a_job_that_asks_for_nothing_never_waits() {
    let dir = tempfile::tempdir().unwrap();
    let leases = leases(&dir);
    let mut all = wait(&leases, &ticket(50, 1, 2, 4));
    let _held = all.try_acquire().unwrap().unwrap();
    let mut none = wait(&leases, &ticket(0, 2, 0, 0));
    assert!(none.try_acquire().unwrap().unwrap().gpus.is_empty());
    assert_eq!(fs::read_dir(leases.queue()).unwrap().count(), 0);
}

#[test]
fn what_is_held_is_not_given_again_until_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let leases = leases(&dir);
    let first = ticket(50, 1, 1, 0);
    let held = wait(&leases, &first).try_acquire().unwrap().unwrap();
    assert_eq!(held.gpus, ["0"]);
    let mut second = wait(&leases, &ticket(50, 2, 2, 0));
    assert!(second.try_acquire().unwrap().is_none());
    assert_eq!(
        second.why().unwrap(),
        format!(
            "waits for 2 GPUs: 1 of 2 GPUs free, held by job {}",
            first.job.short()
        )
    );
    // Nothing was kept of the one GPU that was free.
    drop(held);
    assert_eq!(
        second.try_acquire().unwrap().unwrap().gpus,
        ["0", "GPU-a/1"]
    );
}

#[test]
fn priority_then_order_and_no_backfill() {
    let dir = tempfile::tempdir().unwrap();
    let leases = leases(&dir);
    let mut low = wait(&leases, &ticket(10, 1, 1, 0));
    let mut late = wait(&leases, &ticket(50, 3, 1, 0));
    let mut early = wait(&leases, &ticket(50, 2, 2, 0));
    assert!(low.try_acquire().unwrap().is_none());
    assert!(late.try_acquire().unwrap().is_none());
    assert!(
        late.why()
            .unwrap()
            .ends_with("2 of 2 GPUs free; 1 job ahead")
    );
    assert!(low.why().unwrap().ends_with("; 2 jobs ahead"));
    let held = early.try_acquire().unwrap().unwrap();
    assert!(late.try_acquire().unwrap().is_none());
    drop(held);
    assert!(low.try_acquire().unwrap().is_none());
    let _late = late.try_acquire().unwrap().unwrap();
    let _low = low.try_acquire().unwrap().unwrap();
}

#[test]
fn kinds_do_not_wait_for_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let leases = leases(&dir);
    let _gpus = wait(&leases, &ticket(50, 1, 2, 0))
        .try_acquire()
        .unwrap()
        .unwrap();
    let waiting = wait(&leases, &ticket(50, 2, 1, 0));
    let cpus = wait(&leases, &ticket(0, 3, 0, 3))
        .try_acquire()
        .unwrap()
        .unwrap();
    assert_eq!(cpus.cpus, [0, 1, 2]);
    let mut more = wait(&leases, &ticket(50, 4, 0, 2));
    assert!(more.try_acquire().unwrap().is_none());
    assert!(
        more.why()
            .unwrap()
            .starts_with("waits for 2 CPUs: 1 of 4 CPUs free, held by")
    );
    drop(waiting);
}

#[test]
fn i13_what_can_never_be_given_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let error = leases(&dir)
        .enqueue(ticket(50, 1, 3, 1), stock())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "3 GPUs and 1 CPU asked for, and this machine has 2 GPUs and 4 CPUs"
    );
}

#[test]
fn stale_and_foreign_entries_hold_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let leases = leases(&dir);
    let dead = ticket(100, 0, 2, 4);
    let stale = leases.queue().join(dead.queue_name());
    fs::write(&stale, serde_json::to_vec(&dead.entry(Vec::new())).unwrap()).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", leases.queue().join("000-link")).unwrap();
    nix::unistd::mkfifo(
        &leases.queue().join("000-pipe"),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .unwrap();
    let garbage = leases.queue().join("000-garbage");
    fs::write(&garbage, "{").unwrap();
    let locked = File::open(&garbage).unwrap();
    locked.lock().unwrap();
    assert!(
        wait(&leases, &ticket(0, 9, 2, 4))
            .try_acquire()
            .unwrap()
            .is_some()
    );
    assert!(!stale.exists());
}

#[test]
fn i6_a_job_that_stands_still_while_it_waits_lets_others_go_first_until_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let leases = leases(&dir);
    let first = ticket(50, 1, 2, 0);
    let mut stopped = wait(&leases, &first);
    let mut second = wait(&leases, &ticket(50, 2, 2, 0));
    assert!(second.try_acquire().unwrap().is_none());
    // As long as this it has not looked.
    let entry = File::open(leases.queue().join(first.queue_name())).unwrap();
    let before = std::time::SystemTime::now() - std::time::Duration::from_secs(16);
    entry.set_modified(before).unwrap();
    let lease = second.try_acquire().unwrap().unwrap();
    assert!(stopped.try_acquire().unwrap().is_none());
    // It goes on, and is the first again.
    let mut third = wait(&leases, &ticket(50, 3, 2, 0));
    drop(lease);
    assert!(third.try_acquire().unwrap().is_none());
    assert!(stopped.try_acquire().unwrap().is_some());
}

#[test]
fn the_kernel_gives_back_what_a_killed_holder_had() {
    let dir = tempfile::tempdir().unwrap();
    let leases = leases(&dir);
    // The child takes the lock's file as its own and says so; flock(1) would do, where present.
    let path = leases.directory().join("gpu-0");
    let file = open_lock(&path).unwrap();
    file.lock().unwrap();
    let mut child = std::process::Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::from(file))
        .spawn()
        .unwrap();
    let mut both = wait(&leases, &ticket(50, 1, 2, 0));
    assert!(both.try_acquire().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(both.try_acquire().unwrap().is_some());
}

#[test]
fn an_unsafe_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(
        Leases::open(Some(&open)),
        Err(LeaseError::Refused { .. })
    ));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    assert!(matches!(
        Leases::open(Some(&link)),
        Err(LeaseError::Refused { .. })
    ));
    let made = leases(&dir);
    assert_eq!(
        fs::metadata(made.directory()).unwrap().mode() & 0o7777,
        0o1777
    );
}
