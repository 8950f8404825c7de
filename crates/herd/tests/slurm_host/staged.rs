//! From the laptop to a cluster whose nodes do not see the login node's directories either.

use std::fs;

use herd_testing::within;

use crate::laptop::{DEADLINE, Laptop};

/// A laptop whose backend is such a cluster.
fn laptop() -> Laptop {
    let laptop = Laptop::new();
    let node_dir = laptop.cluster.scratch.display();
    laptop.config(&format!("shared_home = false\nnode_dir = \"{node_dir}\""));
    fs::write(laptop.path("work/data.txt"), "from the laptop\n").unwrap();
    laptop
}

/// Nothing of the jobs stays on the nodes, which the driver sees to after the result is there.
fn nothing_left(laptop: &Laptop, directory: &str) {
    within(DEADLINE, "the end of the job's directories", || {
        !laptop.cluster.on_nodes().contains(directory)
    });
}

/// The name of the job's directory on its nodes, of the path that its rank prints.
fn directory(pwd: &str) -> String {
    let found = pwd
        .split('/')
        .find(|part| part.starts_with("herd-") && part.len() == 21);
    found.unwrap_or_else(|| panic!("{pwd}")).to_owned()
}

#[test]
fn i12_workdir_and_secrets_get_to_the_nodes_and_what_a_job_leaves_comes_back() {
    let laptop = laptop();
    let job = "backend: far\nnodes: 2\nworkdir: .\nsecrets: {WORD: {env: WORD}}\n\
               run: |\n  cat data.txt\n  echo \"$WORD\" | tr a-z A-Z\n  pwd\n  echo result > out.txt\n";
    fs::write(laptop.path("work/job.yaml"), job).unwrap();
    let mut run = laptop.herd(&["run", "job.yaml"]);
    let output = run.env("WORD", "hidden").output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    for node in ["node0, rank=0", "node1, rank=1"] {
        for line in ["from the laptop", "HIDDEN"] {
            assert!(out.contains(&format!("({node}) {line}\n")), "{out}{err}");
        }
    }
    assert_eq!(laptop.ask(&["get", "last", "back"]).code, 0);
    let result = fs::read(laptop.path("work/back/out.txt")).unwrap();
    assert_eq!(result, b"result\n");
    let row = &laptop.json(&["ls"])[0];
    assert_eq!(
        (&row["state"], &row["exit_code"]),
        (&"SUCCEEDED".into(), &0.into())
    );
    nothing_left(&laptop, &directory(&out));
}

#[test]
fn a_staged_job_is_entered_and_cancelled_from_the_laptop() {
    let laptop = laptop();
    let script =
        "trap 'echo saved > saved; exit 0' TERM; touch up; pwd; while :; do sleep 0.1; done";
    let words = ["--workdir", ".", "--", "sh", "-c", script];
    let job = laptop.submit(&words);
    laptop.await_state(&job, "RUNNING");
    within(DEADLINE, "the trap", || {
        laptop.ask(&["exec", &job, "--", "ls", "up"]).code == 0
    });
    let data = laptop.ask(&["exec", &job, "--", "cat", "data.txt"]);
    assert_eq!(
        (data.code, &*data.out),
        (0, "from the laptop\n"),
        "{data:?}"
    );
    let cancel = laptop.ask(&["cancel", &job]);
    assert_eq!(cancel.code, 0, "{cancel:?}");
    let ended = laptop.ask(&["wait", &job]);
    assert_eq!(ended.code, 130, "{ended:?}");
    assert!(ended.err.contains("asked for by herd cancel"), "{ended:?}");
    assert_eq!(laptop.ask(&["get", &job, "back"]).code, 0);
    assert_eq!(
        fs::read(laptop.path("work/back/saved")).unwrap(),
        b"saved\n"
    );
    let log = laptop.ask(&["logs", &job, "--raw"]);
    nothing_left(&laptop, &directory(&log.out));
}
