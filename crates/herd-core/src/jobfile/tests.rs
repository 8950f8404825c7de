//! Tables of job files and what is said about them.

use super::*;
use crate::spec::{
    AfterWhen, Command, DatasetMode, JobType, Launcher, RetryOn, SecretSource, SetupOn,
};
use crate::state::FailureKind;
use crate::units::{Bytes, Span};

const FULL: &str = r#"
name: digits
type: pytorch
nodes: 2
procs_per_node: 4
launcher: herd
resources: {cpus: 8, memory: 32GiB, gpus: 4, gpu_type: h800}
walltime: 2h
image: registry/name:tag
workdir: .
env: {LR: "0.1", N: 8, ON: true, VERSION: 1.10, OCT: 007}
env_from: [VIRTUAL_ENV, PATH]
secrets: {HF_TOKEN: {env: HF_TOKEN}, KEY: {file: ./key}}
setup: {run: "pip install -r requirements.txt", on: first}
run: python train.py --data $DATA
datasets: [{name: sci/uniprot, mode: required, mount: /data, min_cached: 80%}]
checkpoint: {protocol: torch-rank, dir: /ckpt, signal: usr1, grace: 180s, interval: 30m, expected_size: 40GiB}
retry: {max: 3, on: [node-lost, "exit:75"], backoff: 30s}
after: [first, {job: second, when: any}]
org: protein-lab
project: folding
priority: 50
backend: auto
slurm: {partition: gpu, qos: normal, account: lab, extra: ["--constraint=ib"]}
kueue: {namespace: team-a, queue: main, priority_class: high}
"#;

