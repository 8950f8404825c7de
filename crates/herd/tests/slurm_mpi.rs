//! `type: mpi` on a real Slurm, with real Open MPI and MPICH: ranks that `srun` starts with the way to
//! meet that each library has, and ranks of `mpirun` that reaches the nodes by `herd rsh`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use herd_testing::{SlurmLab, within};
use live::{Herd, assert_code, stderr, stdout};

/// Bound on what one job does, on a machine that is loaded.
const DEADLINE: Duration = Duration::from_mins(3);
/// Suffixes of the programs `mpicc` and `mpirun`.
const LIBRARIES: [&str; 2] = ["openmpi", "mpich"];

fn cluster() -> &'static SlurmLab {
    static CLUSTER: OnceLock<SlurmLab> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        SlurmLab::up(&[
            "--no-accounting",
            "--nodes",
            "2",
            "--cpus",
            "64",
            "--memory",
            "64000",
        ])
    })
}

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
    int rank, size, sum;
    char host[256];
    gethostname(host, sizeof host);
    MPI_Init(&argc, &argv);
    if (argc > 1)
        sleep(atoi(argv[1]));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d of %d sums %d as %s on %s, %s\n", rank, size, sum, getenv("HERD_RANK"), host, getenv("SLURMD_NODENAME"));
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

/// A job of two nodes with two ranks each; `env` are more variables.
fn job(herd: &Herd, library: &str, env: &str, run: &str) -> String {
    let run = run.replace('\n', "\n  ");
    let text = format!(
        "name: mpi\ntype: mpi\nnodes: 2\nprocs_per_node: 2\nwalltime: 60s\n\
         resources: {{cpus: 2, memory: 1GB}}\nenv: {{MPIRUN: mpirun.{library}, OMPI_ALLOW_RUN_AS_ROOT: 1, \
         OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: 1{env}}}\nrun: |\n  {run}\n"
    );
    let path = herd.file(&format!("{library}.yaml"), &text);
    path.to_string_lossy().into_owned()
}

fn herd_command(herd: &Herd, args: &[&str]) -> Command {
    let mut command = herd.command(args);
    cluster().enter(&mut command);
    command
}

fn on_slurm(herd: &Herd, args: &[&str]) -> Output {
    herd_command(herd, args).output().unwrap()
}

/// Runs a job whose ranks do [`ring`]. MPICH before 4.2 with UCX may wait for ever in `MPI_Finalize`, when a rank
/// comes there after its peer on another machine, which answers no more (mpich's pull request 6596); `settle`
/// makes that rare. All ranks have printed by then: such a run, which its walltime has ended, is done again.
fn run_ring(herd: &Herd, library: &str, file: &str) -> Output {
    let run = || on_slurm(herd, &["run", "-b", "slurm", file]);
    let hung = |output: &Output| {
        library == "mpich"
            && stdout(output).matches(" of 4 sums ").count() == 4
            && output.status.code() == Some(124)
    };
    let mut output = run();
    for _again in 0..4 {
        if !hung(&output) {
            break;
        }
        fs::remove_dir_all(herd.path("home")).unwrap();
        output = run();
    }
    output
}

/// What started the ranks, by the log that it has.
fn starter(herd: &Herd) -> String {
    let nodes = herd.job_dir().join("attempts/1/nodes");
    let mut found = Vec::new();
    for node in fs::read_dir(nodes).unwrap().flatten() {
        // Executors write beside the directories of the nodes.
        let files = fs::read_dir(node.path());
        for file in files.into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            found.extend(
                name.strip_suffix(".log")
                    .filter(|n| ["srun", "mpirun"].contains(n))
                    .map(str::to_owned),
            );
        }
    }
    found.join(",")
}

fn check_ring(herd: &Herd, library: &str, output: &Output) {
    assert_code(output, 0);
    let text = stdout(output);
    let mut lines: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once(") ").map(|(_, said)| said))
        .filter(|line| line.contains(" sums "))
        .collect();
    lines.sort_unstable();
    let names = ["node1", "node1", "node2", "node2"];
    let expected: Vec<String> = (0..4)
        .map(|rank| format!("{rank} of 4 sums 6 as {rank} on {0}, {0}", names[rank]))
        .collect();
    assert_eq!(lines, expected, "{library}: {text}{}", stderr(output));
    for rank in 0..4 {
        let rank = rank.to_string();
        let logs = on_slurm(
            herd,
            &[
                "logs", "last", "--rank", &rank, "--stream", "stderr", "--raw",
            ],
        );
        assert!(
            stdout(&logs).contains(&format!("stderr of {rank}\n")),
            "{library}"
        );
    }
}

#[test]
fn ranks_meet_by_the_way_that_slurm_has_for_their_library() {
    for library in LIBRARIES {
        let herd = Herd::new();
        let program = ring(&herd, library);
        let file = job(&herd, library, "", &program.to_string_lossy());
        let output = run_ring(&herd, library, &file);
        check_ring(&herd, library, &output);
        assert_eq!(starter(&herd), "srun", "{library}");
    }
}

#[test]
fn ranks_of_mpirun_reach_the_nodes_by_herd_rsh() {
    for library in LIBRARIES {
        let herd = Herd::new();
        let program = ring(&herd, library);
        let file = job(
            &herd,
            library,
            ", SLURM_MPI_TYPE: none",
            &program.to_string_lossy(),
        );
        let output = run_ring(&herd, library, &file);
        check_ring(&herd, library, &output);
        assert_eq!(starter(&herd), "mpirun", "{library}");
    }
}

