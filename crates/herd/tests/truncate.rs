//! Jobs that open `/dev/stdout` and `/dev/stderr` anew, which truncates the files behind them.

mod live;

use live::{Herd, assert_code, stderr, stdout};

/// Between two looks at a file nothing is told from a truncation with the same words and more, so
/// each pause is longer than that takes.
const IDIOM: &str = "echo important; sleep .5; echo done >/dev/stdout; echo w1 >&2; sleep .5; \
    echo w2 longer >/dev/stderr; sleep .5; echo same >/dev/stdout; sleep .5; \
    echo same >/dev/stdout; sleep .5; echo appended; sleep .5; echo last >/dev/stdout";

const OUT: [&str; 6] = ["important", "done", "same", "same", "appended", "last"];
const ERR: [&str; 2] = ["w1", "w2 longer"];

/// The lines of a stream that have a prefix, without it.
fn of<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.strip_prefix(prefix))
        .collect()
}

/// How often the events warn of this file.
fn warnings(herd: &Herd, of: &str) -> usize {
    let warned = |line: &&str| line.contains(r#""event":"warning""#) && line.contains(of);
    herd.events().lines().filter(warned).count()
}

#[test]
fn i7_one_rank_that_truncates_its_output_loses_none_that_was_followed() {
    let herd = Herd::new();
    let output = herd.run(&["run", "--", "bash", "-c", IDIOM]);
    assert_code(&output, 0);
    assert_eq!(of(&stdout(&output), ""), OUT);
    let text = stderr(&output);
    let words = of(&text, "w");
    assert_eq!(
        words
            .iter()
            .filter(|line| ["1", "2 longer"].contains(line))
            .count(),
        2
    );
    // Said once on the terminal, and once for each stream in the events.
    assert_eq!(
        text.matches("truncated its stdout.log").count(),
        1,
        "{text}"
    );
    assert!(text.contains("hint: write to >&1 or >&2"), "{text}");
    assert_eq!(warnings(&herd, "rank 0 truncated its stdout.log"), 1);
    assert_eq!(warnings(&herd, "rank 0 truncated its stderr.log"), 1);
    let logs = herd.run(&["logs", "last"]);
    let text = stdout(&logs);
    for line in OUT.iter().chain(&ERR) {
        assert!(text.lines().any(|shown| shown == *line), "{line}: {text}");
    }
}

#[test]
fn i7_ranks_and_setup_of_two_nodes_truncate_their_output() {
    let herd = Herd::new();
    let quoted = IDIOM.replace('\'', "''");
    let job = format!("nodes: 2\nsetup: {{run: '{quoted}', on: each}}\nrun: '{quoted}'\n");
    let file = herd.file("job.yaml", &job);
    let output = herd.run(&["run", &file.to_string_lossy()]);
    assert_code(&output, 0);
    let (out, err) = (stdout(&output), stderr(&output));
    for node in 0..2 {
        let prefix = format!("(node{node}, rank={node}) ");
        assert_eq!(of(&out, &prefix), OUT, "{out}");
        assert_eq!(of(&err, &prefix), ERR, "{err}");
        // Both streams of setup are one file.
        let setup = of(&err, &format!("(node{node}, setup) "));
        let wanted = [
            "important",
            "done",
            "w1",
            "w2 longer",
            "same",
            "same",
            "appended",
            "last",
        ];
        assert_eq!(setup, wanted, "{err}");
        assert_eq!(
            warnings(&herd, &format!("rank {node} truncated its stdout.log")),
            1
        );
        assert_eq!(
            warnings(
                &herd,
                &format!("setup on node {node} truncated its setup.log")
            ),
            1
        );
    }
    assert_eq!(err.matches("truncated its").count(), 1, "{err}");
}

#[test]
fn i7_an_attempt_at_a_task_that_truncates_its_log_is_shown() {
    let herd = Herd::new();
    let job = "array: 1-2\nretry: {max: 1, on: [\"exit:75\"], backoff: 1s}\nrun: |\n  \
        [ $HERD_ATTEMPT = 1 ] && { echo the first attempt says much; exit 75; }\n  \
        echo ok >/dev/stdout\n";
    let file = herd.file("job.yaml", job);
    let output = herd.run(&["run", &file.to_string_lossy()]);
    assert_code(&output, 0);
    let out = stdout(&output);
    for task in 1..=2 {
        let shown = of(&out, &format!("(task {task}) "));
        assert_eq!(shown, ["the first attempt says much", "ok"], "{out}");
    }
}
