//! Batch scripts as jobs, what `render` prints, arrays, jobs after others, secrets.

use std::os::unix::fs::PermissionsExt as _;

use herd_testing::{SlurmLab, within};

use crate::lab::{Bench, DEADLINE};

const SCRIPT: &str = "#!/bin/bash\n#SBATCH --job-name=digits -t 5\n#SBATCH --gres=gpu:2\n\
                      echo \"$0 has $CUDA_VISIBLE_DEVICES\"\nfalse\nexit 3\n";

#[test]
fn build7_a_batch_script_runs_as_sbatch_would_run_it() {
    let bench = Bench::new();
    bench.file("train.sbatch", SCRIPT);
    let answer = bench.ask(&["run", "train.sbatch"]);
    assert_eq!(
        (answer.code, answer.out.as_str()),
        (3, "train.sbatch has 0,1\n"),
        "{answer:?}"
    );
    let status = bench.json(&["status"]);
    assert_eq!(status["name"], "digits");
    assert_eq!(status["backend"], "slurm");
    // What is kept is a job file that says the same.
    let kept = bench
        .job_dir(status["id"].as_str().unwrap())
        .join("job.yaml");
    let again = bench.ask(&["run", kept.to_str().unwrap()]);
    assert_eq!((again.code, again.out), (3, answer.out));
}

/// Scripts, each with an option that the one before has not; with `srun` in them.
const SCRIPTS: &[&str] = &[
    "#SBATCH -t 5",
    "#SBATCH -n 1 -c 2 --mem-per-cpu=100 -J named -t 5",
    "#SBATCH --ntasks-per-node=1 -N 1 -c 3 --mem=200 --gpus=2 --hint=nomultithread",
    "#SBATCH --gpus-per-node=h800:1 --exclusive --qos=low",
    "#SBATCH --gres=gpu:1 --mem-per-gpu=100 --threads-per-core=1",
];

/// Variables that are each job's own, or say when.
const OWN: &[&str] = &[
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_TASK_PID",
    "SLURM_JOB_START_TIME",
    "SLURM_JOB_END_TIME",
];

/// The difference between what scripts find under `sbatch` and under herd, and how their steps end.
fn finds_what_sbatch_gives(bench: &Bench<'_>) {
    for options in SCRIPTS {
        let script = format!(
            "#!/bin/bash\n{options}\n#SBATCH -w node1\nenv | grep -E '^(SLURM|SBATCH|SRUN|ENVIRONMENT)' | sort\n\
             cd \"$SLURM_SUBMIT_DIR\" && ls c.sbatch\necho \"$# $1\"\n\
             srun sh -c 'echo task $SLURM_PROCID of $SLURM_NTASKS'\nsrun --overlap -n 1 true\n"
        );
        bench.file("c.sbatch", &script);
        let mut sbatch = bench.lab.command("sbatch");
        sbatch.current_dir(bench.dir.path());
        sbatch.args(["--wait", "--output=sbatch.out", "c.sbatch", "a b"]);
        let done = sbatch.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let wanted = std::fs::read_to_string(bench.dir.path().join("sbatch.out")).unwrap();
        let answer = bench.ask(&["run", "c.sbatch", "--", "a b"]);
        assert_eq!(answer.code, 0, "{options}: {answer:?}");
        assert!(!answer.err.contains("--export"), "{answer:?}");
        let lines = |text: &str| -> Vec<String> {
            // 24.11 says these of some scripts that ask for no tasks.
            let tasks = ["SLURM_NTASKS", "SLURM_NPROCS"];
            let asked = options.contains("-n 1") || options.contains("--ntasks");
            let other: &[&str] = if asked { &[] } else { &tasks };
            let names = || OWN.iter().chain(other);
            let own = |line: &&str| !names().any(|name| line.starts_with(&format!("{name}=")));
            let mut lines: Vec<String> = text.lines().filter(own).map(str::to_owned).collect();
            // The two streams have no order.
            lines.sort();
            lines
        };
        assert_eq!(lines(&answer.out), lines(&wanted), "{options}");
    }
    // The kept file says the same.
    let status = bench.json(&["status"]);
    let kept = bench
        .job_dir(status["id"].as_str().unwrap())
        .join("job.yaml");
    let again = bench.ask(&["run", kept.to_str().unwrap()]);
    assert!(again.out.contains("SLURM_PROCID=0"), "{again:?}");
}

#[test]
fn build7_a_batch_script_finds_the_variables_that_sbatch_gives() {
    finds_what_sbatch_gives(&Bench::new());
}

#[test]
fn every_job_finds_where_its_user_was() {
    let bench = Bench::new();
    let here = bench.dir.path().to_str().unwrap();
    let answer = bench.ask(&[
        "run",
        "-b",
        "slurm",
        "--workdir",
        "/",
        "--",
        "sh",
        "-c",
        "pwd; echo $SLURM_SUBMIT_DIR",
    ]);
    assert_eq!(answer.out, format!("/\n{here}\n"), "{answer:?}");
}

