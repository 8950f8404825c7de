//! Jobs that are wrong: refused before anything starts, exit 2, every fault listed, no panic.

use herd_testing::Answer;

use crate::fixture::Bench;

fn refused(bench: &Bench, args: &[&str]) -> Answer {
    let answer = bench.ask(args);
    assert_eq!(answer.code, 2, "{args:?}: {}", answer.err);
    assert!(
        answer.err.starts_with("error: nothing was started"),
        "{}",
        answer.err
    );
    assert!(!answer.err.contains("panicked"), "{}", answer.err);
    assert!(answer.out.is_empty(), "{}", answer.out);
    answer
}

#[test]
fn every_fault_of_file_and_flags_is_listed() {
    let bench = Bench::new();
    bench.file("job.yaml", b"ndoes: 2\nprocs_per_node: -4\nrun: 'true'\n");
    let args = [
        "run",
        "job.yaml",
        "--mem",
        "3XB",
        "--secret",
        "ABSENT_TOKEN",
        "-t",
        "0s",
    ];
    let answer = refused(&bench, &args);
    for part in [
        "5 faults",
        "ndoes",
        "procs_per_node",
        "--mem",
        "ABSENT_TOKEN",
        "--time",
        "nodes",
    ] {
        assert!(answer.err.contains(part), "{part}: {}", answer.err);
    }
    assert!(!bench.dir.path().join("home/jobs").exists());
}

/// What the text alone tells, what the files around it tell and what the backend refuses: one report.
#[test]
fn i13_faults_of_text_files_and_backend_come_in_one_round_each_in_its_place() {
    let bench = Bench::new();
    bench.file(
        "job.yaml",
        b"nmae: x\nworkdir: missing\nimage: a/b:c\nwalltime: soon\nretry: {max: 1, on: [driver-lost]}\n\
          resources: {gpus: 1000}\nafter: [nobody]\nsecrets: {T: {file: nowhere}}\nrun: a\n",
    );
    let answer = refused(
        &bench,
        &[
            "run",
            "job.yaml",
            "-b",
            "local",
            "--cpus",
            "100000",
            "--env-file",
            "absent.env",
        ],
    );
    for part in [
        "10 faults",
        "job.yaml:1:1: nmae: unknown key",
        "job.yaml:2:10: workdir: cannot use",
        "job.yaml:3:8: image: local runs no containers",
        "job.yaml:4:11: walltime: ",
        "job.yaml:5:21: retry.on: local has nobody",
        "job.yaml:6:19: resources.gpus: asks for 1000",
        "job.yaml:7:9: after[0]: no job is called",
        "job.yaml:8:14: secrets.T: cannot open",
        "--cpus `100000`: asks for 100000",
        "--env-file absent.env: cannot open",
    ] {
        assert!(answer.err.contains(part), "{part}: {}", answer.err);
    }
    // In the order of the file, and nothing was written down.
    let places: Vec<_> = answer
        .err
        .lines()
        .filter_map(|line| {
            line.strip_prefix("job.yaml:")?
                .split(':')
                .next()?
                .parse()
                .ok()
        })
        .collect::<Vec<u32>>();
    assert!(places.is_sorted() && places.len() == 8, "{}", answer.err);
    assert!(!bench.dir.path().join("home/jobs").exists());
}

#[test]
fn what_hangs_on_a_broken_value_is_not_held_against_the_job() {
    let bench = Bench::new();
    for (content, flags, faults) in [
        // Many nodes would ask for too much, but how many was never said.
        ("nodes: many\nresources: {gpus: 1000}\nrun: a\n", &[][..], 1),
        ("nodes: 5000\nrun: a\n", &["--nodes", "x"], 1),
        (
            "nodes: many\nresources: {gpus: 1000}\nrun: a\n",
            &["-N", "1"],
            2,
        ),
        ("typo: [\nimage: x\n", &["--mem", "3XB"], 2),
        ("rnu: a\n", &[], 1),
        ("typ: pytorch\nprocs_per_node: 2\nrun: a\n", &[], 1),
        ("backend: a/b\nimage: x\nrun: a\n", &[], 2),
        (
            "num_nodes: x\nresources: {accelerators: 'X:1000'}\nrun: a\n",
            &[],
            1,
        ),
    ] {
        bench.file("job.yaml", content.as_bytes());
        // Where `sbatch` is, `auto` is no backend for jobs that ask for GPUs.
        let args = [&["run", "-b", "local", "job.yaml"], flags].concat();
        let answer = refused(&bench, &args);
        let number = format!("started: {faults} fault");
        assert!(answer.err.contains(&number), "{content}: {}", answer.err);
    }
}

