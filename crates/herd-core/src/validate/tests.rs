use super::*;

#[test]
fn names_are_safe_as_file_names() {
    assert!(name("digits.v2_a-b").is_ok());
    assert!(name(&"é".repeat(253)).is_ok());
    for bad in ["", ".", "..", "a/b", "a\nb", "-n", " a", &"x".repeat(300)] {
        assert!(name(bad).is_err(), "{bad:?}");
    }
    assert!(job_name("last-1").is_ok() && job_name("cafe").is_ok() && job_name("abcdefgh").is_ok());
    for bad in [
        "last",
        "deadBEEF",
        "20260131",
        "01a22bd3-d42d-7254-8fbe-986b44cfb96c",
    ] {
        assert!(name(bad).is_ok() && job_name(bad).is_err(), "{bad}");
    }
    assert!(dataset_name("sci/uniprot").is_ok());
    assert!(dataset_name("sci/../x").is_err());
    assert!(dataset_name("/x").is_err());
}

#[test]
fn variables_follow_posix_and_leave_ours_alone() {
    assert!(env_name("_A1").is_ok());
    for bad in [
        "",
        "1A",
        "A-B",
        "A=B",
        "Ä",
        "HERD_RANK",
        "SKYPILOT_NODE_RANK",
    ] {
        assert!(env_name(bad).is_err(), "{bad}");
    }
    assert!(env_value("a\0").is_err());
}

#[test]
fn slurm_extra_keeps_to_its_list() {
    assert!(slurm_extra("--constraint=ib").is_ok());
    assert!(slurm_extra("--exclusive").is_ok());
    let error = |text| slurm_extra(text).unwrap_err();
    assert_eq!(
        error("--account=x").hint.as_deref(),
        Some("use `slurm.account`")
    );
    assert!(error("--uid=0").message.contains("not allowed"));
    assert!(error("-A x").message.contains("is not an option"));
    assert!(
        error("--comment=a\n#SBATCH --uid=0")
            .message
            .contains("control")
    );
    assert!(
        error("--constraint ib")
            .message
            .contains("is not an option")
    );
}

#[test]
fn i13_a_ray_job_cannot_set_what_makes_its_cluster() {
    let spec = JobSpec {
        job_type: JobType::Ray,
        run: Some(Command::Shell("a".to_owned())),
        env: [("RAY_ADDRESS", "auto"), ("RAY_LOG_TO_STDERR", "1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        secrets: [(
            "RAY_AUTH_TOKEN".to_owned(),
            SecretSource::Env("T".to_owned()),
        )]
        .into(),
        ..JobSpec::default()
    };
    let found = conflicts(&spec);
    let keys: Vec<_> = found.iter().map(|found| found.key.as_str()).collect();
    assert_eq!(keys, ["env.RAY_ADDRESS", "secrets.RAY_AUTH_TOKEN"]);
    let command = JobSpec {
        job_type: JobType::Command,
        ..spec
    };
    assert!(conflicts(&command).is_empty());
}

#[test]
fn contradictions_are_named() {
    let spec = JobSpec {
        launcher: Launcher::User,
        procs_per_node: ProcsPerNode::Gpu,
        ..JobSpec::default()
    };
    let keys: Vec<_> = conflicts(&spec)
        .into_iter()
        .map(|conflict| conflict.key)
        .collect();
    assert_eq!(keys, ["run", "launcher", "procs_per_node"]);
}
