//! What `resources` asks for on this machine: memory by a control group, CPUs by affinity.

mod live;

use std::fs;
use std::path::Path;

use live::{Herd, assert_code, eventually, stderr, stdout};

/// Reads until it holds about 400 MiB, in a process below the rank.
const GREEDY: &str = "head -c 400M /dev/zero | tail -n 1 | wc -c";

/// Whether memory is enforced here. Where no control group is writable it is accounting only, and
/// then `render` must say so (I13).
fn enforced(herd: &Herd) -> bool {
    let render = herd.run(&["render", "--mem", "100M", "--", "true"]);
    assert_code(&render, 0);
    let said = stderr(&render).contains("accounted") || stdout(&render).contains("accounted");
    let writable = stdout(&herd.run(&["doctor"])).contains("is writable");
    assert_eq!(said, !writable, "{}{}", stdout(&render), stderr(&render));
    writable
}

#[test]
fn i13_a_job_over_its_memory_is_ended_by_the_kernel_and_the_failure_says_so() {
    let herd = Herd::new();
    if !enforced(&herd) {
        return assert_code(&herd.run(&["run", "--mem", "100M", "--", "true"]), 0);
    }
    let job = herd.file(
        "job.yaml",
        &format!(
            "resources: {{memory: 100MiB}}\nretry: {{max: 1, on: [out-of-memory]}}\nrun: {GREEDY}\n"
        ),
    );
    let output = herd.run(&["run", job.to_str().unwrap()]);
    assert_code(&output, 137);
    let text = stderr(&output);
    assert!(text.contains("want of memory"), "{text}");
    let status = herd.run(&["status", "last", "-o", "json"]);
    assert!(
        stdout(&status).contains("out-of-memory"),
        "{}",
        stdout(&status)
    );
    // The reason is one that a retry can name.
    assert!(herd.run(&["logs", "last"]).status.success());
    let job = herd.file("fits.yaml", "resources: {memory: 100MiB}\nrun: echo fits\n");
    let output = herd.run(&["run", job.to_str().unwrap()]);
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "fits\n");
    eventually("no control group is left", || groups().is_empty());
}

#[test]
fn a_task_over_the_memory_of_its_node_is_told_apart_and_can_be_retried() {
    let herd = Herd::new();
    if !enforced(&herd) {
        return;
    }
    // Task 0 fits in its second attempt; those after task 1 fail otherwise, the last of them by a SIGKILL
    // that is not the kernel's, which only one at a time tells apart.
    for tasks in ["0-3%1", "0-2%3"] {
        let job = herd.file(
            "array.yaml",
            &format!(
                "name: array\narray: {tasks}\nresources: {{memory: 100MiB}}\n\
                 retry: {{max: 1, on: [out-of-memory], backoff: 1s}}\nrun: |\n  \
                 case $HERD_ARRAY_INDEX-$HERD_ATTEMPT in\n  \
                 0-1|1-*) {GREEDY} ;;\n  2-*) exit 3 ;;\n  3-*) kill -KILL $$ ;;\n  esac\n"
            ),
        );
        let output = herd.run(&["run", "-b", "local", job.to_str().unwrap()]);
        assert!(!output.status.success());
        let status = herd.run(&["status", "last", "-o", "json"]);
        let id: String = stdout(&status);
        let (_, id) = id.split_once("\"id\"").unwrap();
        let id = id.split('"').nth(1).unwrap();
        let lines = fs::read_to_string(herd.path(&format!("home/jobs/{id}/tasks.jsonl"))).unwrap();
        let of = |index: u32| -> Vec<bool> {
            let own = format!("{{\"index\":{index},");
            let lines = lines.lines().filter(|line| line.starts_with(&own));
            lines
                .map(|line| line.contains("\"out_of_memory\":true"))
                .collect()
        };
        assert_eq!(of(0), [true, false], "{tasks}: {lines}");
        assert_eq!(of(1), [true, true], "{tasks}: {lines}");
        assert_eq!(of(2), [false], "{tasks}: {lines}");
        if tasks == "0-3%1" {
            assert_eq!(of(3), [false], "{tasks}: {lines}");
        }
    }
}

#[test]
fn i13_memory_that_no_job_can_have_is_refused_in_file_and_flag() {
    let herd = Herd::new();
    for (size, part) in [
        ("1000000GiB", "asks for 1000000GiB, and local has "),
        ("10", "needs a unit: `10M` or `10G`"),
        ("1M", "is less than 16MiB"),
        ("0M", "is less than 16MiB"),
    ] {
        herd.file(
            "job.yaml",
            &format!("resources: {{memory: {size}}}\nrun: 'true'\n"),
        );
        for command in [
            ["run", "job.yaml"].as_slice(),
            &["run", "--mem", size, "--", "true"],
        ] {
            let output = herd.run(command);
            assert_code(&output, 2);
            let said = stderr(&output);
            assert!(said.contains(part), "{said}");
        }
    }
}

#[test]
fn only_the_node_over_its_memory_is_blamed() {
    let herd = Herd::new();
    if !enforced(&herd) {
        return;
    }
    let job = herd.file(
        "two.yaml",
        &format!(
            "nodes: 2\nresources: {{memory: 100MiB}}\nrun: |\n  [ $HERD_NODE_RANK = 1 ] || exec sleep 600\n  {GREEDY}\n"
        ),
    );
    let output = herd.run(&["run", job.to_str().unwrap()]);
    assert_code(&output, 137);
    assert!(
        stderr(&output).contains("rank 1 on node1"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn nodes_that_ask_for_cpus_get_their_own() {
    let herd = Herd::new();
    // It prints what OpenMP was told, where that is less.
    let nproc = [
        "env",
        "-u",
        "OMP_NUM_THREADS",
        "-u",
        "OMP_THREAD_LIMIT",
        "nproc",
    ];
    let output = herd.run(&[&["run", "-N", "2", "-c", "1", "--"][..], &nproc].concat());
    assert_code(&output, 0);
    let text = stdout(&output);
    assert_eq!(
        text.lines().filter(|line| line.ends_with(" 1")).count(),
        2,
        "{text}"
    );
    let list = "grep Cpus_allowed_list /proc/self/status";
    let output = herd.run(&["run", "-N", "2", "-c", "1", "--", "sh", "-c", list]);
    let text = stdout(&output);
    let mut cpus: Vec<&str> = text
        .lines()
        .filter_map(|l| l.split_whitespace().last())
        .collect();
    cpus.dedup();
    assert_eq!(cpus.len(), 2, "{text}");
}

/// Names of control groups of this test's jobs; other tests' jobs ask for no memory.
fn groups() -> Vec<String> {
    let mut found = Vec::new();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for line in own.lines() {
        let path = line.splitn(3, ':').nth(2).unwrap_or_default();
        let relative = path.trim_start_matches('/');
        for root in ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
            let entries = fs::read_dir(Path::new(root).join(relative));
            for entry in entries.into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with("herd-") {
                    found.push(name);
                }
            }
        }
    }
    found
}
