//! The budget of a poll: 5,000 jobs read within 60 ms of CPU.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use herd_slurm::outcome::Condition;
use herd_slurm::squeue;

/// Five times the budget, for the fastest of some runs: a deadline, no measurement.
const DEADLINE: Duration = Duration::from_millis(60 * 5);

#[test]
fn a_poll_of_5000_jobs_is_read_within_its_budget() {
    let mut text = String::new();
    for job in 0..5000 {
        let us = '\u{1f}';
        writeln!(
            text,
            "{job}{us}{job}{us}N/A{us}PENDING{us}1796039686{us}1827575686{us}N/A{us}4{us}{us}\
             QOSMaxWallDurationPerJobLimit\u{1e}"
        )
        .unwrap();
    }
    let fastest = (0..5).map(|_| read(&text)).min().unwrap();
    assert!(fastest < DEADLINE, "{fastest:?}");
    println!("{fastest:?} for {} bytes", text.len());
}

fn read(text: &str) -> Duration {
    let begun = Instant::now();
    let rows = squeue::parse(text);
    let waiting = rows
        .iter()
        .map(|row| Condition::of(&row.state, &row.reason, None))
        .filter(|condition| matches!(condition, Condition::Pending { .. }))
        .count();
    let took = begun.elapsed();
    assert_eq!(waiting, 5000);
    took
}
