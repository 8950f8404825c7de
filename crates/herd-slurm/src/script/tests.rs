//! Plans and the batch scripts that come of them.

use herd_core::JobId;
use herd_core::jobfile;
use herd_core::plan::{BackendFacts, BackendKind, Plan, Submission, plan};
use herd_core::spec::{JobSpec, SlurmOptions};

use super::*;
use crate::array;
use crate::config::Config;
use crate::facts::Images;
use crate::{node, partition, version};

const ID: &str = "01a22bd3-d42d-7254-8fbe-986b44cfb96c";

fn facts() -> ClusterFacts {
    let node = |name: &str, gres: &str| {
        format!(
            "{name}\u{1f}all\u{1f}idle\u{1f}8\u{1f}4000\u{1f}{gres}\u{1f}ib\u{1f}0/8/0/8\u{1f}none\u{1e}\n"
        )
    };
    ClusterFacts {
        version: version::Version::of(22, 5),
        config: Config::parse(
            "MaxArraySize = 1001\nKillWait = 30 sec\nSelectTypeParameters = CR_CORE_MEMORY\n",
        ),
        partitions: partition::parse(
            "PartitionName=all Default=YES MaxTime=1-00:00:00 MaxNodes=2 AllowAccounts=lab State=UP\n\
             PartitionName=old AllowAccounts=ALL State=DRAIN\n",
        ),
        nodes: node::parse_list(
            &(node("n1", "gpu:h800:8") + &node("n2", "gpu:h800:4") + &node("n3", "(null)")),
        ),
        mpi: Vec::new(),
        images: Images::No,
    }
}

