//! What Ray is started with, for nodes of one machine and of several.

use std::collections::BTreeMap;

use herd_core::spec::{Command, JobSpec, JobType};
use herd_core::units::Bytes;

use super::directory::Directory;
use super::*;
use crate::assigned::assigned;

const MACHINE: Machine = Machine {
    cpus: 8,
    memory: 64 << 30,
    shared_memory: 8 << 30,
};

fn assign(node: u32, addresses: &[&str]) -> Assign {
    let nodes = u32::try_from(addresses.len()).unwrap();
    let spec = JobSpec {
        job_type: JobType::Ray,
        nodes,
        run: Some(Command::Argv(vec!["true".to_owned()])),
        ..JobSpec::default()
    };
    Assign {
        node,
        first_rank: node,
        node_names: (0..nodes).map(|index| format!("node{index}")).collect(),
        node_addresses: addresses.iter().map(|&a| a.to_owned()).collect(),
        secrets: BTreeMap::from([(TOKEN.to_owned(), "geheim".to_owned())]),
        ..assigned(&spec, 8)
    }
}

fn words(assign: &Assign, part: &Part) -> Vec<String> {
    let ports = ports::Claim::take().unwrap().ports();
    let argv = argv(assign, part, ports, &MACHINE, Path::new("/tmp/x"));
    argv.into_iter().map(|w| w.into_string().unwrap()).collect()
}

fn has(words: &[String], word: &str) -> bool {
    words.iter().any(|have| have == word)
}

#[test]
fn emulated_nodes_get_loopback_addresses_that_ray_leaves_alone() {
    let local = ["127.0.0.1", "127.0.0.1"];
    assert_eq!(address(&assign(0, &local)), "127.0.0.2");
    assert_eq!(address(&assign(1, &local)), "127.0.0.3");
    assert_eq!(address(&assign(1, &["10.0.0.1", "10.0.0.2"])), "10.0.0.2");
}

#[test]
fn emulated_nodes_share_what_the_machine_has() {
    let mut two = assign(0, &["127.0.0.1", "127.0.0.1"]);
    let head = words(&two, &Part::Head);
    assert!(has(&head, "--num-cpus=4"), "{head:?}");
    assert!(has(&head, "--num-gpus=0"), "{head:?}");
    // Half of what is free in shared memory, for two.
    assert!(has(&head, "--object-store-memory=2147483648"), "{head:?}");
    two.plan.resources.cpus = Some(3);
    two.plan.resources.memory = Some(Bytes(1 << 30));
    two.gpus = Some(vec!["4".to_owned(), "5".to_owned()]);
    let head = words(&two, &Part::Head);
    assert!(has(&head, "--num-cpus=3"), "{head:?}");
    assert!(has(&head, "--num-gpus=2"), "{head:?}");
    assert!(has(&head, "--memory=1073741824"), "{head:?}");
    assert!(has(&head, "--object-store-memory=322122546"), "{head:?}");
    // Alone on its machine, Ray counts GPUs itself.
    let alone = words(&assign(0, &["10.0.0.1"]), &Part::Head);
    assert!(has(&alone, "--num-cpus=8"), "{alone:?}");
    assert!(!alone.iter().any(|word| word.starts_with("--num-gpus")));
}

#[test]
fn a_small_shared_memory_still_gives_a_store_that_ray_takes() {
    let tiny = Machine {
        shared_memory: 0,
        ..MACHINE
    };
    assert_eq!(store(&assign(0, &["127.0.0.1"]), &tiny), MIN_STORE);
}

#[test]
fn ports_directory_and_silence_are_said_and_the_token_is_not() {
    let two = assign(1, &["127.0.0.1", "127.0.0.1"]);
    let part = Part::Worker {
        head: "127.0.0.2".to_owned(),
        port: 20_001,
    };
    let worker = words(&two, &part);
    for word in [
        "--address=127.0.0.2:20001",
        "--node-ip-address=127.0.0.3",
        "--node-name=node1",
        "--temp-dir=/tmp/x",
        "--disable-usage-stats",
        "--block",
    ] {
        assert!(has(&worker, word), "{word} in {worker:?}");
    }
    let head = words(&assign(0, &["127.0.0.1"]), &Part::Head);
    assert!(has(&head, "--head") && has(&head, "--include-dashboard=false"));
    let ports = |words: &[String]| {
        words
            .iter()
            .filter(|w| w.contains("port=") && !w.ends_with("=0"))
            .count()
    };
    assert_eq!((ports(&head), ports(&worker)), (9, 6));
    // I12: the token travels as a variable.
    assert!(!head.iter().chain(&worker).any(|w| w.contains("geheim")));
    let env = crate::environment::of_node(&two);
    assert_eq!(
        (env["RAY_AUTH_MODE"].as_str(), env[TOKEN].as_str()),
        ("token", "geheim")
    );
}

#[test]
fn directories_are_short_whatever_the_temporary_directory() {
    let plan = assign(0, &["127.0.0.1"]).plan;
    let short = directory::path(Path::new("/var/tmp"), &plan, 12);
    assert!(short.starts_with("/var/tmp"), "{short:?}");
    let deep = Path::new("/a/very/long/path/that/sockets/cannot/have");
    let long = directory::path(deep, &plan, 12);
    assert!(long.starts_with("/tmp"), "{long:?}");
    assert!(long.as_os_str().len() <= 40);
}

#[test]
fn a_directory_that_a_killed_executor_left_is_removed_and_one_in_use_is_not() {
    let plan = assign(0, &["127.0.0.1"]).plan;
    let temporary = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let used = Directory::make(temporary.path(), &plan, 0).unwrap();
    let left = Directory::make(temporary.path(), &plan, 1).unwrap();
    let (used_path, left_path) = (used.path().to_owned(), left.path().to_owned());
    std::fs::write(left_path.join("file"), "x").unwrap();
    // Only the lock of a process that was killed is gone.
    drop(left);
    directory::remove_left(temporary.path());
    assert!(used_path.is_dir());
    assert!(!left_path.exists());
    used.remove();
    assert!(!used_path.exists());
    let other = temporary.path().join("herd-ray-x");
    std::os::unix::fs::symlink("/tmp", &other).unwrap();
    directory::remove_left(temporary.path());
    assert!(other.is_symlink());
}
