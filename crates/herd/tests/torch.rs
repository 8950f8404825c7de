//! Real torch under `herd run`: ranks that meet, the user's own torchrun, failures and retries.
//!
//! Issue A, point 6 (pytorch). The interpreters are named by variables that `lab/env` prints; a
//! missing one fails the test and says what to run.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use live::{Herd, alive, assert_code, eventually, pids, stderr, stdout};

/// Ranks that meet, add up their numbers and say what they are.
const MEET: &str = "\
import os, sys
import torch, torch.distributed as dist
dist.init_process_group('gloo')
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
names = sys.argv[1].split(',')
# One write, so that lines of ranks with one stream stay whole.
sys.stdout.write(f'sum {total.item():g} ' + ' '.join(f'{name}={os.environ.get(name)}' for name in names) + '\\n')
sys.stdout.flush()
dist.destroy_process_group()
# A thread of torch that comes after the interpreter's end aborts the process, on busy machines now and then.
os._exit(0)
";

/// Rank 3 raises, under torch's own recorder where asked; the others say their processes and sleep.
const RAISE: &str = "\
import os, sys, time
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

def main():
    with open(sys.argv[1], 'a') as pids:
        pids.write(f'{os.getpid()}\\n')
    dist.init_process_group('gloo')
    # Nobody is left behind in the meeting: the failure comes after it.
    dist.barrier()
    if dist.get_rank() == 3:
        raise ValueError('no data for rank 3')
    time.sleep(3000)

(record(main) if sys.argv[2:] == ['record'] else main)()
";

/// A bound on each job, so that a meeting that fails ends the test with code 124.
const WALLTIME: &str = "walltime: 5m";

/// The newest torch, or the sentence that says how to get it.
fn torch() -> PathBuf {
    lab("HERD_LAB_TORCH_PYTHON", "lab/torch")
}

/// Debian's torch, the old one.
fn debian_torch() -> PathBuf {
    lab("HERD_LAB_DEBIAN_TORCH_PYTHON", "lab/debian-torch")
}

fn lab(variable: &str, script: &str) -> PathBuf {
    let path = std::env::var_os(variable).unwrap_or_else(|| {
        panic!("{variable} is not set: run {script}, then: eval \"$(lab/env)\"")
    });
    PathBuf::from(path)
}

/// Runs a job file with the interpreter's programs, torchrun among them, first on PATH.
fn run(herd: &Herd, python: &Path, job: &str) -> Output {
    herd.file("job.yaml", &format!("{WALLTIME}\n{job}"));
    let bin = python.parent().unwrap().to_str().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = herd.command(&["run", "job.yaml"]);
    command.env("PATH", format!("{bin}:{path}"));
    // What the tester's surroundings set would stand over herd's defaults.
    command.env_remove("OMP_NUM_THREADS").output().unwrap()
}

