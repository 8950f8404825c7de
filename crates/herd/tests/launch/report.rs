//! What is told of failures: the report, and the error files that it takes its words from.

use std::fs;

use serde_json::Value;

use crate::fixture::{Launch, assert_status, err};

#[test]
pub(crate) fn rows_32_33_and_38_the_report_names_the_first_and_the_others() {
    let launch = Launch::new(
        "[ $RANK = 1 ] || exec sleep 600; until [ -e go ]; do touch go; done; kill -SEGV $$",
    );
    let output = launch.run(&["--nproc-per-node=2"]);
    assert_status(&output, 1);
    let text = err(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().any(|l| l.starts_with("====")), "{text}");
    assert!(text.contains("./worker FAILED"), "{text}");
    assert!(text.contains("exitcode  : -15"), "{text}");
    let root = text
        .split("Root Cause (first observed failure):")
        .nth(1)
        .unwrap();
    assert!(root.contains("rank      : 1 (local_rank: 1)"), "{root}");
    assert!(root.contains("exitcode  : -11"), "{root}");
    assert!(root.contains("(SIGSEGV)"), "{root}");
    assert!(
        root.contains("Signal 11 (SIGSEGV) received by PID"),
        "{root}"
    );
}

#[test]
pub(crate) fn rows_34_35_and_37_error_files_are_read_and_copied() {
    let told = r#"{"message": {"message": "E: at 1000", "extraInfo": {"py_callstack": "stack 1000", "timestamp": "1000"}}}"#;
    let launch = Launch::new(&format!("echo '{told}' > $TORCHELASTIC_ERROR_FILE; exit 4"));
    let parent = launch.path("parent.json");
    let output = launch
        .command(&[], &[])
        .env("TORCHELASTIC_ERROR_FILE", &parent)
        .output()
        .unwrap();
    assert_status(&output, 1);
    assert!(err(&output).contains("stack 1000"), "{}", err(&output));
    let copied: Value = serde_json::from_slice(&fs::read(parent).unwrap()).unwrap();
    assert_eq!(copied["message"]["message"], "E: at 1000");
    assert_eq!(copied["message"]["errorCode"], 4);

    let launch = Launch::new("echo '{not json' > $TORCHELASTIC_ERROR_FILE; exit 5");
    let output = launch.run(&[]);
    assert_status(&output, 1);
    assert!(err(&output).contains("exitcode  : 5"), "{}", err(&output));
}

#[test]
fn row_36_the_earlier_error_file_is_the_root_cause_over_a_lower_rank() {
    let told = |rank: &str, ago: u32| {
        format!(
            r#"echo '{{"message": {{"message": "E{rank}", "extraInfo": {{"py_callstack": "stack {rank}", "timestamp": "'$(($(date +%s) - {ago}))'"}}}}}}' > $TORCHELASTIC_ERROR_FILE"#
        )
    };
    let root = |text: &str| {
        let root = text.split("Root Cause (first observed failure):").nth(1);
        root.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    // Both failed of themselves; rank 2's record is older.
    let launch = Launch::new(&format!(
        "case $RANK in
         0) {}; echo >> ready; until [ -s ready2 ]; do sleep 0.02; done; exit 1;;
         2) {}; echo >> ready2; until [ -s ready ]; do sleep 0.02; done; trap 'exit 1' TERM; exit 1;;
         *) exec sleep 600;; esac",
        told("0", 20),
        told("2", 40)
    ));
    let output = launch.run(&["--nproc-per-node=3"]);
    assert_status(&output, 1);
    let text = err(&output);
    assert!(root(&text).contains("stack 2"), "{text}");
    // Rank 1 failed long ago and only its process lived on; the others' failure came of it.
    let launch = Launch::new(&format!(
        "[ $RANK = 1 ] && {{ {}; touch ready; exec sleep 600; }}
         until [ -e ready ]; do sleep 0.02; done; exit 3",
        told("1", 30)
    ));
    let output = launch.run(&["--nproc-per-node=2"]);
    assert!(root(&err(&output)).contains("stack 1"), "{}", err(&output));
    // A record that was made because the launcher asked for the end blames nobody.
    let launch = Launch::new(&format!(
        "[ $RANK = 0 ] && {{ trap '{}; exit 1' TERM; touch ready; while :; do sleep 0.02; done; }}
         until [ -e ready ]; do sleep 0.02; done; exit 3",
        told("0", 0).replace('\'', "'\\''")
    ));
    let output = launch.run(&["--nproc-per-node=2"]);
    assert!(
        root(&err(&output)).contains("exitcode  : 3"),
        "{}",
        err(&output)
    );
}
