//! What every job's directory has to hold, however the job ended.

use std::fs;
use std::path::Path;

/// Terminal events in the text of an attempt's `events.jsonl`.
pub fn ends(events: &str) -> usize {
    let terminal = |line: &&str| {
        line.contains("\"event\":\"attempt\"")
            && ["SUCCEEDED", "FAILED", "CANCELLED", "PREEMPTED"]
                .iter()
                .any(|state| line.contains(&format!("\"state\":\"{state}\"")))
    };
    events.lines().filter(terminal).count()
}

/// I1: no attempt of the job in this directory has ended twice. One whose driver died has its end from
/// somebody else, and no event.
#[track_caller]
pub fn assert_one_end_each(job: &Path) {
    let attempts = fs::read_dir(job.join("attempts")).into_iter().flatten();
    for attempt in attempts.flatten() {
        let events = fs::read_to_string(attempt.path().join("events.jsonl")).unwrap_or_default();
        assert!(ends(&events) <= 1, "{}\n{events}", attempt.path().display());
    }
}
