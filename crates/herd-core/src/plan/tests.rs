//! Jobs and the plans, or refusals, that come of them.

use super::naming::absolute;
use super::*;
use crate::jobfile;
use crate::spec::{JobSpec, SetupOn};

fn spec(text: &str) -> JobSpec {
    jobfile::parse(text.as_bytes(), "job.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn on_local(text: &str) -> Result<Plan, Vec<Unsupported>> {
    plan(
        &spec(text),
        &BackendFacts::local(8, 2),
        Submission::first(JobId::generate(), "/w"),
    )
}

fn refused(text: &str) -> Vec<String> {
    on_local(text)
        .unwrap_err()
        .into_iter()
        .map(|refusal| refusal.key)
        .collect()
}

#[test]
fn fills_in_what_the_job_leaves_open() {
    let plan = on_local("run: ./bin/train.sh --fast\nsetup: make\nworkdir: ./sub/.\n").unwrap();
    assert_eq!(plan.name, "train.sh");
    assert_eq!(plan.workdir, "/w/sub");
    assert_eq!(
        (plan.nodes, plan.ranks_per_node, plan.procs_per_node),
        (1, 1, 1)
    );
    assert_eq!(plan.setup.unwrap().on, SetupOn::First);
    assert_eq!((plan.grace, plan.priority), (DEFAULT_GRACE, 50));
}

#[test]
fn ranks_follow_type_and_launcher() {
    let plan = on_local("type: pytorch\nnodes: 2\nprocs_per_node: 3\nrun: a").unwrap();
    assert_eq!((plan.ranks_per_node, plan.world_size()), (3, 6));
    let user = on_local("type: pytorch\nlauncher: user\nprocs_per_node: 3\nrun: a").unwrap();
    assert_eq!((user.ranks_per_node, user.procs_per_node), (1, 3));
    let mpi = on_local("type: mpi\nprocs_per_node: 3\nrun: a").unwrap();
    assert_eq!((mpi.ranks_per_node, mpi.procs_per_node), (3, 3));
    let gpu = on_local("type: pytorch\nnodes: 2\nprocs_per_node: gpu\nrun: a").unwrap();
    assert_eq!((gpu.ranks_per_node, gpu.resources.gpus), (1, Some(1)));
}

#[test]
fn a_ray_job_has_one_rank_and_says_where_ray_listens() {
    let text = "type: ray\nnodes: 3\nrun: a";
    let plan = on_local(text).unwrap();
    assert_eq!((plan.nodes, plan.world_size()), (3, 1));
    let submission = Submission::first(JobId::generate(), "/w");
    let notes = notes(&spec(text), &BackendFacts::local(2, 0), &submission);
    assert!(notes[0].contains("listens on all addresses"), "{notes:?}");
}

#[test]
fn i13_what_local_cannot_honour_is_refused_all_at_once() {
    let keys = refused(
        "run: a\nimage: x:y\ndatasets: [{name: d}]\norg: o\nproject: p\n\
         checkpoint: {protocol: torch-rank}\nnodes: 3\nresources: {cpus: 3, gpus: 1}\n",
    );
    assert_eq!(
        keys,
        [
            "image",
            "datasets",
            "checkpoint",
            "org",
            "project",
            "resources.cpus",
            "resources.gpus"
        ]
    );
    assert_eq!(
        refused("run: a\ntype: pytorch\nnodes: 4\nprocs_per_node: gpu"),
        ["procs_per_node"]
    );
    assert!(on_local("run: a\nslurm: {partition: p}\nkueue: {queue: q}").is_ok());
}

#[test]
fn i13_the_ray_backend_is_refused_with_what_to_do() {
    let facts = BackendFacts {
        kind: BackendKind::Ray,
        ..BackendFacts::local(1, 0)
    };
    let submission = Submission::first(JobId::generate(), "/w");
    let refused = plan(&spec("run: a"), &facts, submission).unwrap_err();
    assert_eq!(refused[0].reason, "the ray backend is not available yet");
    assert_eq!(refused[0].hint, "use `type: ray` on local");
}

#[test]
fn flags_are_checked_like_a_file() {
    let spec = JobSpec {
        nodes: 0,
        name: Some("../x".to_owned()),
        run: Some(Command::Argv(Vec::new())),
        ..JobSpec::default()
    };
    let submission = Submission::first(JobId::generate(), "/w");
    let refused = plan(&spec, &BackendFacts::local(1, 0), submission).unwrap_err();
    let keys: Vec<_> = refused.iter().map(|refusal| refusal.key.as_str()).collect();
    assert_eq!(keys, ["name", "run", "nodes"]);
}

#[test]
fn only_named_variables_reach_a_backend_that_does_not_inherit() {
    let facts = BackendFacts {
        inherit_env: false,
        ..BackendFacts::local(1, 0)
    };
    let spec = spec("run: a\nenv_from: [A, B, C]\nenv: {B: own}");
    let mut submission = Submission::first(JobId::generate(), "/w");
    for (name, value) in [("A", "1"), ("B", "2"), ("X", "3")] {
        submission.env.insert(name.to_owned(), value.to_owned());
    }
    assert_eq!(notes(&spec, &facts, &submission).len(), 1);
    let env = plan(&spec, &facts, submission).unwrap().env;
    let pairs: Vec<_> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(pairs, [("A", "1"), ("B", "own")]);
}

#[test]
fn names_come_from_command_file_or_nothing() {
    let name = |text: &str, file| display_name(&spec(text), file);
    assert_eq!(
        name("run: |\n  # hi\n  A=1 /usr/bin/python3 x.py\n", None),
        "python3"
    );
    assert_eq!(name("run: [\"/opt/a b\"]", None), "a-b");
    let text = "run: 'if [ $A = 1 ]; then echo no >&2; fi; sleep 1'";
    assert_eq!(name(text, None), "echo");
    assert_eq!(name("run: A=1", Some("dir/digits.yaml")), "digits");
    assert_eq!(name("run: \"...\"", None), "job");
    assert_eq!(name("run: a\nname: own", None), "own");
}

#[test]
fn paths_are_joined_without_guessing() {
    assert_eq!(absolute("/w", "."), "/w");
    assert_eq!(absolute("/", "a"), "/a");
    assert_eq!(absolute("/w", "/"), "/");
    assert_eq!(absolute("/w", "../b//c/"), "/w/../b/c");
    assert_eq!(absolute("/w", "/x/./y"), "/x/y");
}

#[test]
fn a_plan_survives_its_file_format() {
    let plan =
        on_local("run: a\nretry: {max: 1, on: [node-lost, 'exit:75']}\narray: 0-9%2").unwrap();
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn most_of_the_time_limit_is_the_programs_unless_it_saves_a_checkpoint() {
    let margin = |text: &str, facts: &BackendFacts| {
        let submission = Submission::first(JobId::generate(), "/w");
        let plan = plan(&spec(text), facts, submission).unwrap();
        plan.time_limit_margin().map(|margin| margin.ms)
    };
    let local = BackendFacts::local(1, 0);
    for (limit, ms) in [
        ("2s", 200),
        ("30s", 3000),
        ("1m40s", 10_000),
        ("2h", 10_000),
    ] {
        let text = format!("run: a\nwalltime: {limit}");
        assert_eq!(margin(&text, &local), Some(ms), "{limit}");
    }
    assert_eq!(margin("run: a", &local), None);
    let saves = BackendFacts {
        checkpoints: true,
        ..local
    };
    for (limit, ms) in [("2m", 60_000), ("2h", 180_000)] {
        let text =
            format!("run: a\nwalltime: {limit}\ncheckpoint: {{protocol: torch-rank, grace: 180s}}");
        assert_eq!(margin(&text, &saves), Some(ms), "{limit}");
    }
}

#[test]
fn i13_more_memory_than_there_is_and_too_little_to_run_are_refused() {
    let facts = BackendFacts {
        memory_per_node: Some(crate::units::Bytes(4 << 30)),
        ..BackendFacts::local(1, 0)
    };
    let refused = |text: &str| {
        let submission = Submission::first(JobId::generate(), "/w");
        let refused = plan(&spec(text), &facts, submission).err();
        refused.map(|all| all[0].to_string())
    };
    assert_eq!(refused("run: a\nresources: {memory: 4GiB}"), None);
    assert_eq!(
        refused("run: a\nnodes: 2\nresources: {memory: 3GiB}").as_deref(),
        Some("resources.memory: asks for 6GiB, and local has 4GiB")
    );
    let little = JobSpec {
        run: Some(Command::Shell("a".to_owned())),
        resources: Resources {
            memory: Some(crate::units::Bytes(1 << 20)),
            ..Resources::default()
        },
        ..JobSpec::default()
    };
    let submission = Submission::first(JobId::generate(), "/w");
    let refused = plan(&little, &facts, submission).unwrap_err();
    assert_eq!(refused[0].key, "resources.memory");
    assert!(refused[0].hint.contains("at least 16MiB"), "{refused:?}");
}

#[test]
fn i13_arrays_on_nodes_that_share_no_directory_run_on_one_of_them() {
    let facts = BackendFacts {
        name: "far".to_owned(),
        kind: BackendKind::Slurm,
        shared_home: false,
        max_nodes: None,
        ..BackendFacts::local(8, 2)
    };
    let keys = |text: &str| {
        let submission = Submission::first(JobId::generate(), "/w");
        let refused = plan(&spec(text), &facts, submission)
            .err()
            .unwrap_or_default();
        let keys = refused.into_iter().map(|refusal| refusal.key);
        keys.collect::<Vec<_>>()
    };
    let one = "array: 0-3\nslurm: {allocation: job}\nrun: a\n";
    assert_eq!(keys(one), Vec::<String>::new());
    assert_eq!(keys(&format!("{one}nodes: 2\n")), ["nodes"]);
    assert_eq!(keys("array: 0-3\nrun: a\n"), ["array"]);
}
