//! `doctor`, `completions`, `man`, `gc`.

use herd_core::state::JobState;

use crate::fixture::Bench;

#[test]
fn doctor_checks_this_machine() {
    let bench = Bench::new();
    let answer = bench.ask(&["doctor", "-o", "json"]);
    let findings: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
    let names: Vec<&str> = findings
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["check"].as_str().unwrap())
        .collect();
    for check in [
        "home", "disk", "clock", "kernel", "cgroup", "cpus", "gpus", "python3", "mpirun",
    ] {
        assert!(names.contains(&check), "{check}: {names:?}");
    }
    assert!(answer.code == 0 || answer.code == 1);
}

#[test]
fn doctor_fails_on_a_home_that_cannot_be_used() {
    let bench = Bench::new();
    bench.file("home", b"a file");
    let answer = bench.ask(&["doctor"]);
    assert_eq!(answer.code, 1, "{}", answer.out);
    assert!(answer.out.contains("HERD_HOME"), "{}", answer.out);
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let answer = Bench::new().ask(&["completions", shell]);
        assert_eq!(answer.code, 0);
        assert!(
            answer.out.contains("herd") && answer.out.len() > 1000,
            "{shell}"
        );
    }
}

#[test]
fn man_pages_one_per_command() {
    let bench = Bench::new();
    assert!(bench.ask(&["man"]).out.contains(".TH herd 1"));
    assert_eq!(bench.ask(&["man", "pages"]).code, 0);
    let mut pages: Vec<String> = std::fs::read_dir(bench.dir.path().join("pages"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    assert_eq!(pages.len(), 21, "{pages:?}");
    assert!(pages.contains(&"herd-run.1".to_owned()));
    let run = std::fs::read_to_string(bench.dir.path().join("pages/herd-run.1")).unwrap();
    assert!(run.contains("herd run") && run.contains("nodes"), "{run}");
}

#[test]
fn gc_removes_ended_jobs_alone() {
    let bench = Bench::new();
    bench.job("running");
    let done = bench.job("done");
    Bench::finish(&done, JobState::Succeeded, None, 0);
    let newest = bench.failed_job("newest");
    assert_eq!(bench.ask(&["gc", "-o", "id"]).out, "");
    let nothing = bench.ask(&["gc"]);
    assert_eq!(
        (nothing.out.as_str(), nothing.err.as_str()),
        ("", "herd: removed 0 jobs (0 B)\n")
    );
    let args = ["gc", "--older-than", "1ms", "--keep", "1", "-o", "name"];
    let dry = bench.ask(&[&args[..], &["--dry-run"]].concat());
    assert_eq!(dry.out.trim(), done.id().to_string());
    assert!(done.path().exists());
    assert_eq!(bench.ask(&args).out.trim(), done.id().to_string());
    assert!(!done.path().exists() && newest.path().exists());
    assert_eq!(bench.ask(&["ls", "-o", "name"]).out.lines().count(), 2);
    assert_eq!(bench.ask(&["gc", "--older-than", "soon"]).code, 2);
}

#[test]
fn surroundings_without_a_home_are_explained() {
    let bench = Bench::new();
    let hint = "hint: choose another one with `--home DIR` or the variable HERD_HOME\n";
    bench.file("file", b"");
    for home in [None, Some("relative"), Some("file")] {
        let mut herd = bench.herd();
        herd.env_remove("HERD_HOME")
            .env_remove("XDG_STATE_HOME")
            .env_remove("HOME");
        if let Some(home) = home {
            herd.env("HOME", home);
        }
        let output = herd.arg("ls").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.ends_with(hint), "{said}");
    }
    assert!(!bench.dir.path().join("relative").exists());
    let answer = bench.ask(&["--home", "file", "run", "--", "true"]);
    assert_eq!(answer.code, 125);
    assert!(answer.err.ends_with(hint), "{}", answer.err);
}

#[test]
fn a_current_directory_that_is_gone_is_explained() {
    let bench = Bench::new();
    std::fs::create_dir(bench.dir.path().join("gone")).unwrap();
    let script = format!(
        "cd gone && rmdir ../gone && {} run -- true",
        env!("CARGO_BIN_EXE_herd")
    );
    let mut shell = assert_cmd::Command::new("sh");
    let home = bench.dir.path().join("home");
    shell.current_dir(bench.dir.path()).env("HERD_HOME", home);
    let output = shell.args(["-c", &script]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(
        said.ends_with("hint: it may be gone: change into a directory that exists\n"),
        "{said}"
    );
}

/// Real bash, with the words of a command line as it gives them to a completion.
#[test]
fn bash_completes_what_names_a_job() {
    let bench = Bench::new();
    bench.failed_job("digits");
    bench.job("nap");
    bench.job("$(touch pwned)");
    let script = bench.ask(&["completions", "bash"]).out;
    bench.file("herd.bash", script.as_bytes());
    let completed = |words: &[&str]| {
        let ask = "source ./herd.bash; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                   _herd_or_jobs \"$1\" \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; \
                   printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut bash = std::process::Command::new("bash");
        herd_testing::surroundings::remove(&mut bash);
        let output = bash
            .args(["--norc", "-c", ask, "bash", env!("CARGO_BIN_EXE_herd")])
            .args(words)
            .current_dir(bench.dir.path())
            .env("HERD_HOME", bench.dir.path().join("home"))
            .output()
            .unwrap();
        assert!(output.stderr.is_empty(), "{output:?}");
        let shown = String::from_utf8(output.stdout).unwrap();
        shown.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let home = bench.dir.path().join("home");
    for (words, offered) in [
        (&["status", ""][..], &["last", "digits", "nap"][..]),
        (&["status", "di"], &["digits"]),
        (&["logs", "-f", "--rank", "0", "na"], &["nap"]),
        (&["wait", "digits", "na"], &["nap"]),
        (&["cancel", ""], &["last", "nap"]),
        (&["--home", home.to_str().unwrap(), "why", "d"], &["digits"]),
        (&["logs", "--fol"], &["--follow"]),
        (&["status", "--output", "js"], &["json"]),
        (&["stat"], &["status"]),
    ] {
        let found = completed(words);
        for word in offered {
            assert!(
                found.iter().any(|other| other == word),
                "{words:?}: {found:?}"
            );
        }
    }
    // Short ids too; those that have ended are not offered to `cancel`, nor anything after `--`.
    assert_eq!(completed(&["status", ""]).len(), 1 + 2 + 3);
    assert_eq!(completed(&["cancel", ""]).len(), 1 + 1 + 2);
    assert_eq!(completed(&["exec", "nap", "--", "dig"]), [""]);
    assert!(!bench.dir.path().join("pwned").exists());
}