fn read(text: &str) -> JobSpec {
    parse(text.as_bytes(), "job.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &[u8]) -> Diagnostics {
    parse(text, "job.yaml").expect_err(&String::from_utf8_lossy(&text[..text.len().min(200)]))
}

#[test]
fn reads_every_key() {
    let spec = read(FULL);
    assert_eq!(spec.name.as_deref(), Some("digits"));
    assert_eq!(
        (spec.job_type, spec.nodes, spec.launcher),
        (JobType::Pytorch, 2, Launcher::Herd)
    );
    assert_eq!(spec.procs_per_node, ProcsPerNode::Count(4));
    assert_eq!(spec.resources.memory, Some(Bytes(32 << 30)));
    assert_eq!(spec.walltime, Some(Span::from_secs(7200)));
    let env: Vec<_> = spec.env.values().map(String::as_str).collect();
    assert_eq!(env, ["0.1", "8", "007", "true", "1.10"]);
    assert_eq!(spec.secrets["KEY"], SecretSource::File("./key".into()));
    assert_eq!(
        spec.setup.as_ref().and_then(|setup| setup.on),
        Some(SetupOn::First)
    );
    assert_eq!(spec.datasets[0].mode, DatasetMode::Required);
    assert_eq!(spec.datasets[0].min_cached, Some(80));
    let checkpoint = spec.checkpoint.unwrap();
    assert_eq!(checkpoint.signal.as_deref(), Some("SIGUSR1"));
    assert_eq!(checkpoint.grace, Some(Span::from_secs(180)));
    let on = spec.retry.unwrap().on;
    assert_eq!(
        on,
        [RetryOn::Reason(FailureKind::NodeLost), RetryOn::Exit(75)]
    );
    assert_eq!(
        (spec.after[0].when, spec.after[1].when),
        (AfterWhen::Ok, AfterWhen::Any)
    );
    assert_eq!(spec.slurm.unwrap().extra, ["--constraint=ib"]);
    assert_eq!(spec.kueue.unwrap().priority_class.as_deref(), Some("high"));
}

#[test]
fn reads_json_and_short_forms() {
    let spec = read(r#"{"run": ["echo", 1, true], "setup": "make", "array": "0-3%2"}"#);
    assert_eq!(
        spec.run,
        Some(Command::Argv(vec![
            "echo".into(),
            "1".into(),
            "true".into()
        ]))
    );
    assert_eq!(spec.array.unwrap().limit, Some(2));
    assert_eq!(read("run: a\narray: [3, 1]").array.unwrap().indices, [1, 3]);
    assert_eq!(read("run: a\nsetup: [make, all]").setup.unwrap().on, None);
    assert_eq!(read("setup: make").run, None);
    assert_eq!(
        read("run: |\n  a\n  b\n").run,
        Some(Command::Shell("a\nb\n".into()))
    );
}

#[test]
fn shows_line_mark_and_hint() {
    let shown = refused(b"run: a\nresources:\n  gpuz: 4\n").to_string();
    assert_eq!(
        shown,
        "job.yaml:3:3: resources.gpuz: unknown key of a job file\n  |\n3 |   gpuz: 4\n  |   ^^^^\n\
         hint: did you mean `gpus`?"
    );
}

#[test]
fn says_every_fault_at_once_in_the_order_of_the_file() {
    let text = b"nmae: x\nnodes: 0\nresources: {gpus: many, memory: 5X}\n\
        datasets: [{name: a, mode: maybe}]\nwalltime: 90\nrun: []\n";
    let diagnostics = refused(text);
    let paths: Vec<_> = diagnostics
        .iter()
        .map(|fault| fault.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "nmae",
            "nodes",
            "resources.gpus",
            "resources.memory",
            "datasets[0].mode",
            "walltime",
            "run"
        ]
    );
    let walltime = diagnostics
        .iter()
        .find(|fault| fault.path == "walltime")
        .unwrap();
    assert_eq!(
        walltime.refusal.message,
        "`90` needs a unit: `90s`, `90m` or `90h`"
    );
}

/// Text, key, part of the message; each has exactly this one fault.
const REFUSED: &[(&str, &str, &str)] = &[
    ("", "", "the file is empty"),
    ("just text", "", "expected a mapping, found text"),
    ("- run: a", "", "expected a mapping, found a list"),
    ("name: x", "run", "nothing to run"),
    (
        "run: a\nnodes: 0",
        "nodes",
        "between 1 and 100000, found `0`",
    ),
    ("run: a\nnodes: -1", "nodes", "found `-1`"),
    ("run: a\nnodes: 1.5", "nodes", "found `1.5`"),
    (
        "run: a\nnodes: 99999999999999999999",
        "nodes",
        "between 1 and 100000",
    ),
    ("run: a\nnodes: [1]", "nodes", "found a list"),
    ("run: a\nnodes:", "nodes", "found nothing"),
    (
        "run: a\ntype: mpi\nprocs_per_node: 5000",
        "procs_per_node",
        "between 1 and 4096",
    ),
    (
        "run: a\ntype: mpi\nprocs_per_node: gpus",
        "procs_per_node",
        "a number or `gpu`",
    ),
    (
        "run: a\nprocs_per_node: 2",
        "procs_per_node",
        "needs `type: pytorch`",
    ),
    ("run: a\ntype: pytorhc", "type", "found `pytorhc`"),
    (
        "run: a\nlauncher: user",
        "launcher",
        "needs `type: pytorch`",
    ),
    (
        "run: a\ntype: mpi\narray: 0-3",
        "array",
        "needs `type: command`",
    ),
    ("run: a\narray: 9-1", "array", "ends before it starts"),
    ("run: a\narray: 0-9999999", "array", "more than 1000000"),
    ("run: a\narray: []", "array", "names no task"),
    ("setup: a\narray: 0-1", "array", "no command for its tasks"),
    ("run: a\nname: a/b", "name", "must not contain `/`"),
    ("run: a\nname: ..", "name", "must not be `..`"),
    ("run: a\nname: \"a\\nb\"", "name", "control characters"),
    ("run: a\nname: null", "name", "found nothing"),
    ("run: a\nwalltime: 0s", "walltime", "longer than nothing"),
    ("run: a\nwalltime: -1h", "walltime", "is negative"),
    ("run: a\npriority: 101", "priority", "between 0 and 100"),
    (
        "run: a\nenv: {1A: x}",
        "env.1A",
        "is not the name of a variable",
    ),
    (
        "run: a\nenv: {HERD_X: x}",
        "env.HERD_X",
        "set by herd itself",
    ),
    ("run: a\nenv: {A: null}", "env.A", "has no value"),
    ("run: a\nenv: {A: [1]}", "env.A", "found a list"),
    ("run: a\nenv: {A: \"\\0\"}", "env.A", "NUL"),
    ("run: a\nenv: [A]", "env", "found a list"),
    (
        "run: a\nenv: {A: 1}\nsecrets: {A: {env: A}}",
        "secrets.A",
        "is set in `env` too",
    ),
    (
        "run: a\nsecrets: {A: {env: A, file: b}}",
        "secrets.A",
        "two sources",
    ),
    ("run: a\nsecrets: {A: {}}", "secrets.A", "names its source"),
    ("run: \"\"", "run", "has no command"),
    ("run: [\"\"]", "run", "has no command"),
    ("run: [a, null]", "run[1]", "found nothing"),
    ("run: {a: b}", "run", "expected a command"),
    ("run: a\nsetup: {on: each}", "setup", "`run` is missing"),
    (
        "run: a\nsetup: {run: b, on: all}",
        "setup.on",
        "one of first, each",
    ),
    (
        "run: a\nretry: {max: 1001}",
        "retry.max",
        "between 0 and 1000",
    ),
    (
        "run: a\nretry: {max: 1, on: [node-lots]}",
        "retry.on[0]",
        "not a reason",
    ),
    (
        "run: a\nretry: {max: 1, on: ['exit:0']}",
        "retry.on[0]",
        "exit:1",
    ),
    (
        "run: a\nretry: {on: [node-lost]}",
        "retry",
        "`max` is missing",
    ),
    (
        "run: a\ncheckpoint: {protocol: t, signal: SIGKILL}",
        "checkpoint.signal",
        "SIGKILL",
    ),
    (
        "run: a\nafter: [{when: ok}]",
        "after[0]",
        "`job` is missing",
    ),
    ("run: a\nafter: x", "after", "expected a list"),
    (
        "run: a\nslurm: {extra: [--uid=0]}",
        "slurm.extra[0]",
        "not allowed",
    ),
    (
        "run: a\nslurm: {extra: [--gres=gpu:1]}",
        "slurm.extra[0]",
        "not allowed",
    ),
    ("run: a\nimage: a b", "image", "is not an image"),
    ("run: a\nworkdir: ~/x", "workdir", "not expanded"),
    (
        "run: a\nresources: {memory: 10}",
        "resources.memory",
        "needs a unit",
    ),
    (
        "run: a\nresources: {memory: 0M}",
        "resources.memory",
        "less than 16MiB",
    ),
    (
        "run: a\nresources: {cpus: 0}",
        "resources.cpus",
        "between 1",
    ),
    (
        "run: a\ndatasets: [{name: d, min_cached: 101%}]",
        "datasets[0].min_cached",
        "101%",
    ),
    (
        "run: a\ndatasets: [{name: d, mount: x}]",
        "datasets[0].mount",
        "absolute",
    ),
    ("run: a\nrun: b", "", "stands here twice"),
];

#[test]
fn refuses_each_wrong_value_with_its_key_and_reason() {
    let name_of_300 = format!("run: a\nname: {}", "x".repeat(300));
    let long_name = [(name_of_300.as_str(), "name", "has 300 characters")];
    for (text, path, part) in REFUSED.iter().chain(&long_name) {
        let diagnostics = refused(text.as_bytes());
        assert!(
            diagnostics
                .iter()
                .any(|f| f.path == *path && f.refusal.message.contains(part)),
            "{text}\n--\n{diagnostics}"
        );
        assert_eq!(diagnostics.count(), 1, "{text}\n--\n{diagnostics}");
    }
}

#[test]
fn refuses_bytes_that_are_no_document() {
    for (bytes, part) in [
        (&b"run: \xff\xfe"[..], "not UTF-8"),
        (&vec![b'#'; 10 << 20][..], "more than 1 MiB"),
        (b"run: a\n\tname: b\n", "tab"),
        (b"run: a\n---\nrun: b\n", "second document"),
        (b"run: 'a", "not valid YAML"),
    ] {
        let shown = refused(bytes).to_string();
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn i12_a_secret_written_out_is_not_repeated() {
    for text in [
        "run: a\nsecrets:\n  T: hunter2\n",
        "run: a\nsecrets: {T: hunter2}\nnodez: 1",
        "run: a\nsecrets: hunter2",
        "run: a\nsecrets: [hunter2]",
        "run: a\nsecrets: {T: {env: 'hunter2=='}}",
        "run: a\nsecrets: {T: {value: hunter2}}",
        "run: a\nsecrets:\n  T: |\n    hunter2\n",
    ] {
        let shown = refused(text.as_bytes()).to_string();
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn a_value_in_place_of_a_section_is_told_what_the_section_looks_like() {
    for (text, hint) in [
        ("run: a\nretry: 3\n", "hint: write `retry: {max: …}`"),
        (
            "run: a\nresources: 4\n",
            "hint: write `resources: {cpus: …}`",
        ),
        ("echo hi\n", "hint: write `run: COMMAND`"),
        ("comand: echo hi\n", "hint: did you mean `run`?"),
    ] {
        let error = refused(text.as_bytes()).to_string();
        assert!(error.contains(hint), "{error}");
        assert!(!error.contains("nothing to run"), "{error}");
    }
}

#[test]
fn a_faulty_key_does_not_blame_another() {
    // The unreadable type decides whether the launcher is right.
    assert_eq!(refused(b"run: a\ntype: torch\nlauncher: user\n").count(), 1);
    assert_eq!(refused(b"setup: {on: each}\n").count(), 1);
    assert_eq!(refused(b"run: []\narray: 0-3\n").count(), 1);
    assert_eq!(refused(b"runs: a\n").count(), 1);
    assert_eq!(refused(b"nodez: 1\n").count(), 2);
}

#[test]
fn keys_of_other_tools_are_answered_with_what_says_them_here() {
    for (text, path, hint) in [
        (
            "type: mpi\nnum_nodes: 2\nrun: a",
            "num_nodes",
            "did you mean `nodes`?",
        ),
        ("retries: 2\nrun: a", "retries", "write `retry: {max: 3}`"),
        ("timeout: 1h\nrun: a", "timeout", "did you mean `walltime`?"),
        ("cpus: 2\nrun: a", "cpus", "`resources.cpus`"),
        ("gpus: 2\nrun: a", "gpus", "`resources.gpus`"),
        ("memory: 2G\nrun: a", "memory", "`resources.memory`"),
        ("mem: 2G\nrun: a", "mem", "`resources: {memory: 32GiB}`"),
        ("partition: p\nrun: a", "partition", "`slurm.partition`"),
        (
            "resources: {mem: 2G}\nrun: a",
            "resources.mem",
            "did you mean `memory`?",
        ),
        (
            "nodes: 1\nresources: {accelerators: 'H100:8'}\nrun: a",
            "resources.accelerators",
            "write `gpus: 4`",
        ),
        (
            "resources: {nodes: 2}\nrun: a",
            "resources.nodes",
            "at the top of the file",
        ),
        ("command: a", "command", "did you mean `run`?"),
        ("cmd: a", "cmd", "did you mean `run`?"),
        (
            "depends-on: [a]\nrun: a",
            "depends-on",
            "did you mean `after`?",
        ),
        ("container_image: a\nrun: a", "container_image", "`image`"),
        (
            "after: [{name: a, job: b}]\nrun: a",
            "after[0].name",
            "did you mean `job`?",
        ),
        (
            "retry: {max: 1, attempts: 3}\nrun: a",
            "retry.attempts",
            "did you mean `max`?",
        ),
    ] {
        let error = parse(text.as_bytes(), "job.yaml").expect_err(text);
        let faults: Vec<_> = error.iter().collect();
        assert_eq!(faults.len(), 1, "{error}");
        assert_eq!(
            (faults[0].path.as_str(), faults[0].refusal.message.as_str()),
            (path, "unknown key of a job file")
        );
        assert!(
            faults[0]
                .refusal
                .hint
                .as_ref()
                .is_some_and(|said| said.contains(hint)),
            "{error}"
        );
    }
}
