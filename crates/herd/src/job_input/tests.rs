//! Files, flags and commands together.

use super::*;

fn read_with(args: &JobArgs, cwd: &Path, stdin: &[u8]) -> Result<JobInput, ExpectedError> {
    let variable = |name: &str| (name == "TOKEN").then(|| OsString::from("hunter2"));
    let mut stdin = stdin;
    let cwd = cwd.to_owned();
    read_in(
        args,
        &mut Surroundings {
            cwd,
            config: Config::default(),
            variable: &variable,
            job: &|selector| {
                Err(ExpectedError::NoSuchJob {
                    selector: selector.to_owned(),
                    nearest: Vec::new(),
                })
            },
            words: Vec::new(),
            stdin: &mut stdin,
        },
    )
}

fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn a_command_keeps_its_arguments_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let words = ["a b", "$x", "'\"\\", "größe\n", ""];
    let args = JobArgs {
        command: command(&words),
        ..JobArgs::default()
    };
    let input = read_with(&args, dir.path(), b"").unwrap();
    assert_eq!(input.spec.run, Some(Command::Argv(command(&words))));
    assert_eq!(input.backend, "local");
    let real = dir.path().canonicalize().unwrap();
    assert_eq!(input.spec.workdir.as_deref(), real.to_str());
}

#[test]
fn flags_stand_over_the_file_and_env_over_env_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("v.env"), "A=file\nB=file\nC=file\n").unwrap();
    let args = JobArgs {
        file: Some("-".into()),
        nodes: Some("3".to_owned()),
        env_file: vec!["v.env".into()],
        env: vec!["A=flag".to_owned()],
        secret: vec!["TOKEN".to_owned()],
        ..JobArgs::default()
    };
    let file = b"nodes: 2\nenv: {A: job, B: job, D: job}\nrun: 'true'\n";
    let input = read_with(&args, dir.path(), file).unwrap();
    assert_eq!(input.spec.nodes, 3);
    let env: Vec<_> = input.spec.env.values().map(String::as_str).collect();
    assert_eq!(env, ["flag", "file", "file", "job"]);
    assert!(!format!("{input:?}").contains("hunter2"));
    assert_eq!(input.secrets.into_values()["TOKEN"], "hunter2");
}

#[test]
fn faults_of_file_flags_env_file_secret_and_workdir_come_together() {
    let dir = tempfile::tempdir().unwrap();
    let args = JobArgs {
        file: Some("-".into()),
        nodes: Some("many".to_owned()),
        env_file: vec!["missing.env".into()],
        secret: vec!["ABSENT".to_owned()],
        workdir: Some("nowhere".into()),
        backend: Some("slurm".to_owned()),
        ..JobArgs::default()
    };
    let error = read_with(&args, dir.path(), b"ndoes: 2\nrun: 'true'\n").unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let said = error.render(false);
    for part in [
        "ndoes",
        "--nodes",
        "missing.env",
        "ABSENT",
        "nowhere",
        "slurm",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_name_is_secret_or_plain_but_not_both() {
    let dir = tempfile::tempdir().unwrap();
    let args = JobArgs {
        command: command(&["true"]),
        env: vec!["TOKEN=1".to_owned()],
        secret: vec!["TOKEN".to_owned()],
        ..JobArgs::default()
    };
    assert!(read_with(&args, dir.path(), b"").is_err());
}
