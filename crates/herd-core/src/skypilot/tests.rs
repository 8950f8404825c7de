//! Task files and what becomes of them.

use super::*;
use crate::spec::{Command, SecretSource, SetupOn};
use crate::units::Bytes;

fn converted(text: &str) -> Task {
    let nothing = BTreeSet::new();
    convert(text.as_bytes(), "task.yaml", &nothing).unwrap_or_else(|error| panic!("{error}"))
}

fn recognised(text: &str) -> bool {
    looks_like_skypilot(&yaml::parse(text.as_bytes()).unwrap().root)
}

#[test]
fn carries_over_what_says_the_same() {
    let Task {
        spec,
        notes,
        mounts,
    } = converted(
        "name: train\nworkdir: .\nnum_nodes: 2\n\
         resources:\n  cloud: aws\n  accelerators: H100:8\n  cpus: 4+\n  memory: 16+\n  use_spot: true\n\
         envs:\n  LR: 0.10\nsecrets:\n  HF_TOKEN: null\n\
         file_mounts:\n  ~/data: ./data/\n\
         setup: |\n  pip install x\nrun: |\n  false\n  python train.py\n",
    );
    assert_eq!((spec.name.as_deref(), spec.nodes), (Some("train"), 2));
    assert_eq!(
        (spec.resources.gpus, spec.resources.gpu_type.as_deref()),
        (Some(8), Some("H100"))
    );
    assert_eq!(spec.resources.cpus, Some(4));
    assert_eq!(spec.resources.memory, Some(Bytes(16 << 30)));
    assert_eq!(spec.env["LR"], "0.10");
    assert_eq!(
        spec.secrets["HF_TOKEN"],
        SecretSource::Env("HF_TOKEN".into())
    );
    let mount = &mounts[0];
    assert_eq!(
        (mount.target.as_str(), mount.source.as_str()),
        ("~/data", "./data/")
    );
    assert_eq!((mounts.len(), mount.position.line), (1, 15));
    assert_eq!(spec.setup.unwrap().on, Some(SetupOn::Each));
    // Without -e, as SkyPilot runs it: the failing first line must not end the script.
    let Some(Command::Argv(argv)) = spec.run else {
        panic!("not an argument vector")
    };
    assert_eq!(argv, ["bash", "-c", "false\npython train.py\n"]);
    let paths: Vec<_> = notes.iter().map(|note| note.path.as_str()).collect();
    assert_eq!(paths, ["resources.cloud", "resources.use_spot"]);
    let shown = notes[0].to_string();
    assert_eq!(
        shown,
        "5:3: resources.cloud is ignored: herd provisions no machines"
    );
}

#[test]
fn reads_each_form_of_an_amount() {
    let resources = |text: &str| {
        converted(&format!("run: a\nresources: {text}"))
            .spec
            .resources
    };
    assert_eq!(resources("{accelerators: {A100: 4}}").gpus, Some(4));
    assert_eq!(resources("{accelerators: A100}").gpus, Some(1));
    assert_eq!(resources("{accelerators: null}").gpus, None);
    assert_eq!(resources("{memory: 32GB}").memory, Some(Bytes(32 << 30)));
    assert_eq!(resources("{memory: 1.5}").memory, Some(Bytes(3 << 29)));
}

