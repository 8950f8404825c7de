//! A home whose disk is full: jobs end with a reason, nobody waits for ever, and the next ones run.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use herd_testing::within;
use serde_json::json;

use crate::case;
use crate::lab::Lab;
use crate::user::{DEADLINE, User};

pub(crate) fn cases() -> Vec<crate::Case> {
    vec![case!(
        full::i6_i5_a_full_home_ends_jobs_and_the_next_ones_run
    )]
}

/// Takes all the space that is left.
fn fill(home: &Path) {
    let mut options = File::options();
    let mut file = options
        .create(true)
        .append(true)
        .open(home.join("filler"))
        .unwrap();
    for size in [64 * 1024, 1024, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

fn free(home: &Path) {
    fs::remove_file(home.join("filler")).unwrap();
}

pub(crate) fn i6_i5_a_full_home_ends_jobs_and_the_next_ones_run(lab: &Lab) {
    let _shared = lab.shared();
    let home = lab.small();
    let user = User::at_home(lab, home);
    let dir = user.path("").display().to_string();
    let waiting = |name: &str| {
        format!("touch {dir}/{name}-$HERD_RANK; while [ ! -e {dir}/go-{name} ]; do sleep 0.1; done")
    };
    // Before there is a job.
    fill(home);
    let file = user.file("job.yaml", json!({"run": "true"}));
    let refused = user.ask(&["submit", &file]);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.err.contains("hint:"), "{refused:?}");
    free(home);
    // It is the rank's own error where its output has no room.
    let writes = format!(
        "{}; head -c 16000000 /dev/zero || exit 5",
        waiting("writes")
    );
    let writes = user.submit(json!({"nodes": 2, "run": writes}));
    for rank in 0..2 {
        user.await_file(&format!("writes-{rank}"));
    }
    user.touch("go-writes");
    writes.ends("FAILED", 5);
    writes.gone();
    fs::remove_dir_all(&writes.dir).unwrap();
    // Others fill it while a job runs, and another one starts.
    let runs = user.submit(json!({"nodes": 2, "run": waiting("runs")}));
    let starts =
        user.submit(json!({"nodes": 2, "run": "true", "after": [{"job": runs.id, "when": "any"}]}));
    for rank in 0..2 {
        user.await_file(&format!("runs-{rank}"));
    }
    fill(home);
    user.touch("go-runs");
    within(DEADLINE, "the end of the other one", || {
        // Whatever becomes free is taken at once.
        fill(home);
        let said = starts.in_slurm();
        ["COMPLETED", "FAILED", "CANCELLED"]
            .iter()
            .any(|state| said.contains(&format!("JobState={state}")))
    });
    starts.gone();
    runs.gone();
    // What an attempt has come to is written even so; the rest may be whoever looks next.
    free(home);
    assert_eq!(runs.wait(), 0, "{}", runs.story());
    // Where it has found a little room it has run.
    let code = starts.wait();
    let result = starts.record("result.json");
    assert!([0, 125].contains(&code), "{result}\n{}", starts.story());
    let next = user.submit(json!({"nodes": 2, "run": "echo ran"}));
    next.ends("SUCCEEDED", 0);
    next.gone();
    for entry in fs::read_dir(home).unwrap().flatten() {
        drop(fs::remove_dir_all(entry.path()));
    }
}
