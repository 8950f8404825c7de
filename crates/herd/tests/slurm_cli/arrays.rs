//! Arrays from batch scripts, and what a site's limits say of them.

use crate::lab::Bench;

#[test]
fn build7_a_batch_script_with_an_array_runs_as_sbatch_would_run_it() {
    let bench = Bench::new();
    bench.file(
        "sweep.sbatch",
        "#!/bin/bash\n#SBATCH --array=1-7:3%2\n#SBATCH --mem=64M\n\
         echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_MIN-$SLURM_ARRAY_TASK_MAX, $SLURM_ARRAY_TASK_COUNT\n\
         test $SLURM_ARRAY_TASK_ID != 4 || exit 6\n",
    );
    let home = format!("HOME={}", bench.dir.path().display());
    let answer = bench.ask(&["run", "--env", &home, "sweep.sbatch"]);
    assert_eq!(answer.code, 6, "{answer:?}");
    for index in [1, 4, 7] {
        let line = format!("(task {index}) {index} of 1-7, 3\n");
        assert!(answer.out.contains(&line), "{answer:?}");
    }
    // The task is shown with what it wrote to either stream, and with the node that it was on.
    assert!(answer.err.contains("│ 4 of 1-7, 3"), "{answer:?}");
    assert!(!answer.err.contains("node0"), "{answer:?}");
    let status = bench.json(&["status"]);
    let node = status["node_list"][0]["name"].as_str().unwrap_or_default();
    assert!(node.starts_with("node"), "{status}");
    assert!(answer.err.contains(&format!("on {node}")), "{answer:?}");
}

#[test]
fn row_14_an_array_beyond_a_limit_is_refused_plainly_and_nothing_is_left() {
    let bench = Bench::new();
    let limit = |jobs: &str| {
        bench.limit(["user", "root"], &format!("MaxSubmitJobs={jobs}"));
    };
    // Jobs of tests before this one may still be ending.
    let queued = || bench.lab.ask(&["squeue", "--noheader", "--format=%F"]);
    let before = queued();
    limit("3");
    bench.file("job.yaml", "array: 0-3\nrun: [\"true\"]\n");
    let answer = bench.ask(&["submit", "-b", "slurm", "job.yaml"]);
    limit("-1");
    assert_eq!(answer.code, 2, "{answer:?}");
    for part in [
        "array: ",
        "AssocMaxSubmitJobLimit",
        "each task counts as a job",
        "allocation: job",
    ] {
        assert!(answer.err.contains(part), "{part}: {}", answer.err);
    }
    assert_eq!(bench.json(&["ls"]).as_array().unwrap().len(), 0);
    let after = queued();
    let new = |number: &&str| !before.lines().any(|known| known == *number);
    assert_eq!(after.lines().find(new), None, "{before}\n{after}");
}
