//! `--event-log-handler`: one JSON object a line, from the start of the launch to its end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::fixture::{Launch, assert_status, err, out};

fn events(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect()
}

#[test]
fn a_file_has_every_event_of_a_launch_with_a_restart() {
    let launch = Launch::new(
        "echo $TORCHELASTIC_RUN_ID; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && exit 7; exec sleep 600",
    );
    let output = launch
        .command(
            &[
                "--nproc-per-node=2",
                "--max-restarts=2",
                "--rdzv-id=job",
                "--event-log-handler=file:events.jsonl",
            ],
            &["--password=hunter2"],
        )
        .env("HERD_RDZV_KEY", "secret-key")
        .output()
        .unwrap();
    assert_status(&output, 0);
    let path = launch.path("events.jsonl");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        !text.contains("hunter2") && !text.contains("secret-key"),
        "{text}"
    );
    let events = events(&text);
    assert_eq!(
        kinds(&events),
        [
            "launch-started",
            "rendezvous-completed",
            "attempt-started",
            "worker-started",
            "worker-started",
            "worker-ended",
            "worker-ended",
            "restarting",
            "rendezvous-completed",
            "attempt-started",
            "worker-started",
            "worker-started",
            "worker-ended",
            "worker-ended",
            "launch-ended",
        ]
    );
    // The id that workers see, which one node alone makes itself.
    let told = out(&output);
    let run_id = told.lines().next().unwrap();
    assert!(events.iter().all(|event| event["run_id"] == run_id));
    let times: Vec<u64> = events
        .iter()
        .map(|event| event["time_ms"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted());
    assert_eq!(
        (&events[0]["script"], &events[0]["workers"]),
        (&"./worker".into(), &2.into())
    );
    assert_eq!(events[1]["world_size"], 2);
    let first = &events[5];
    assert_eq!(
        (&first["rank"], &first["code"], &first["stopped"]),
        (&1.into(), &7.into(), &false.into())
    );
    assert_eq!(first["pid"], events[4]["pid"]);
    let second = &events[6];
    assert_eq!(
        (&second["rank"], &second["signal"], &second["stopped"]),
        (&0.into(), &15.into(), &true.into())
    );
    assert_eq!(
        (&events[7]["attempt"], &events[7]["left"]),
        (&1.into(), &1.into())
    );
    assert_eq!(events[14]["code"], 0);
}

#[test]
fn the_console_is_standard_error_and_a_hang_is_an_event() {
    let launch = Launch::new("exec sleep 600");
    let output = launch.run(&["--event-log-handler", "console", "--hang-timeout=1s"]);
    assert_status(&output, 1);
    assert_eq!(out(&output), "");
    let events = events(&err(&output));
    let hang = events
        .iter()
        .find(|event| event["event"] == "hang-detected")
        .unwrap();
    assert_eq!(hang["timeout_ms"], 1000);
    let worker = &hang["workers"][0];
    assert!(worker["silent_ms"].as_u64().unwrap() >= 1000);
    assert_eq!(worker["processes"][0]["program"], "sleep");
    assert_eq!(kinds(&events).last(), Some(&"launch-ended"));
}

#[test]
fn nothing_is_written_by_default_and_other_handlers_are_refused() {
    let launch = Launch::new("true");
    for flags in [&[][..], &["--event-log-handler=null"]] {
        assert_eq!(err(&launch.run(flags)), "");
    }
    let output = launch.run(&["--event-log-handler=my_plugin"]);
    assert_status(&output, 2);
    assert!(err(&output).contains("hint:"), "{}", err(&output));
    let output = launch.run(&["--event-log-handler=file:/no/such/place"]);
    assert_status(&output, 1);
    assert!(err(&output).contains("hint:"), "{}", err(&output));
}

#[test]
fn a_pipe_that_nobody_reads_is_no_log_and_stops_nobody() {
    let launch = Launch::new("echo never");
    nix::unistd::mkfifo(&launch.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let output = launch.run(&["--event-log-handler=file:pipe"]);
    assert_status(&output, 1);
    assert_eq!(out(&output), "");
    assert!(err(&output).contains("a pipe a reader"), "{}", err(&output));
}