/// The values that each rank printed, by its number in `RANK`.
fn printed(output: &Output) -> BTreeMap<String, BTreeMap<String, String>> {
    let text = stdout(output);
    let lines = text.lines().filter(|line| line.contains("sum "));
    lines
        .map(|line| {
            assert!(line.contains("sum 10 "), "{line}");
            let values: BTreeMap<_, _> = line
                .split_whitespace()
                .filter_map(|word| word.split_once('='))
                .filter(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            (values["RANK"].clone(), values)
        })
        .collect()
}

/// Runs two nodes with two ranks each and asserts on the environment of worker-launcher §11.
fn four_ranks_meet(python: &Path) {
    let same = [
        ("LOCAL_WORLD_SIZE", "2"),
        ("WORLD_SIZE", "4"),
        ("ROLE_WORLD_SIZE", "4"),
        ("GROUP_WORLD_SIZE", "2"),
        ("ROLE_NAME", "default"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("TORCHELASTIC_RESTART_COUNT", "0"),
        ("TORCHELASTIC_MAX_RESTARTS", "0"),
        ("TORCHELASTIC_USE_AGENT_STORE", "False"),
        (
            "TORCHELASTIC_SIGNALS_TO_HANDLE",
            "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        ),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        ("OMP_NUM_THREADS", "1"),
    ];
    let own = ["RANK", "LOCAL_RANK", "ROLE_RANK", "GROUP_RANK", "HERD_RANK"];
    let present = [
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_ERROR_FILE",
    ];
    let names: Vec<&str> = same
        .iter()
        .map(|(name, _)| *name)
        .chain(own)
        .chain(present)
        .collect();
    let herd = Herd::new();
    herd.file("meet.py", MEET);
    let job = format!(
        "type: pytorch\nnodes: 2\nprocs_per_node: 2\nrun: ['{}', meet.py, '{}']\n",
        python.display(),
        names.join(",")
    );
    let output = run(&herd, python, &job);
    assert_code(&output, 0);
    let ranks = printed(&output);
    assert_eq!(ranks.len(), 4, "{}", stdout(&output));
    for (rank, values) in &ranks {
        for (name, value) in same {
            assert_eq!(values[name], value, "{name} of rank {rank}");
        }
        let number: u32 = rank.parse().unwrap();
        assert_eq!(values["LOCAL_RANK"], (number % 2).to_string());
        assert_eq!(values["GROUP_RANK"], (number / 2).to_string());
        assert_eq!(&values["ROLE_RANK"], rank);
        assert_eq!(&values["HERD_RANK"], rank);
        for name in ["MASTER_PORT", "TORCHELASTIC_RUN_ID"] {
            assert_eq!(values[name], ranks["0"][name], "{name} of rank {rank}");
            assert_ne!(values[name], "None");
        }
        let file = format!("/ranks/{rank}/error.json");
        assert!(values["TORCHELASTIC_ERROR_FILE"].ends_with(&file));
    }
}

#[test]
fn four_ranks_on_two_nodes_meet_over_gloo() {
    four_ranks_meet(&torch());
}

/// Its torchrun does not work under its own Python; plain ranks do.
#[test]
fn ranks_of_the_old_torch_of_debian_meet_too() {
    four_ranks_meet(&debian_torch());
}

#[test]
fn the_users_own_torchrun_finds_its_peers_without_flags() {
    let herd = Herd::new();
    herd.file("meet.py", MEET);
    let output = run(
        &herd,
        &torch(),
        "type: pytorch\nlauncher: user\nnodes: 2\nprocs_per_node: 2\n\
         run: torchrun meet.py RANK,WORLD_SIZE,LOCAL_WORLD_SIZE,MASTER_ADDR,HERD_RANK,OMP_NUM_THREADS\n",
    );
    assert_code(&output, 0);
    let ranks = printed(&output);
    assert_eq!(ranks.len(), 4, "{}", stdout(&output));
    for (number, values) in ranks.values().enumerate() {
        assert_eq!(values["RANK"], number.to_string());
        assert_eq!(values["WORLD_SIZE"], "4");
        assert_eq!(values["LOCAL_WORLD_SIZE"], "2");
        assert_eq!(values["MASTER_ADDR"], "127.0.0.1");
        assert_eq!(values["OMP_NUM_THREADS"], "1");
    }
    // One torchrun on each node, and it had nothing to say about its defaults.
    let on_node = |node: &str| ranks.values().filter(|v| v["HERD_RANK"] == node).count();
    assert_eq!((on_node("0"), on_node("1")), (2, 2));
    assert!(
        !stderr(&output).contains("OMP_NUM_THREADS"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn i8_a_failure_under_the_users_torchrun_is_the_jobs() {
    let herd = Herd::new();
    herd.file("raise.py", RAISE);
    let list = herd.path("pids");
    let job = format!(
        "type: pytorch\nlauncher: user\nnodes: 2\nprocs_per_node: 2\nrun: torchrun raise.py {} record\n",
        list.display()
    );
    let output = run(&herd, &torch(), &job);
    assert_code(&output, 1);
    let text = stderr(&output);
    // torchrun hands on the root cause of its workers; herd reads it.
    let (_, report) = text.split_once("failed first").unwrap();
    assert!(report.contains("ValueError: no data for rank 3"), "{text}");
    all_gone(&list);
}

#[test]
fn a_rank_that_raises_is_named_with_its_exception_and_its_peers_end() {
    let python = torch();
    for record in ["record", "plain"] {
        let herd = Herd::new();
        herd.file("raise.py", RAISE);
        let list = herd.path("pids");
        let job = format!(
            "type: pytorch\nnodes: 2\nprocs_per_node: 2\nrun: ['{}', raise.py, '{}', {record}]\n",
            python.display(),
            list.display()
        );
        let output = run(&herd, &python, &job);
        assert_code(&output, 1);
        let text = stderr(&output);
        let (_, report) = text
            .split_once("rank 3 failed first, on node1: exit code 1")
            .unwrap();
        assert!(report.contains("ValueError: no data for rank 3"), "{text}");
        assert!(report.contains("3 ranks were stopped by herd"), "{text}");
        let status = stdout(&herd.run(&["status", "last"]));
        assert!(
            status.contains("rank 3") && status.contains("node1"),
            "{status}"
        );
        // The recorder's file says what the exception was, where status has one line for it.
        assert_eq!(
            status.contains("ValueError: no data for rank 3"),
            record == "record",
            "{status}"
        );
        all_gone(&list);
    }
}

#[test]
fn a_training_that_asks_for_it_is_started_again() {
    let herd = Herd::new();
    herd.file(
        "again.py",
        "import os, sys\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n\
         dist.barrier()\nprint('attempt', os.environ['HERD_ATTEMPT'], flush=True)\n\
         sys.exit(75 if os.environ['HERD_ATTEMPT'] == '1' else 0)\n",
    );
    let python = torch();
    let job = format!(
        "type: pytorch\nnodes: 2\nretry: {{max: 3, on: ['exit:75'], backoff: 10ms}}\nrun: ['{}', again.py]\n",
        python.display()
    );
    let output = run(&herd, &python, &job);
    assert_code(&output, 0);
    let text = stdout(&output);
    assert_eq!(text.matches("attempt 2").count(), 2, "{text}");
    assert!(
        text.contains("attempt 1") && !text.contains("attempt 3"),
        "{text}"
    );
    assert!(
        stderr(&output).contains("2 attempts"),
        "{}",
        stderr(&output)
    );
}

/// Waits until each of the four ranks is gone.
fn all_gone(list: &Path) {
    assert_eq!(pids(list).len(), 4);
    eventually("the end of every rank", || {
        pids(list).iter().all(|&pid| !alive(pid))
    });
}
