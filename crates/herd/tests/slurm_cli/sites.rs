//! `doctor` of a cluster, and clusters and defaults that the configuration names.

use serde_json::Value;

use crate::lab::Bench;

fn finding(findings: &Value, check: &str) -> Value {
    let mut all = findings.as_array().unwrap().iter();
    let found = all.find(|finding| finding["check"] == check);
    found
        .unwrap_or_else(|| panic!("no {check} in {findings}"))
        .clone()
}

#[test]
fn build8_doctor_checks_a_cluster_and_has_a_remedy_for_what_it_finds() {
    let bench = Bench::new();
    bench.lab.ask(&[
        "scontrol",
        "update",
        "nodename=node2",
        "state=drain",
        "reason=bad fan",
    ]);
    let findings = bench.json(&["doctor", "-b", "slurm"]);
    bench
        .lab
        .ask(&["scontrol", "update", "nodename=node2", "state=resume"]);
    let detail = |check: &str| {
        finding(&findings, check)["detail"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    for (check, part) in [
        ("slurm", "22.05"),
        ("partitions", "default, 3 nodes"),
        ("nodes", "node2 drained: bad fan"),
        ("gpus", "8 h800 on node[1-3]"),
        ("accounting", "slurmdbd"),
        ("preemption", "with a signal ahead"),
        ("processes", "linuxproc"),
        ("memory", "nothing keeps them within"),
        ("clock", "as this one"),
        ("mpi", "pmi2"),
        ("program", "herd-node"),
        ("home", "/tmp"),
        ("login", "a login shell takes"),
    ] {
        assert!(detail(check).contains(part), "{check}: {}", detail(check));
    }
    for finding in findings.as_array().unwrap() {
        let fine = finding["verdict"] == "ok";
        assert!(fine || finding["remedy"].as_str().is_some(), "{finding}");
    }
}

#[test]
fn build8_a_cluster_that_does_not_answer_is_a_failure_with_a_remedy() {
    let bench = Bench::new();
    bench.file(
        "config.toml",
        "[backends.far]\nkind = \"slurm\"\ncluster = \"nowhere\"\n",
    );
    let far = |args: &[&str]| {
        let mut herd = bench.herd();
        let output = herd
            .env("HERD_CONFIG", "config.toml")
            .args(args)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, out, _) = far(&["doctor", "-b", "far"]);
    assert_eq!(code, Some(1));
    assert!(
        out.contains("slurm") && out.contains("sacctmgr show clusters"),
        "{out}"
    );
    let (code, _, err) = far(&["submit", "-b", "far", "--", "true"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("herd doctor -b far"), "{err}");
    let (code, _, err) = far(&["doctor", "-b", "fra"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("did you mean `far`?"), "{err}");
}

#[test]
fn the_configuration_names_clusters_and_what_jobs_get_there() {
    let bench = Bench::new();
    // The cluster's name in its accounting database.
    bench.file(
        "config.toml",
        "backend = \"big\"\n[backends.big]\nkind = \"slurm\"\ncluster = \"lab\"\nqos = \"low\"\naccount = \"lab\"\n",
    );
    let herd = |args: &[&str]| {
        let mut herd = bench.herd();
        herd.env("HERD_CONFIG", "config.toml")
            .args(args)
            .output()
            .unwrap()
    };
    let ran = herd(&[
        "run",
        "--",
        "printenv",
        "SLURM_JOB_QOS",
        "SLURM_JOB_ACCOUNT",
    ]);
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        "low\nlab\n",
        "{ran:?}"
    );
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(
        said.contains("backend big, as the configuration says"),
        "{said}"
    );
    // Every command is asked in its own way, those that know no clusters as well.
    let doctor = herd(&["doctor", "-b", "big", "-o", "json"]);
    let findings: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let accounting = finding(&findings, "accounting");
    assert_eq!(accounting["verdict"], "ok", "{accounting}");
    // The job knows its cluster afterwards.
    assert_eq!(bench.json(&["status"])["backend"], "big");
    // What the job says stands over it.
    let own = herd(&["run", "-q", "normal", "--", "printenv", "SLURM_JOB_QOS"]);
    assert_eq!(String::from_utf8_lossy(&own.stdout), "normal\n", "{own:?}");
    // A home in the temporary directory is warned of.
    assert!(said.contains("is in /tmp"), "{said}");
}