#[test]
fn a_way_that_is_not_the_librarys_is_said_and_no_rank_runs_alone() {
    let herd = Herd::new();
    let program = ring(&herd, "mpich");
    let program = program.to_string_lossy();
    // What a program says of itself.
    let file = job(&herd, "mpich", ", SLURM_MPI_TYPE: pmix", &program);
    refused(&herd, &file);
    // What its processes show, where nothing says it before.
    let run = format!(
        "suffix=mpich; exec {} 600",
        program.replace("mpich", "$suffix")
    );
    let file = job(&herd, "openmpi", "", &run);
    refused(&herd, &file);
}

fn refused(herd: &Herd, file: &str) {
    let output = on_slurm(herd, &["run", "-b", "slurm", file]);
    let text = stderr(&output);
    assert!(!output.status.success(), "{text}{}", stdout(&output));
    assert!(text.contains("SLURM_MPI_TYPE"), "{text}");
    assert!(!stdout(&output).contains(" of 1 sums"), "{text}");
}

#[test]
fn i8_a_failing_rank_gives_its_code_and_the_others_are_ended() {
    for library in LIBRARIES {
        let herd = Herd::new();
        let run = "[ $HERD_RANK = 3 ] || exec sleep 600\necho no water >&2\nexit 7";
        let file = job(&herd, library, "", run);
        let output = on_slurm(&herd, &["run", "-b", "slurm", &file]);
        assert_code(&output, 7);
        let text = stderr(&output);
        assert!(
            text.contains("rank 3 failed first, on node2: exit code 7"),
            "{library}: {text}"
        );
        assert_eq!(starter(&herd), "srun", "{library}");
        nothing_left();
    }
}

#[test]
fn cancel_gives_ranks_that_srun_has_started_the_jobs_grace() {
    for library in LIBRARIES {
        let herd = Herd::new();
        let run = "trap 'sleep 3; echo saved > saved.$HERD_RANK; exit 0' TERM\ntouch ready.$HERD_RANK\nwhile :; do sleep 0.1 || :; done";
        let file = job(&herd, library, "", run);
        let child = herd_command(&herd, &["run", "-b", "slurm", &file])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let each = |name: &str| (0..4).all(|rank| herd.path(&format!("{name}.{rank}")).exists());
        within(DEADLINE, "the first lines of all ranks", || each("ready"));
        assert_code(&on_slurm(&herd, &["cancel", "last"]), 0);
        let output = child.wait_with_output().unwrap();
        assert_code(&output, 130);
        assert!(each("saved"), "{library}");
        nothing_left();
    }
}

/// A program that writes down each SIGTERM, and goes on for two seconds after the first.
fn counting(herd: &Herd) -> String {
    let source = herd.file(
        "counting.c",
        r#"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int file;
static volatile int told;
static void tell(int number) {
    if (write(file, "TERM\n", 5) == 5)
        told = 1;
}
int main(void) {
    char name[64];
    const char *rank = getenv("HERD_RANK");
    snprintf(name, sizeof name, "told.%s", rank);
    file = open(name, O_CREAT | O_WRONLY | O_APPEND, 0600);
    signal(SIGTERM, tell);
    snprintf(name, sizeof name, "ready.%s", rank);
    close(open(name, O_CREAT | O_WRONLY, 0600));
    while (!told)
        usleep(10000);
    for (int i = 0; i < 200; i++)
        usleep(10000);
    return 0;
}
"#,
    );
    let program = herd.path("counting");
    let mut compiler = Command::new("cc");
    let compiled = compiler.arg(&source).arg("-o").arg(&program).output();
    let compiled = compiled.unwrap();
    assert!(compiled.status.success(), "{}", stderr(&compiled));
    program.to_string_lossy().into_owned()
}

/// Ranks that are ended by `scancel` hear of it once, though Slurm, what has started them and herd all ask.
fn asked_once(lab: &SlurmLab) {
    for library in LIBRARIES {
        for (env, by) in [("", "srun"), (", SLURM_MPI_TYPE: none", "mpirun")] {
            let herd = Herd::new();
            let file = job(&herd, library, env, &format!("exec {}", counting(&herd)));
            let ask = |args: &[&str]| {
                let mut command = herd.command(args);
                lab.enter(&mut command);
                command.output().unwrap()
            };
            assert_code(&ask(&["submit", "-b", "slurm", &file]), 0);
            let each =
                |name: &str| (0..4).all(|rank| herd.path(&format!("{name}.{rank}")).exists());
            within(DEADLINE, "all ranks", || each("ready"));
            assert_eq!(starter(&herd), by, "{library}");
            let record = fs::read(herd.job_dir().join("slurm.json")).unwrap();
            let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
            // Those that begin when the signal comes may miss it.
            let began = Instant::now();
            within(DEADLINE, "a second", || {
                began.elapsed() > Duration::from_secs(1)
            });
            lab.ask(&["scancel", &record["job"].to_string()]);
            assert_code(&ask(&["wait", "last"]), 130);
            for rank in 0..4 {
                let told = fs::read_to_string(herd.path(&format!("told.{rank}"))).unwrap();
                assert_eq!(told, "TERM\n", "{library} by {by}, rank {rank}");
            }
        }
    }
}

#[test]
fn ranks_hear_of_scancel_once_where_slurm_signals_every_process() {
    asked_once(cluster());
}

#[test]
fn ranks_hear_of_scancel_once_where_slurm_signals_its_tasks() {
    let options = ["--proctrack", "cgroup", "--no-accounting", "--nodes", "2"];
    asked_once(&SlurmLab::up(&options));
}

/// I5: no process of a rank is left on any node.
fn nothing_left() {
    within(DEADLINE, "the end of all that ranks ran", || {
        !cluster().slurm(&["processes"]).contains("sleep 600")
    });
}
