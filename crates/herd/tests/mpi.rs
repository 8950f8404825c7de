//! `type: mpi` with real Open MPI and MPICH: `mpirun` reaches the emulated nodes by `herd rsh`, each
//! rank has a `herd shim` as its parent. The programs are compiled with the compilers of the two
//! libraries; `lab/mpi` installs both.

mod live;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use herd_testing::process::arguments_and_environment;
use herd_testing::within;
use live::{Herd, alive, assert_code, children, eventually, pid_of, pids, signal, stderr, stdout};

/// Five times the bound of I5.
const I5: Duration = Duration::from_secs(10);

/// The two libraries of the lab: suffix of the programs `mpicc` and `mpirun`.
const LIBRARIES: [&str; 2] = ["openmpi", "mpich"];

/// Compiles a program that sums its ranks and prints who it is.
fn ring(herd: &Herd, library: &str) -> PathBuf {
    herd.file("settle.h", include_str!("mpi_programs/settle.h"));
    let source = herd.file(
        "ring.c",
        r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "settle.h"
int main(int argc, char **argv) {
    int rank, size, sum, length;
    char name[MPI_MAX_PROCESSOR_NAME];
    MPI_Init(&argc, &argv);
    if (argc > 1)
        sleep(atoi(argv[1]));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(name, &length);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d of %d sums %d as %s on %s\n", rank, size, sum, getenv("HERD_RANK"), getenv("HERD_NODE_NAME"));
    fprintf(stderr, "stderr of %d\n", rank);
    settle();
    MPI_Finalize();
    return 0;
}
"#,
    );
    let program = herd.path(&format!("ring-{library}"));
    let compiler = format!("mpicc.{library}");
    let compiled = Command::new(&compiler)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; run lab/mpi"));
    assert!(compiled.status.success(), "{}", stderr(&compiled));
    program
}

fn job(herd: &Herd, library: &str, nodes: u32, each: u32, run: &str) -> String {
    let run = run.replace('\n', "\n  ");
    let text = format!(
        "name: mpi\ntype: mpi\nnodes: {nodes}\nprocs_per_node: {each}\nenv: {{MPIRUN: mpirun.{library}}}\nrun: |\n  {run}\n"
    );
    let path = herd.file(&format!("{library}-{nodes}-{each}.yaml"), &text);
    path.to_string_lossy().into_owned()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn ranks_of_two_nodes_find_each_other_with_both_libraries() {
    for library in LIBRARIES {
        let herd = Herd::new();
        let program = ring(&herd, library);
        let file = job(&herd, library, 2, 2, &program.to_string_lossy());
        let output = herd.run(&["run", &file]);
        assert_code(&output, 0);
        let text = stdout(&output);
        let expected: Vec<String> = (0..4)
            .map(|rank| {
                let node = rank / 2;
                format!("(node{node}, rank={rank}) {rank} of 4 sums 6 as {rank} on node{node}")
            })
            .collect();
        assert_eq!(sorted(&text), expected, "{library}: {}", stderr(&output));
        // Each rank's own streams, byte for byte (I7).
        for rank in 0..4 {
            let logs = herd.run(&[
                "logs",
                "last",
                "--rank",
                &rank.to_string(),
                "--stream",
                "stderr",
                "--raw",
            ]);
            assert!(
                stdout(&logs).contains(&format!("stderr of {rank}\n")),
                "{library}"
            );
        }
    }
}

#[test]
fn i8_a_failing_rank_gives_its_code_and_is_named_first() {
    for library in LIBRARIES {
        let herd = Herd::new();
        let file = job(
            &herd,
            library,
            2,
            2,
            "[ $HERD_RANK = 3 ] || exec sleep 600\necho no water >&2\nexit 7",
        );
        let output = herd.run(&["run", &file]);
        assert_code(&output, 7);
        let text = stderr(&output);
        assert!(
            text.contains("rank 3 failed first, on node1: exit code 7"),
            "{library}: {text}"
        );
        assert!(text.contains("no water"), "{library}: {text}");
    }
}

#[test]
fn cancel_gives_ranks_the_jobs_grace_and_not_the_second_of_mpirun() {
    for library in LIBRARIES {
        let herd = Herd::new();
        let file = job(
            &herd,
            library,
            2,
            1,
            "trap 'sleep 3; echo saved > saved.$HERD_RANK; exit 0' TERM\ntouch ready.$HERD_RANK\nwhile :; do sleep 0.1; done",
        );
        let child = herd.start(&["run", &file]);
        eventually("both ranks run", || {
            herd.path("ready.0").exists() && herd.path("ready.1").exists()
        });
        assert_code(&herd.run(&["cancel", "last"]), 0);
        let output = child.wait_with_output().unwrap();
        assert_code(&output, 130);
        for rank in ["saved.0", "saved.1"] {
            assert!(
                herd.path(rank).exists(),
                "{library}: {rank}: {}",
                stderr(&output)
            );
        }
    }
}

/// Starts a job of two ranks that ignore SIGTERM, each with a daemon in a session of its own that does
/// so, too, and waits for all of them.
fn start_stubborn(herd: &Herd, library: &str) -> Child {
    let file = job(
        herd,
        library,
        2,
        1,
        "trap '' TERM\n(setsid sh -c 'trap \"\" TERM; echo $$ > daemon.$HERD_RANK; while :; do sleep 1; done' &)\n\
         echo $$ > shell.$HERD_RANK\nwhile :; do sleep 0.1; done",
    );
    let child = herd.start(&["run", &file]);
    let files = ["daemon.0", "daemon.1", "shell.0", "shell.1"].map(|name| herd.path(name));
    eventually("all ranks run", || {
        files.iter().all(|file| !pids(file).is_empty())
    });
    child
}

/// All processes below this one: driver, executors, mpirun, its remote shells, shims and ranks.
fn below(pid: i32) -> Vec<i32> {
    let mut found = children(pid);
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(children(parent));
        next += 1;
    }
    found
}

