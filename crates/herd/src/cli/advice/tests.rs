use super::*;

fn said(line: &str) -> String {
    let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    match parse(&args) {
        Ok(_) => panic!("{line} is accepted"),
        Err(error) => refusal(error, &args, false),
    }
}

#[test]
fn a_program_without_dashes_is_shown_with_them() {
    for (line, hint) in [
        ("herd run python train.py", "`herd run -- python train.py`"),
        (
            "herd run -N 2 python train.py",
            "`herd run -N 2 -- python train.py`",
        ),
        (
            "herd run --nodes=2 -c 1 ls -la x",
            "`herd run --nodes=2 -c 1 -- ls -la x`",
        ),
        (
            "herd run python -u train.py",
            "`herd run -- python -u train.py`",
        ),
        (
            "herd submit python -- train.py",
            "`herd submit -- python train.py`",
        ),
        ("herd --color never render a b", "`herd render -- a b`"),
        ("herd exec bg hostname", "`herd exec bg -- hostname`"),
        (
            "herd exec --rank 1 bg ls -l",
            "`herd exec --rank 1 bg -- ls -l`",
        ),
    ] {
        let text = said(line);
        let end = format!("hint: a program comes after `--`: {hint}\n");
        assert!(text.ends_with(&end), "{line}: {text}");
        assert!(!text.contains("tip:"), "{text}");
    }
    assert!(!said("herd run job.yaml x").contains("herd run --"));
    assert!(said("herd exec bg").contains("-- <CMD>"));
}

#[test]
fn words_of_other_tools_are_answered_with_what_says_them_here() {
    for (line, hint) in [
        ("herd run -n 2 -- true", "`-N NODES`"),
        ("herd run --ntasks 2 -- true", "`--procs-per-node N`"),
        ("herd run --ntasks=2 -- true", "`--procs-per-node N`"),
        (
            "herd run --array 0-9 job.yaml",
            "`array: 0-9` in a job file",
        ),
        (
            "herd run job.yaml --array 0-9",
            "`array: 0-9` in a job file",
        ),
        (
            "herd submit --after x job.yaml",
            "`after: [JOB]` in a job file",
        ),
        (
            "herd run --retry 3 job.yaml",
            "`retry: {max: 3}` in a job file",
        ),
        ("herd run --dry-run job.yaml", "`herd render`"),
        ("herd run -d job.yaml", "`herd submit`"),
        (
            "herd run --priority 9 job.yaml",
            "write `priority` in a job file",
        ),
        (
            "herd run --env-from X job.yaml",
            "write `env_from` in a job file",
        ),
        ("herd run --nodess 2 -- true", "did you mean `--nodes`?"),
        ("herd logs --lines 3", "`--tail N`"),
        ("herd logs -n 3", "`--tail N`"),
        ("herd ls --json", "`-o json`"),
        ("herd status -f", "`herd events -f`"),
        ("herd stop x", "`herd cancel JOB`"),
        ("herd kill x", "`herd cancel JOB`"),
        ("herd ps", "`herd ls`"),
        ("herd rm x", "`herd gc`"),
        ("herd help", "`herd --help`"),
        ("herd help run", "`herd run --help`"),
        ("herd version", "`herd --version`"),
        ("herd statsu", "did you mean `herd status`?"),
        ("herd job.yaml", "`herd run job.yaml`"),
        ("herd python train.py", "`herd run -- python train.py`"),
    ] {
        let text = said(line);
        let last = text.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("hint: ") && last.contains(hint),
            "{line}: {text}"
        );
        assert!(!text.contains("tip:"), "{text}");
    }
}

#[test]
fn arguments_of_a_batch_script_come_after_dashes_and_options_stay() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("c.sbatch");
    std::fs::write(&script, "#!/bin/sh\n#SBATCH -c 1\ntrue\n").unwrap();
    let script = script.to_str().unwrap();
    let text = said(&format!("herd run -c 2 {script} a --b"));
    let hint = format!("come after `--`: `herd run -c 2 {script} -- a --b`\n");
    assert!(text.ends_with(&hint), "{text}");
    let args = ["herd", "run", script, "--", "a"].map(OsString::from);
    assert!(parse(&args).is_ok());
    let words = ["submit", "-b", "slurm", "plain.sh", "-N", "2"].map(str::to_owned);
    let run = |file| with_command(&words, file, "bash plain.sh");
    assert_eq!(
        run("plain.sh"),
        "herd submit -b slurm -N 2 -- bash plain.sh"
    );
    assert_eq!(run("other.sh"), "herd run -- bash plain.sh");
}

#[test]
fn i12_a_hint_holds_no_control_characters() {
    assert!(
        !said("herd run a \x1b[2Jb")
            .lines()
            .last()
            .unwrap()
            .contains('\x1b')
    );
}

#[test]
fn every_word_listed_is_refused_and_every_flag_named_exists() {
    let all = Cli::command();
    for (commands, flags, advice) in FLAGS {
        for command in *commands {
            let args: Vec<Arg> = all
                .find_subcommand(command)
                .unwrap()
                .get_arguments()
                .cloned()
                .collect();
            for flag in *flags {
                let long = flag.strip_prefix("--");
                let short = flag.strip_prefix('-').and_then(|rest| rest.chars().next());
                let taken = args.iter().any(|arg| match long {
                    Some(long) => arg.get_long() == Some(long),
                    None => arg.get_short() == short,
                });
                assert!(!taken, "{command} {flag}: {advice}");
            }
        }
    }
    for (names, _) in COMMANDS {
        assert!(
            names.iter().all(|name| all.find_subcommand(name).is_none()),
            "{names:?}"
        );
    }
}
