//! Which of several failed ranks failed first.

use crate::result::RankResult;

/// An error file's time counts in whole seconds; it decides only where it is earlier by more.
const RESOLUTION_MS: u64 = 1000;

/// The rank that failed first, and not because herd stopped it: by the observed end, or by its own
/// error file where that is earlier by more than a second (worker-launcher specification §9, D12).
/// Among equals the lowest rank.
pub fn first_cause(results: &[RankResult]) -> Option<&RankResult> {
    let failed = results.iter().filter(|result| !result.end.is_success());
    failed.min_by_key(|result| (result.stopped, failure_time(result), result.rank))
}

fn failure_time(result: &RankResult) -> u64 {
    let told = result.error.as_ref().and_then(|error| error.timestamp_ms);
    match told {
        Some(told) if told > 0 && told + RESOLUTION_MS < result.ended_ms => told,
        _ => result.ended_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::ProcessEnd;

    fn rank(rank: u32, ended_ms: u64, stopped: bool) -> RankResult {
        RankResult {
            rank,
            node: 0,
            end: ProcessEnd::Exited(1),
            ended_ms,
            stopped,
            start_error: None,
            error: None,
            last_lines: Vec::new(),
            cpu_ms: 0,
            peak_kib: 0,
        }
    }

    #[test]
    fn row36_the_earliest_end_is_the_cause_and_stopped_ranks_come_last() {
        let results = [rank(0, 50, true), rank(1, 90, false), rank(2, 80, false)];
        assert_eq!(first_cause(&results).map(|r| r.rank), Some(2));
        assert_eq!(first_cause(&[]), None);
    }
}