#[test]
fn a_script_may_wait_until_a_time_or_for_its_user() {
    let bench = Bench::new();
    bench.file(
        "c.sbatch",
        "#!/bin/sh\n#SBATCH --hold --nice=7 --begin=now\necho went\n",
    );
    let job = bench.submit(&["c.sbatch"]);
    within(DEADLINE, "the reason", || {
        bench.ask(&["why", &job]).out.contains("JobHeldUser")
    });
    let shown = bench
        .lab
        .ask(&["scontrol", "show", "job", &bench.number(&job)]);
    assert!(shown.contains("Nice=7"), "{shown}");
    assert_eq!(bench.ask(&["release", &job]).code, 0);
    assert_eq!(bench.ask(&["wait", &job]).code, 0);
    bench.file(
        "later.sbatch",
        "#!/bin/sh\n#SBATCH --begin=now+2hours\ntrue\n",
    );
    let later = bench.submit(&["later.sbatch"]);
    within(DEADLINE, "the reason", || {
        bench.ask(&["why", &later]).out.contains("BeginTime")
    });
    assert_eq!(bench.ask(&["cancel", &later]).code, 0);
    assert_eq!(bench.ask(&["wait", &later]).code, 130);
}

#[test]
fn hints_do_what_was_meant() {
    let bench = Bench::new();
    bench.file("plain.sh", "#!/bin/sh\ntrue\n");
    bench.file(
        "c.sbatch",
        "#!/bin/sh\n#SBATCH hetjob\n#SBATCH --signal=B:USR1@60\ntrue\n",
    );
    let says = |args: &[&str], words: &str| {
        let answer = bench.ask(args);
        assert_eq!(answer.code, 2, "{answer:?}");
        assert!(answer.err.contains(words), "{words}: {answer:?}");
    };
    says(
        &["run", "-b", "slurm", "plain.sh"],
        "`herd run -b slurm -- bash plain.sh`",
    );
    says(
        &["run", "c.sbatch"],
        "c.sbatch:2:9: heterogeneous jobs are not supported",
    );
    says(&["run", "c.sbatch"], "catch SIGTERM");
    says(&["run", "c.sbatch", "a"], "`herd run c.sbatch -- a`");
    says(&["run", "-d", "afterok:3", "--", "true"], "`after: [JOB]`");
    let both = [
        "run",
        "-b",
        "slurm",
        "--nodelist",
        "node1",
        "--exclude",
        "node[1-2]",
        "--",
        "true",
    ];
    says(&both, "`--nodelist` and `--exclude` both name node1");
}

#[test]
fn i13_what_a_batch_script_would_lose_is_refused_by_line_and_nothing_is_sent() {
    let bench = Bench::new();
    bench.file(
        "train.sbatch",
        "#!/bin/bash\n#SBATCH --ntasks=4\n#SBATCH --array=3-0\n#SBATCH --time=soon\nsrun a\n",
    );
    let answer = bench.ask(&["submit", "train.sbatch"]);
    assert_eq!(answer.code, 2);
    for place in [
        "train.sbatch:2:",
        "train.sbatch:3:",
        "train.sbatch:4:",
        "hint:",
    ] {
        assert!(answer.err.contains(place), "{place}: {}", answer.err);
    }
    assert_eq!(bench.ask(&["ls"]).code, 0);
    assert_eq!(bench.json(&["ls"]).as_array().unwrap().len(), 0);
}

/// `sbatch --test-only` on what `render` prints.
fn accepted(bench: &Bench<'_>) {
    bench.file("train.sbatch", SCRIPT);
    bench.file(
        "all.yaml",
        "name: 'a b \"c\" #d'\nnodes: 2\nresources: {cpus: 2, memory: 1GiB, gpus: 1}\nwalltime: 2h\n\
         array: 0-9%3\npriority: 10\nslurm: {qos: normal, extra: [\"--exclude=node3\"]}\nrun: 'true'\n",
    );
    let first = bench.submit(&["--", "sleep", "60"]);
    bench.file(
        "after.yaml",
        &format!("after: [{{job: {first}, when: any}}]\nrun: 'true'\n"),
    );
    for job in ["train.sbatch", "all.yaml", "after.yaml"] {
        let rendered = bench.ask(&["render", "-b", "slurm", job]);
        assert_eq!(rendered.code, 0, "{job}: {}", rendered.err);
        bench.file("rendered", &rendered.out);
        let path = bench.dir.path().join("rendered");
        let mut sbatch = bench.lab.command("sbatch");
        let output = sbatch.arg("--test-only").arg(path).output().unwrap();
        // It answers on standard error.
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{job}: {said}");
        assert!(said.contains("to start at"), "{job}: {said}");
    }
    assert_eq!(bench.ask(&["cancel", &first]).code, 0);
    assert_eq!(bench.ask(&["wait", &first]).code, 130);
}