#[test]
fn i5_nothing_is_left_when_herd_is_killed() {
    for library in LIBRARIES {
        let herd = Herd::new();
        let mut child = start_stubborn(&herd, library);
        let all = below(pid_of(&child));
        assert!(all.len() > 8, "{library}: {all:?}");
        signal(pid_of(&child), "-KILL");
        child.wait().unwrap();
        within(I5, "the end of every process", || {
            !all.iter().any(|&pid| alive(pid))
        });
    }
}

#[test]
fn i5_nothing_is_left_when_herd_is_killed_and_mpirun_and_an_executor_stand_still() {
    for library in LIBRARIES {
        let herd = Herd::new();
        let mut child = start_stubborn(&herd, library);
        let all = below(pid_of(&child));
        // Below the guard the driver comes first, then its executors.
        for &pid in &all[1..] {
            let (arguments, _) = arguments_and_environment(pid);
            let text = String::from_utf8_lossy(&arguments);
            if pid == all[1] || text.starts_with("mpirun") {
                signal(pid, "-STOP");
            }
        }
        signal(pid_of(&child), "-KILL");
        child.wait().unwrap();
        within(I5, "the end of every process", || {
            !all.iter().any(|&pid| alive(pid))
        });
    }
}

#[test]
fn a_program_of_another_library_is_refused_and_does_not_run_alone() {
    let herd = Herd::new();
    let program = ring(&herd, "mpich");
    // Alone, each rank would end with 0.
    let file = job(
        &herd,
        "openmpi",
        1,
        2,
        &format!("{} 600", program.display()),
    );
    let output = herd.run(&["run", &file]);
    assert_code(&output, 125);
    let text = stderr(&output);
    assert!(text.contains("built with MPICH"), "{text}");
}

#[test]
fn no_mpirun_is_said_with_what_to_do() {
    let herd = Herd::new();
    let file = job(&herd, "nowhere", 1, 1, "true");
    let output = herd.run(&["run", &file]);
    assert_code(&output, 127);
    assert!(
        stderr(&output).contains("install Open MPI or MPICH"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_mpirun_that_runs_nothing_is_no_success() {
    let herd = Herd::new();
    let file = job(&herd, "openmpi", 2, 1, "true");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("mpirun.openmpi", "true")).unwrap();
    let output = herd.run(&["run", &file]);
    assert_code(&output, 125);
    assert!(
        stderr(&output).contains("without having run this rank"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn without_the_right_to_host_names_all_nodes_are_one_host() {
    let herd = Herd::new();
    let program = ring(&herd, "openmpi");
    let file = job(&herd, "openmpi", 2, 2, &program.to_string_lossy());
    let command = herd.command(&["run", &file]);
    // A user without any privilege, who may not see the build's directory.
    for program in ["herd", "herd-node"] {
        let built = Path::new(env!("CARGO_BIN_EXE_herd")).with_file_name(program);
        fs::copy(built, herd.path(program)).unwrap();
    }
    fs::set_permissions(herd.path(""), Permissions::from_mode(0o777)).unwrap();
    let mut setpriv = Command::new("setpriv");
    herd_testing::surroundings::copy(&command, &mut setpriv);
    let output = setpriv
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(herd.path("herd"))
        .args(command.get_args())
        .env("HOME", herd.path(""))
        // Whoever runs the tests may have one that only they write in.
        .env("TMPDIR", herd.path(""))
        .current_dir(herd.path(""))
        .output()
        .unwrap();
    assert_code(&output, 0);
    assert_eq!(
        stdout(&output).matches("of 4 sums 6").count(),
        4,
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_directory_of_the_sockets_is_removed() {
    let herd = Herd::new();
    let file = job(&herd, "openmpi", 2, 1, "echo $HERD_JOB_ID");
    let output = herd.run(&["run", &file]);
    assert_code(&output, 0);
    let text = stdout(&output);
    let id = text.split_whitespace().last().unwrap();
    let user = fs::metadata(herd.path("")).unwrap().uid();
    let directory = std::env::temp_dir().join(format!("herd-{user}"));
    assert!(!directory.join(format!("{id}-1")).exists());
}

#[test]
fn a_rank_that_fails_ends_the_job_at_once_and_the_launcher_adds_nothing() {
    for library in LIBRARIES {
        let herd = Herd::new();
        let run = job(
            &herd,
            library,
            2,
            1,
            "[ $HERD_RANK = 0 ] || exec sleep 600; exit 3",
        );
        let begun = Instant::now();
        let output = herd.run(&["run", &run]);
        assert_code(&output, 3);
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
        // Hydra may still tell of a proxy that has left before it.
        let said = stdout(&output) + &stderr(&output);
        let noises: &[&str] = match library {
            "openmpi" => &["mpirun)", "ctrl-c", "signal 18"],
            _ => &["ctrl-c"],
        };
        for noise in noises {
            assert!(!said.contains(noise), "{library}: {said}");
        }
    }
}

#[test]
fn a_program_that_is_not_there_is_found_out_before_the_launcher_starts() {
    let herd = Herd::new();
    let plain = herd.file("plain", "no program");
    for (program, code) in [("./nothere", 127), (plain.to_str().unwrap(), 126)] {
        let output = herd.run(&["run", "--type", "mpi", "-N", "2", "--", program]);
        assert_code(&output, code);
        let said = stdout(&output) + &stderr(&output);
        assert!(said.contains("rank 0 could not start on node0"), "{said}");
        assert!(!said.contains("mpirun"), "{said}");
    }
}