#[test]
fn refuses_what_would_change_the_result() {
    for (text, path) in [
        ("run: a\nenvs: {A: null}", "envs.A"),
        (
            "run: a\nenvs: {SKYPILOT_NODE_RANK: 1}",
            "envs.SKYPILOT_NODE_RANK",
        ),
        ("run: a\nsecrets: {A: hunter2}", "secrets.A"),
        ("run: a\nfile_mounts: {/a: \"b\\nc\"}", "file_mounts./a"),
        ("run: a\nfile_mounts: {/a: 's3://b'}", "file_mounts./a"),
        (
            "run: a\nfile_mounts: {/a: {name: b, mode: MOUNT}}",
            "file_mounts./a",
        ),
        (
            "run: a\nresources: {image_id: 'docker:x'}",
            "resources.image_id",
        ),
        (
            "run: a\nresources: {any_of: [{cloud: aws}, {accelerators: A100}]}",
            "resources.any_of",
        ),
        (
            "run: a\nresources: {accelerators: [A100, H100]}",
            "resources.accelerators",
        ),
        (
            "run: a\nresources: {accelerators: {A100: 1, H100: 1}}",
            "resources.accelerators",
        ),
        (
            "run: a\nresources: {accelerators: 'A100:0.5'}",
            "resources.accelerators",
        ),
        ("run: a\nresources: {cpus: many}", "resources.cpus"),
        ("run: a\nresources: {memory: lots}", "resources.memory"),
        (
            "run: a\nresources: {acelerators: A100}",
            "resources.acelerators",
        ),
        ("run: a\nworkdir: {url: x}", "workdir"),
        ("run: a\nservice: {replicas: 2}", "service"),
        ("run: a\nnum_nodes: 0", "num_nodes"),
        ("num_nodes: 1", "run"),
        ("run: [a]", "run"),
        ("- a", ""),
    ] {
        let error = convert(text.as_bytes(), "task.yaml", &BTreeSet::new()).expect_err(text);
        let paths: Vec<_> = error.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, [path], "{text}\n{error}");
        assert!(!error.to_string().contains("hunter2"));
    }
}

#[test]
fn recognises_tasks_and_leaves_job_files_alone() {
    assert!(recognised("run: a\nnum_nodes: 2"));
    assert!(recognised("run: a\nresources: {accelerators: 'H100:8'}"));
    assert!(recognised("run: a\nenvs: {A: 1}"));
    assert!(!recognised("run: a\nnodes: 2\nnum_nodes: 2"));
    assert!(!recognised("run: a\nresources: {gpus: 1}"));
    assert!(!recognised("run: a"));
    assert!(!recognised("[1]"));
    assert!(recognised("run: a\nresources: {cpus: 4+}"));
    assert!(recognised("run: a\nresources: {memory: 16+}"));
    let nodes = |text: &[u8]| match read_any(text, "f", &BTreeSet::new()).sound().unwrap() {
        Input::Job(spec) => ("job", spec.nodes),
        Input::Task(task) => ("task", task.spec.nodes),
    };
    assert_eq!(nodes(b"run: a\nnum_nodes: 2"), ("task", 2));
    assert_eq!(nodes(b"run: a\nnodes: 3"), ("job", 3));
}

#[test]
fn a_value_that_the_command_line_gives_may_be_left_out() {
    let text = b"run: a\nnum_nodes: 1\nenvs: {A: null, B: null}\n";
    let given = BTreeSet::from(["A".to_owned()]);
    let error = convert(text, "f", &given).unwrap_err();
    let paths: Vec<_> = error.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["envs.B"]);
}

#[test]
fn alternatives_among_clouds_alone_change_no_result() {
    let task = converted("run: a\nresources: {any_of: [{infra: aws}, {cloud: gcp, region: x}]}");
    assert_eq!(task.notes.len(), 1);
    assert_eq!(task.notes[0].path, "resources.any_of");
}

#[test]
fn an_unknown_key_says_what_the_file_was_taken_for() {
    for (text, hint) in [
        ("num_nodes: 1\nrun: a\nfoo: 1", "because of `num_nodes`"),
        (
            "resources: {cpus: 4+, foo: 1}\nrun: a",
            "because of `resources.cpus`",
        ),
        (
            "num_nodes: 1\nrun: a\nresources: {gpus: 1}",
            "`accelerators: H100:8`",
        ),
        (
            "num_nodes: 1\nrun: a\nresources: {mem: 1}",
            "did you mean `memory`?",
        ),
    ] {
        let error = convert(text.as_bytes(), "task.yaml", &BTreeSet::new()).unwrap_err();
        let fault = error.iter().next().unwrap();
        assert_eq!(fault.refusal.message, "unknown key of a SkyPilot task");
        assert!(
            fault
                .refusal
                .hint
                .as_ref()
                .is_some_and(|said| said.contains(hint)),
            "{error}"
        );
    }
}
