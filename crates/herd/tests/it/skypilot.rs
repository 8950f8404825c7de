//! SkyPilot task files as a user of SkyPilot writes them (issue A, point 9): what says the same is
//! done, what does not is named.

use crate::fixture::Bench;

const TASK: &[u8] = b"name: tune
num_nodes: 2
resources:
  infra: aws
  cpus: 1+
  any_of: [{use_spot: true}, {use_spot: false}]
workdir: project
envs:
  LR: 1e-3
  RUN: null
secrets:
  TOKEN: null
file_mounts:
  ./data: shared
setup: |
  echo setup $SKYPILOT_SETUP_NODE_RANK/$SKYPILOT_NUM_NODES
run: |
  false
  echo node $SKYPILOT_NODE_RANK/$SKYPILOT_NUM_NODES $(echo \"$SKYPILOT_NODE_IPS\" | wc -l)
  echo lr $LR run $RUN token ${#TOKEN} gpus $SKYPILOT_NUM_GPUS_PER_NODE
  cat data/words
";

/// A directory with the task, its working directory and its data.
fn bench() -> Bench {
    let bench = Bench::new();
    let path = |name: &str| bench.dir.path().join(name);
    std::fs::create_dir_all(path("tasks")).unwrap();
    std::fs::create_dir_all(path("project")).unwrap();
    std::fs::create_dir_all(path("shared")).unwrap();
    bench.file("tasks/task.yaml", TASK);
    bench.file("shared/words", b"some data\n");
    bench
}

#[test]
fn what_is_missing_is_named_with_the_way_to_give_it() {
    let bench = bench();
    let answer = bench.ask(&["run", "tasks/task.yaml"]);
    assert_eq!(answer.code, 2);
    for part in ["envs.RUN", "--env RUN=VALUE"] {
        assert!(answer.err.contains(part), "{part}: {}", answer.err);
    }
    let given = ["render", "--env", "RUN=7", "tasks/task.yaml"];
    assert!(bench.ask(&given).err.contains("TOKEN"));
    let mut herd = bench.herd();
    herd.env("TOKEN", "abc");
    let output = herd.args(given).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let link = bench.dir.path().canonicalize().unwrap();
    let link = format!("`ln -s {0}/shared {0}/project/data`", link.display());
    assert!(
        said.contains("file_mounts") && said.contains(&link),
        "{said}"
    );
    bench.file(
        "tasks/task.yaml",
        b"num_nodes: 1\nfile_mounts: {/x: 's3://b'}\nservice: {}\nrun: a\n",
    );
    let answer = bench.ask(&["run", "tasks/task.yaml"]);
    assert_eq!(answer.code, 2);
    assert!(
        answer.err.contains("bucket") && answer.err.contains("service"),
        "{}",
        answer.err
    );
}

#[test]
fn a_task_does_what_its_author_expects() {
    let bench = bench();
    let data = bench.dir.path().join("project/data");
    std::os::unix::fs::symlink("../shared", data).unwrap();
    let mut herd = bench.herd();
    herd.env("TOKEN", "abc")
        .env("HERD_LEASE_DIR", bench.dir.path().join("leases"));
    // Two emulated nodes may be more CPUs than this machine has; nothing leased, nothing refused.
    let task = String::from_utf8(TASK.to_vec())
        .unwrap()
        .replace("  cpus: 1+\n", "");
    bench.file("tasks/task.yaml", task.as_bytes());
    let output = herd
        .args([
            "run",
            "--prefix",
            "none",
            "--env",
            "RUN=7",
            "tasks/task.yaml",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    for place in ["resources.infra", "resources.any_of"] {
        assert!(said.contains(place), "{place}: {said}");
    }
    let text = String::from_utf8(output.stdout).unwrap() + &said;
    for line in ["setup 0/2", "setup 1/2", "node 0/2 2", "node 1/2 2"] {
        assert_eq!(text.matches(line).count(), 1, "{line}: {text}");
    }
    for line in ["lr 1e-3 run 7 token 3 gpus 0", "some data"] {
        assert_eq!(text.matches(line).count(), 2, "{line}: {text}");
    }
}

#[test]
fn a_task_without_its_directory_has_one_fault_and_warnings_name_their_place() {
    let bench = bench();
    bench.file(
        "tasks/task.yaml",
        b"num_nodes: 1\nresources: {cloud: aws}\nworkdir: nowhere\nfile_mounts: {./data: shared}\nrun: a\n",
    );
    let answer = bench.ask(&["run", "tasks/task.yaml"]);
    assert_eq!(answer.code, 2);
    for part in ["1 fault\n", "tasks/task.yaml:3:10: workdir: cannot use"] {
        assert!(answer.err.contains(part), "{part}: {}", answer.err);
    }
    bench.file(
        "tasks/task.yaml",
        b"num_nodes: 1\nresources: {cloud: aws}\nrun: 'true'\n",
    );
    let answer = bench.ask(&["render", "tasks/task.yaml"]);
    let warning = "warning: tasks/task.yaml:2:13: resources.cloud is ignored";
    assert!(answer.err.contains(warning), "{}", answer.err);
    bench.file(
        "tasks/task.yaml",
        b"num_nodes: 1\nfile_mounts: {./data: nowhere}\nrun: a\n",
    );
    let answer = bench.ask(&["run", "tasks/task.yaml"]);
    assert!(
        answer
            .err
            .contains("tasks/task.yaml:2:23: file_mounts../data: cannot use"),
        "{}",
        answer.err
    );
    bench.file(
        "tasks/task.yaml",
        b"num_nodes: 1\nresources: {image_id: 'docker:x'}\nrun: a\n",
    );
    let answer = bench.ask(&["run", "tasks/task.yaml"]);
    assert!(
        !answer.err.contains("write `image`") && answer.err.contains("`setup`"),
        "{}",
        answer.err
    );
}
