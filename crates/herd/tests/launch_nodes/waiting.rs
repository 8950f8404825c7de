//! Nodes wait for others: what is said meanwhile, and what ends the wait.

use std::fs;

use herd_testing::within;

use crate::nodes::{DEADLINE, Nodes, json, printed};
use crate::{FOUR, PLACE, all_end};

#[test]
fn row_28_a_signal_while_nodes_are_waited_for_ends_the_launcher_with_an_error_file() {
    let test = Nodes::new("touch started");
    let nowhere = vec![
        "--nnodes=2".to_owned(),
        "--rdzv-backend=c10d".to_owned(),
        "--rdzv-endpoint=no-such-host.invalid".to_owned(),
    ];
    for (index, flags) in [test.fixed(0), test.fixed(1), test.c10d("2"), nowhere]
        .iter()
        .enumerate()
    {
        for (name, number) in [("TERM", 15), ("INT", 2)] {
            let error_file = test.path(&format!("{index}{name}.json"));
            let mut command = test.command(flags, &["--rdzv-conf=join_timeout=600"]);
            command.env("TORCHELASTIC_ERROR_FILE", &error_file);
            let mut node = test.start("waiting", &mut command);
            // It watches for signals before it waits.
            within(DEADLINE, "the launcher runs", || {
                let handles = |pid: &i32| {
                    let status = fs::read_to_string(format!("/proc/{pid}/status"));
                    let status = status.unwrap_or_default();
                    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
                    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
                    caught.is_some_and(|mask| mask & (1 << (number - 1)) != 0)
                };
                node.inner().iter().any(handles)
            });
            node.signal(&format!("-{name}"));
            node.ends(1);
            let said = json(&error_file);
            let message = said["message"]["message"].as_str().unwrap();
            assert!(
                message.starts_with("SignalException: Process "),
                "{message}"
            );
            assert!(
                message.ends_with(&format!(" got signal: {number}")),
                "{message}"
            );
            let time = said["message"]["extraInfo"]["timestamp"].as_str().unwrap();
            assert!(time.parse::<u64>().is_ok(), "{time}");
        }
    }
    assert!(!test.path("started").exists());
}

#[test]
fn a_missing_node_is_named_after_ten_seconds_and_may_still_come() {
    let test = Nodes::new(PLACE);
    let more = ["--nproc-per-node=2"];
    let second = test.start("second", &mut test.command(&test.fixed(1), &more));
    second.says("waiting for 10 s: connecting to ");
    let first = test.start("first", &mut test.command(&test.fixed(0), &more));
    let mut both = [first, second];
    all_end(&mut both, 0);
    assert_eq!(printed(&both), FOUR);

    let test = Nodes::new(PLACE);
    let first = test.start("first", &mut test.command(&test.fixed(0), &more));
    first.says("1 of 2 nodes are at ");
    first.says("missing: node rank 1 (giving up after 900 s)");
    let second = test.start("second", &mut test.command(&test.fixed(1), &more));
    let mut both = [first, second];
    all_end(&mut both, 0);
    assert_eq!(printed(&both), FOUR);
}

#[test]
fn row_48_one_that_waits_for_more_nodes_than_it_needs_says_until_when() {
    let test = Nodes::new(PLACE);
    let conf = "--rdzv-conf=last_call_timeout=11";
    let mut node = test.start("first", &mut test.command(&test.c10d("1:2"), &[conf]));
    node.says("which is enough: they begin once nobody else has come for 11 s");
    node.ends(0);
    let said = node.err();
    assert!(said.contains("1 of 1 to 2 nodes are at "), "{said}");
    // Where there are enough nobody gives up.
    assert!(!said.contains("giving up"), "{said}");
}

#[test]
fn nodes_that_do_not_come_in_time_end_the_others_with_the_reason() {
    let test = Nodes::new("touch started");
    let conf = "--rdzv-conf=timeout=1,join_timeout=1";
    for flags in [test.fixed(0), test.fixed(1), test.c10d("2")] {
        let error_file = test.path("error.json");
        let mut command = test.command(&flags, &[conf]);
        command.env("TORCHELASTIC_ERROR_FILE", &error_file);
        let mut node = test.start("waiting", &mut command);
        node.ends(1);
        node.says("not complete within 1 s");
        let message = json(&error_file)["message"]["message"].to_string();
        assert!(message.contains("not complete within 1 s"), "{message}");
        fs::remove_file(error_file).unwrap();
    }
    assert!(!test.path("started").exists());
}