fn spec(text: &str) -> JobSpec {
    jobfile::parse(text.as_bytes(), "job.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn planned(spec: &JobSpec) -> Plan {
    let backend = BackendFacts {
        kind: BackendKind::Slurm,
        images: true,
        checkpoints: true,
        max_nodes: None,
        cpus_per_node: None,
        gpus_per_node: None,
        ..BackendFacts::local(1, 0)
    };
    let id: JobId = ID.parse().unwrap();
    plan(spec, &backend, Submission::first(id, "/w")).unwrap_or_else(|error| panic!("{error:?}"))
}

fn render(text: &str) -> Result<String, Vec<Unsupported>> {
    let spec = spec(text);
    let plan = planned(&spec);
    let options = spec.slurm.clone().unwrap_or_default();
    let exec = ["/opt/herd/herd-node", "driver", "it's me"].map(str::to_owned);
    let request = Request {
        plan: &plan,
        options: &options,
        image: spec.image.as_deref(),
        directory: "/home/a b/50%",
        exclude: &["n3".to_owned(), "gone7".to_owned()],
        after: &[
            Dependency {
                job: 7,
                when: AfterWhen::Ok,
            },
            Dependency {
                job: 8,
                when: AfterWhen::Any,
            },
        ],
        staged_to: None,
    };
    script(&request, &facts(), None, &exec)
}

fn refused(text: &str) -> Vec<String> {
    render(text)
        .unwrap_err()
        .into_iter()
        .map(|refusal| refusal.key)
        .collect()
}

#[test]
fn row_15_a_plan_becomes_a_script_that_a_person_can_read() {
    let text = "name: 'düne, 2'\nnodes: 2\nrun: a\nwalltime: 90s\npriority: 40\n\
                resources: {cpus: 4, memory: 1000MB, gpus: 2, gpu_type: H800}\n\
                checkpoint: {protocol: torch-rank, grace: 20s}\n\
                slurm: {partition: all, account: lab, qos: 'a \"b\"', extra: [--constraint=ib&nvme, --exclusive, '--exclude=n[1-1]']}";
    let expected = r#"#!/bin/sh
# herd job 01a22bd3-d42d-7254-8fbe-986b44cfb96c, attempt 1
#SBATCH --job-name=d-ne--2-44cfb96c
#SBATCH --comment="herd job 01a22bd3-d42d-7254-8fbe-986b44cfb96c"
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=954M
#SBATCH --gres=gpu:h800:2
#SBATCH --time=00:02:00
#SBATCH --partition=all
#SBATCH --account=lab
#SBATCH --qos="a \"b\""
#SBATCH --nice=1000
#SBATCH --dependency=afterok:7,afterany:8
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --signal=B:USR1@20
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output="/home/a b/50%%/slurm-%A.out"
#SBATCH --chdir="/home/a b/50%"
#SBATCH --export=NONE
#SBATCH --constraint="ib&nvme"
#SBATCH --exclusive
#SBATCH --exclude="n[1-1],n3"

exec /opt/herd/herd-node driver 'it'\''s me'
"#;
    assert_eq!(render(text).unwrap(), expected);
}

#[test]
fn a_job_that_asks_for_little_says_little() {
    let script = render("run: a").unwrap();
    for option in [
        "cpus-per-task",
        "mem",
        "gres",
        "time",
        "partition",
        "nice",
        "array",
    ] {
        assert!(!script.contains(&format!("--{option}=")), "{option}");
    }
    // The grace of every job, ahead of a preemption.
    assert!(script.contains("--signal=B:USR1@10\n"), "{script}");
}

#[test]
fn i12_no_value_of_a_variable_or_secret_is_in_a_script() {
    let script =
        render("run: echo $HF\nenv: {LR: hidden-1}\nsecrets: {HF: {env: hidden-2}}").unwrap();
    assert!(
        !script.contains("hidden") && !script.contains("HF"),
        "{script}"
    );
}

#[test]
fn parts_of_an_array_have_names_of_their_own_and_wait_for_each_other() {
    let spec = spec("run: a\narray: 0-1500%10");
    let plan = planned(&spec);
    let options = SlurmOptions::default();
    let request = Request {
        plan: &plan,
        options: &options,
        image: None,
        directory: "/d",
        exclude: &[],
        after: &[],
        staged_to: None,
    };
    let facts = facts();
    let size = facts.config.max_array_size();
    let chunks = array::chunks(plan.array.as_ref().unwrap(), size, None);
    assert_eq!(chunks.len(), 2);
    let render = |number: usize, previous| {
        let part = Part {
            chunk: &chunks[number],
            number,
            of: 2,
            previous,
        };
        script(&request, &facts, Some(&part), &["/d/driver".to_owned()]).unwrap()
    };
    let (first, second) = (render(0, None), render(1, Some(17)));
    assert!(first.contains("--array=0-1000%10\n") && first.contains("--job-name=a-44cfb96c\n"));
    assert!(!first.contains("--dependency"));
    assert!(second.contains("--array=0-499%10\n") && second.contains("--job-name=a-44cfb96c.1\n"));
    assert!(second.contains("--dependency=afterany:17\n") && second.contains("part 2 of 2"));
}

#[test]
fn i13_what_a_cluster_cannot_honour_is_refused_all_at_once() {
    assert_eq!(
        refused(
            "run: a\nnodes: 3\nwalltime: 2d\npriority: 60\nimage: x:y\n\
             resources: {cpus: 64, memory: 1TiB, gpus: 9}\n\
             slurm: {partition: all, account: other, extra: [--comment=x, --nodelist=n, --nodelist=n1, '--exclude=n[']}"
        ),
        [
            "slurm.extra",
            "slurm.extra",
            "slurm.extra",
            "slurm.extra",
            "nodes",
            "walltime",
            "slurm.account",
            "resources.cpus",
            "resources.memory",
            "resources.gpus",
            "priority",
            "image",
        ]
    );
    assert_eq!(
        refused("run: a\nslurm: {partition: al}"),
        ["slurm.partition"]
    );
    assert_eq!(
        refused("run: a\nslurm: {partition: old}"),
        ["slurm.partition"]
    );
    assert_eq!(
        refused("run: a\nresources: {gpus: 1, gpu_type: a100}"),
        ["resources.gpu_type"]
    );
    // Each is there, but on one node alone.
    assert_eq!(
        refused("run: a\nnodes: 2\nresources: {gpus: 6}"),
        ["resources.gpus"]
    );
    let near = render("run: a\nslurm: {partition: al}").unwrap_err();
    assert_eq!(near[0].hint, "did you mean `all`?");
}

#[test]
fn a_path_that_no_script_can_carry_is_refused() {
    let spec = spec("run: a");
    let plan = planned(&spec);
    let options = SlurmOptions {
        qos: Some("a\n#SBATCH --uid=0".to_owned()),
        ..SlurmOptions::default()
    };
    let request = Request {
        plan: &plan,
        options: &options,
        image: None,
        directory: "/d",
        exclude: &[],
        after: &[],
        staged_to: None,
    };
    let refused = script(&request, &facts(), None, &["/d\n".to_owned()]).unwrap_err();
    let keys: Vec<_> = refused.iter().map(|refusal| refusal.key.as_str()).collect();
    assert_eq!(keys, ["slurm.qos", "workdir"]);
}

#[test]
fn gpus_are_asked_for_as_the_cluster_names_them() {
    let mut facts = facts();
    let request = |facts: &ClusterFacts, kind| {
        let partition = facts.partition(None);
        facts.gres_request(partition, 2, kind)
    };
    assert_eq!(request(&facts, None), "gpu:h800:2");
    assert_eq!(request(&facts, Some("H800")), "gpu:h800:2");
    facts.nodes[1].gres[0].kind = Some("a100".to_owned());
    assert_eq!(request(&facts, None), "gpu:2");
    facts.nodes[1].gres[0].kind = None;
    assert_eq!(request(&facts, None), "gpu:2");
    assert_eq!(request(&facts, Some("h800")), "gpu:h800:2");
}

#[test]
fn what_is_accepted_but_other_than_meant_is_said() {
    let spec =
        spec("run: a\nresources: {memory: 1GiB}\ncheckpoint: {protocol: torch-rank, grace: 2m}");
    let plan = planned(&spec);
    let options = SlurmOptions::default();
    let request = Request {
        plan: &plan,
        options: &options,
        image: None,
        directory: "/d",
        exclude: &[],
        after: &[],
        staged_to: None,
    };
    let mut facts = facts();
    facts.config = Config::parse("KillWait = 30 sec\nPreemptType = preempt/qos\n");
    let notes = refuse::notes(&request, &facts).join("\n");
    for part in ["not enforced", "after 1d", "KillWait", "send_user_signal"] {
        assert!(notes.contains(part), "{part} in {notes}");
    }
}
