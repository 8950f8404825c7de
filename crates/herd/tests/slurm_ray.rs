//! `type: ray` on a real Slurm: two jobs at once on one node, which share its network and its temporary directory.
//! `scripts/examples --slurm` has a head and a worker on nodes with networks of their own.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod live;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use herd_testing::{SlurmLab, within};
use live::{Herd, assert_code, stderr, stdout};

/// Bound on the end of processes, on a machine that is loaded.
const DEADLINE: Duration = Duration::from_mins(3);

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

fn herd_command(herd: &Herd, args: &[&str]) -> Command {
    let mut command = herd.command(args);
    cluster().enter(&mut command);
    command
}

/// The directory with `ray` and its Python.
fn programs() -> String {
    let ray = std::env::var("HERD_LAB_RAY").expect("HERD_LAB_RAY is not set; run lab/ray");
    Path::new(&ray)
        .parent()
        .unwrap()
        .to_string_lossy()
        .into_owned()
}

/// Variables of a user who has Ray: for the daemons, and by the profile for what a login shell runs.
fn variables(herd: &Herd) -> [String; 2] {
    let path = format!("{}:/usr/bin:/bin", programs());
    herd.file(".profile", &format!("PATH={path}\n"));
    [
        format!("PATH={path}"),
        format!("HOME={}", herd.path("").display()),
    ]
}

fn nothing_left() {
    within(DEADLINE, "the end of all that Ray ran", || {
        let left = cluster().slurm(&["processes"]);
        !left.contains("raylet") && !left.contains("gcs_server") && !left.contains("ray::")
    });
}

#[test]
fn two_jobs_on_one_node_do_not_clash() {
    let herds = [Herd::new(), Herd::new()];
    // Each waits, in its own cluster, for the other to be in its own.
    let program = "import os, ray, sys, time\n\
         ray.init(address='auto')\n\
         mine, other = sys.argv[1:]\n\
         open(mine, 'w').close()\n\
         began = time.time()\n\
         while not os.path.exists(other):\n\
         \x20   assert time.time() - began < 150, 'the other job has not come'\n\
         \x20   time.sleep(0.1)\n\
         @ray.remote\n\
         def add(a, b): return a + b\n\
         print('sum', sum(ray.get([add.remote(i, i) for i in range(10)])), 'nodes', len(ray.nodes()))\n";
    let marks = [herds[0].path("up"), herds[1].path("up")];
    let jobs: Vec<_> = herds
        .iter()
        .enumerate()
        .map(|(index, herd)| {
            herd.file("entry.py", program);
            let (mine, other) = (marks[index].display(), marks[1 - index].display());
            let text = format!(
                "name: two\ntype: ray\nnodes: 1\nworkdir: .\nresources: {{cpus: 1, memory: 2GB}}\n\
                 slurm: {{extra: [--nodelist=node1]}}\nrun: python3 entry.py {mine} {other}\n"
            );
            let file = herd.file("job.yaml", &text);
            let [path, home] = variables(herd);
            let file = file.to_string_lossy();
            let args = ["run", "-b", "slurm", "--env", &path, "--env", &home, &file];
            herd_command(herd, &args)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let outputs: Vec<Output> = jobs
        .into_iter()
        .map(|job| job.wait_with_output().unwrap())
        .collect();
    for output in &outputs {
        assert_code(output, 0);
        let text = stdout(output);
        assert!(text.contains("sum 90 nodes 1"), "{text}{}", stderr(output));
    }
    nothing_left();
}