#[test]
fn build7_sbatch_accepts_what_render_prints() {
    accepted(&Bench::new());
}

#[test]
fn build7_sbatch_of_24_11_accepts_it_too_and_the_cluster_is_in_order() {
    let lab = SlurmLab::up(&["--version", "24.11"]);
    let bench = Bench::on(Some(&lab));
    accepted(&bench);
    finds_what_sbatch_gives(&bench);
    let findings = bench.json(&["doctor", "-b", "slurm"]);
    let of = |check: &str| {
        let all = findings.as_array().unwrap().iter();
        all.filter(|finding| finding["check"] == check)
            .cloned()
            .collect::<Vec<_>>()
    };
    assert!(
        of("slurm")[0]["detail"]
            .as_str()
            .unwrap()
            .starts_with("24.11")
    );
    assert_eq!(of("clock")[0]["verdict"], "ok");
    assert_eq!(
        bench
            .ask(&["run", "-b", "slurm", "-N", "2", "--", "true"])
            .code,
        0
    );
}

#[test]
fn an_array_in_one_allocation_keeps_limit_code_and_log_of_its_tasks() {
    let bench = Bench::new();
    // Each task counts how many run with it.
    bench.file(
        "array.yaml",
        "name: many\narray: 0-7%2\nslurm: {allocation: job}\nnodes: 2\nworkdir: .\nrun: |\n  mkdir -p now; touch now/$HERD_ARRAY_INDEX\n  \
         ls now | wc -l; sleep 0.3; rm now/$HERD_ARRAY_INDEX\n  test $HERD_ARRAY_INDEX != 5 || exit 7\n",
    );
    let job = bench.submit(&["array.yaml"]);
    assert_eq!(bench.ask(&["wait", &job]).code, 7);
    let status = bench.json(&["status", &job]);
    assert_eq!(status["tasks"]["succeeded"], 7, "{status}");
    assert_eq!(status["tasks"]["failed"], 1);
    for task in 0..8 {
        let log = bench.ask(&["logs", &job, "--task", &task.to_string()]);
        let at_once: u32 = log.out.trim().parse().unwrap_or_else(|_| panic!("{log:?}"));
        assert!((1..=2).contains(&at_once), "task {task}: {at_once}");
    }
    let note = bench.ask(&["render", "-b", "slurm", "array.yaml"]).err;
    assert!(
        note.contains("one job of Slurm: 2 of them at once"),
        "{note}"
    );
}

#[test]
fn after_is_a_dependency_of_slurm() {
    let bench = Bench::new();
    let bad = bench.submit(&["--", "sh", "-c", "sleep 2; exit 3"]);
    bench.file(
        "any.yaml",
        &format!("after: [{{job: {bad}, when: any}}]\nrun: [\"true\"]\n"),
    );
    bench.file("ok.yaml", &format!("after: [{bad}]\nrun: [\"true\"]\n"));
    let any = bench.submit(&["any.yaml"]);
    let ok = bench.submit(&["ok.yaml"]);
    assert_eq!(bench.ask(&["wait", &any]).code, 0);
    // Slurm ends what can never start.
    assert_eq!(bench.ask(&["wait", &ok]).code, 130);
    assert_eq!(bench.state(&ok), "CANCELLED");
    // Now that it has ended, the answer is known at once.
    let late = bench.ask(&["submit", "-b", "slurm", "ok.yaml"]);
    assert_eq!(late.code, 2);
    assert!(late.err.contains("has ended with code 3"), "{}", late.err);
}

#[test]
fn i12_secrets_lie_in_the_job_directory_alone_and_not_longer_than_the_job() {
    let bench = Bench::new();
    let mut submit = bench.herd();
    submit.env("TOKEN", "hunter2-on-slurm").args([
        "submit",
        "-b",
        "slurm",
        "--secret",
        "TOKEN",
        "--",
        "sh",
        "-c",
        "echo ${#TOKEN}; sleep 60",
    ]);
    let output = submit.output().unwrap();
    let job = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    within(DEADLINE, "the job runs", || {
        bench.ask(&["logs", &job]).out.contains("16")
    });
    let dir = bench.job_dir(&job);
    let mode = std::fs::metadata(dir.join("secrets.json"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let number = bench.number(&job);
    let of_slurm = bench.lab.ask(&["scontrol", "show", "job", &number])
        + &bench
            .lab
            .ask(&["scontrol", "write", "batch_script", &number, "-"])
        + &bench.lab.ask(&["sacct", "-P", "-o", "ALL", "-j", &number]);
    assert!(!of_slurm.contains("hunter2"), "{of_slurm}");
    assert_eq!(bench.ask(&["cancel", &job]).code, 0);
    assert_eq!(bench.ask(&["wait", &job]).code, 130);
    assert!(!dir.join("secrets.json").exists());
}
