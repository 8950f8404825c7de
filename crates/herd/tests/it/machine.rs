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
    assert_eq!(pages.len(), 17, "{pages:?}");
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