/// Keys agree or not once the flags are over them.
#[test]
fn flags_can_make_the_keys_of_a_file_agree() {
    let bench = Bench::new();
    bench.file("job.yaml", b"procs_per_node: 2\nrun: a\n");
    let answer = refused(&bench, &["render", "job.yaml"]);
    let place = "job.yaml:1:17: procs_per_node: needs `type: pytorch` or `type: mpi`";
    assert!(answer.err.contains(place), "{}", answer.err);
    let answer = bench.ask(&["render", "job.yaml", "--type", "pytorch"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    bench.file("job.yaml", b"nodes: 1\n");
    let answer = refused(&bench, &["render", "job.yaml"]);
    let place = "job.yaml:1:1: run: the job has nothing to run";
    assert!(answer.err.contains(place), "{}", answer.err);
}

#[test]
fn files_that_are_no_job_files() {
    let bench = Bench::new();
    let name = format!("name: {}\nrun: 'true'\n", "x".repeat(300));
    let large = vec![b'#'; 10 << 20];
    let bomb = b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n\
                 c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n";
    let cases: &[(&str, &[u8])] = &[
        ("empty", b""),
        ("not-utf8", &[0xff, 0xfe, 0x00]),
        ("large", &large),
        ("bomb", bomb),
        ("twice", b"run: a\nrun: b\n"),
        ("tabs", b"resources:\n\tcpus: 1\nrun: a\n"),
        ("types", b"nodes: [1]\nrun: {a: b}\n"),
        ("zero", b"nodes: 0\nrun: a\n"),
        ("absurd", b"nodes: 99999999999999999999\nrun: a\n"),
        ("slash", b"name: a/b\nrun: a\n"),
        ("dots", b"name: ..\nrun: a\n"),
        ("newline", b"name: \"a\\nb\"\nrun: a\n"),
        ("long", name.as_bytes()),
        ("workdir", b"workdir: /nonexistent/place\nrun: a\n"),
        (
            "secret",
            b"secrets: {T: {file: /nonexistent/token}}\nrun: a\n",
        ),
        ("image", b"image: a/b:c\nrun: a\n"),
        ("cpus", b"resources: {cpus: 100000}\nrun: a\n"),
        ("nothing", b"nodes: 1\n"),
    ];
    for (name, content) in cases {
        bench.file(name, content);
        for command in ["run", "submit", "render"] {
            refused(&bench, &[command, name]);
        }
    }
}

#[test]
fn a_file_that_is_a_program_is_explained() {
    let bench = Bench::new();
    let answer = refused(&bench, &["run", "missing.yaml"]);
    assert!(
        answer.err.contains("hint:") && answer.err.contains("herd run --"),
        "{}",
        answer.err
    );
    assert!(
        refused(&bench, &["run", "."])
            .err
            .contains("is a directory")
    );
    assert!(refused(&bench, &["run"]).err.contains("no job"));
}

#[test]
fn i13_backends_that_do_not_exist_yet_are_refused() {
    let bench = Bench::new();
    for backend in ["kueue", "ray"] {
        let answer = refused(&bench, &["run", "-b", backend, "--", "true"]);
        assert!(
            answer.err.contains("not available in this release"),
            "{}",
            answer.err
        );
    }
    refused(&bench, &["run", "-b", "nonsense", "--", "true"]);
    refused(&bench, &["run", "-p", "gpu", "--", "true"]);
}

/// A cluster that cannot be asked is a fault like any other: nothing is sent, and it says what to try.
#[test]
fn i13_a_cluster_that_does_not_answer_is_refused() {
    let bench = Bench::new();
    let bin = bench.dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    bench.file("bin/scontrol", b"#!/bin/sh\necho down >&2; exit 1\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("scontrol"), mode).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let args = ["run", "-b", "slurm", "--", "true"];
    let output = bench.herd().env("PATH", path).args(args).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    for part in ["backend slurm: ", "scontrol", "down", "hint: "] {
        assert!(err.contains(part), "{part}: {err}");
    }
    assert!(!bench.dir.path().join("home/jobs").exists());
}

/// Design §7: faults of file and flags are 2, and what a backend cannot honour is mended there too.
#[test]
fn i13_a_refusal_and_a_fault_are_one_report_with_one_code() {
    let bench = Bench::new();
    for (name, content, part) in [
        (
            "backend",
            "backend: kueue\nrun: a\n",
            "not available in this release",
        ),
        ("image", "image: a/b:c\nrun: a\n", "containers"),
        ("org", "org: lab\nrun: a\n", "tenants"),
    ] {
        bench.file(name, content.as_bytes());
        for command in ["run", "submit", "render"] {
            let answer = refused(&bench, &[command, name, "--mem", "3XB"]);
            for part in [part, "--mem", "2 faults", "hint:"] {
                assert!(answer.err.contains(part), "{name}: {part}: {}", answer.err);
            }
        }
    }
    assert!(!bench.dir.path().join("home/jobs").exists());
}

#[test]
fn gpus_beside_sbatch_are_refused_with_a_hint() {
    let bench = Bench::new();
    std::fs::create_dir(bench.dir.path().join("bin")).unwrap();
    bench.file("bin/sbatch", b"#!/bin/sh\n");
    let path = bench.dir.path().join("bin");
    let args = ["render", "--gpus", "1", "--", "true"];
    let output = bench.herd().env("PATH", path).args(args).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err.contains("hands jobs to Slurm") && err.contains("-b local"),
        "{err}"
    );
}

#[test]
fn i12_secrets_are_rendered_as_names_only() {
    let bench = Bench::new();
    bench.file("token", b"hunter2\n");
    let args = [
        "render",
        "--secret",
        "A=file:token",
        "--secret",
        "B",
        "--env",
        "X=\"q\"\n$y\\z",
        "--",
        "echo",
        "a b",
    ];
    for format in ["table", "json", "yaml"] {
        let mut command = bench.herd();
        command
            .env("B", "hunter3")
            .args(&args[..1])
            .args(["-o", format])
            .args(&args[1..]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let shown = format!("{output:?}");
        assert!(!shown.contains("hunter"), "{shown}");
    }
}

#[test]
fn render_shows_resolved_values() {
    let bench = Bench::new();
    bench.file(
        "job.yaml",
        b"name: digits\ntype: pytorch\nnodes: 2\nprocs_per_node: 2\n\
                             walltime: 90m\nrun: |\n  echo a\n  echo b\n",
    );
    let answer = bench.ask(&["render", "job.yaml", "--env", "LR=0.1"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let workdir = bench.dir.path().canonicalize().unwrap();
    let shown = answer.out.replace(workdir.to_str().unwrap(), "WORKDIR");
    insta::assert_snapshot!("render", shown);
    let json = bench.ask(&["render", "job.yaml", "-o", "json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["ranks_per_node"], 2);
}

#[test]
fn a_skypilot_task_is_recognised_and_what_is_ignored_is_named() {
    let bench = Bench::new();
    bench.file(
        "task.yaml",
        b"name: train\nnum_nodes: 2\nresources:\n  cloud: aws\nenvs:\n  \
                              LR: 0.1\nrun: |\n  echo $SKYPILOT_NODE_RANK\n",
    );
    let answer = bench.ask(&["render", "task.yaml", "-o", "json"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let plan: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(
        (&plan["nodes"], &plan["env"]["LR"]),
        (&2.into(), &"0.1".into())
    );
    assert!(
        answer.err.starts_with("warning: task.yaml:"),
        "{}",
        answer.err
    );
    assert!(answer.err.contains("cloud"), "{}", answer.err);
}

#[test]
fn a_program_is_not_read_as_a_job_file() {
    let bench = Bench::new();
    bench.file("train.py", b"import os\nprint(os.environ['HERD_RANK'])\n");
    let answer = refused(&bench, &["run", "-N", "2", "train.py"]);
    assert_eq!(
        answer.err,
        "error: nothing was started: 1 fault\n  train.py: is a program, not a job file\n\
         hint: `herd run -N 2 -- python3 train.py` runs it\n"
    );
}

#[test]
fn i13_a_refusal_names_the_flag_or_the_line_and_what_to_do() {
    let bench = Bench::new();
    let flag = refused(
        &bench,
        &["run", "-b", "local", "--gpus", "1000", "--", "true"],
    );
    for part in [
        "  --gpus `1000`: asks for 1000 GPUs, and local has ",
        "hint: ",
    ] {
        assert!(flag.err.contains(part), "{part}: {}", flag.err);
    }
    bench.file(
        "job.yaml",
        b"backend: local\nresources:\n  gpus: 1000\nrun: 'true'\n",
    );
    let file = refused(&bench, &["run", "job.yaml"]);
    let place = "\njob.yaml:3:9: resources.gpus: asks for 1000 GPUs";
    assert!(file.err.contains(place), "{}", file.err);
    assert!(file.err.contains("3 |   gpus: 1000\n"), "{}", file.err);
    let over = refused(&bench, &["run", "job.yaml", "--gpus", "2000"]);
    assert!(
        over.err.contains("--gpus `2000`: asks for 2000"),
        "{}",
        over.err
    );
    bench.file(
        "sky.yaml",
        b"num_nodes: 1\nresources: {accelerators: 'X:1000', cloud: aws}\nsecrets: {NO_SUCH: null}\nrun: a\n",
    );
    let task = refused(&bench, &["run", "-b", "local", "sky.yaml"]);
    for place in [
        "sky.yaml:2:27: resources.accelerators: asks",
        "sky.yaml:3:20: secrets.NO_SUCH: the variable",
    ] {
        assert!(task.err.contains(place), "{place}: {}", task.err);
    }
}

#[test]
fn a_directory_that_no_shell_expanded_is_explained() {
    let bench = Bench::new();
    for (dir, hint) in [
        ("~/proj", "no `~`"),
        ("$HOME/proj", "variables are not expanded"),
    ] {
        let answer = refused(&bench, &["run", "--workdir", dir, "--", "true"]);
        assert!(answer.err.contains(hint), "{}", answer.err);
        bench.file("job.yaml", format!("workdir: {dir}x\nrun: a\n").as_bytes());
        let answer = refused(&bench, &["run", "job.yaml"]);
        assert!(
            answer.err.contains("job.yaml:1:10: workdir: "),
            "{}",
            answer.err
        );
        assert!(answer.err.contains("hint: "), "{}", answer.err);
    }
}

#[test]
fn a_variable_of_env_from_that_is_not_set_is_said_by_run() {
    let bench = Bench::new();
    bench.file("job.yaml", b"env_from: [NO_SUCH]\nrun: 'true'\n");
    let answer = bench.ask(&["run", "job.yaml"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(
        answer.err.contains("env_from: NO_SUCH is not set"),
        "{}",
        answer.err
    );
}

#[test]
fn what_render_prints_is_not_taken_for_a_job_file() {
    let bench = Bench::new();
    let shown = bench.ask(&["render", "-N", "2", "--", "true"]).out;
    bench.file("r.yaml", shown.as_bytes());
    let answer = refused(&bench, &["run", "r.yaml"]);
    let said =
        "1 fault\n  r.yaml: is what `herd render` printed, not a job file\nhint: run the file";
    assert!(answer.err.contains(said), "{}", answer.err);
}
