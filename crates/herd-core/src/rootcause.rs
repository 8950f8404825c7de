//! Which rank failed first, out of the ends of all ranks.
//!
//! The first failure usually ends the others: they lose a peer, or herd stops them. The blame
//! belongs to the earliest failure that herd did not cause, by the time its end was observed. A
//! rank's own record of its error counts only where it is clearly earlier than its end, since it
//! has whole seconds and the clock of another machine. A rank that herd stopped is excused, unless its
//! record is clearly earlier than the first failure that made herd stop it: it had failed before, and
//! only its process lived on.

use crate::result::RankResult;

/// How much earlier than the observed end an error file must be before it is believed.
const CLEARLY_EARLIER_MS: u64 = 1000;

/// The failure that came first, where any rank failed.
pub fn first_cause(ranks: &[RankResult]) -> Option<&RankResult> {
    let of_itself = |rank: &&RankResult| failed(rank) && !rank.stopped;
    let first_failure = ranks.iter().filter(of_itself).map(failure_ms).min();
    let excused = |rank: &RankResult| {
        rank.stopped
            && !recorded_ms(rank)
                .zip(first_failure)
                .is_some_and(|(recorded, first)| {
                    recorded.saturating_add(CLEARLY_EARLIER_MS) < first
                })
    };
    ranks.iter().filter(|rank| failed(rank)).min_by_key(|rank| {
        let recorded = recorded_ms(rank);
        (
            excused(rank),
            failure_ms(rank),
            recorded.unwrap_or(u64::MAX),
            rank.rank,
        )
    })
}

/// Whether the rank ended badly or never ran.
pub fn failed(rank: &RankResult) -> bool {
    rank.start_error.is_some() || !rank.end.is_success()
}

/// When it failed: its observed end, unless its own record is clearly earlier.
fn failure_ms(rank: &RankResult) -> u64 {
    match recorded_ms(rank) {
        Some(recorded) if recorded.saturating_add(CLEARLY_EARLIER_MS) < rank.ended_ms => {
            // Whole seconds are cut off: the error may be as late as the end of its second.
            let rounding = if recorded.is_multiple_of(1000) {
                999
            } else {
                0
            };
            recorded.saturating_add(rounding).min(rank.ended_ms)
        }
        Some(_) | None => rank.ended_ms,
    }
}

fn recorded_ms(rank: &RankResult) -> Option<u64> {
    let recorded = rank.error.as_ref().and_then(|error| error.timestamp_ms);
    // Who has no clock writes 0.
    recorded.filter(|recorded| *recorded > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::ProcessEnd;
    use crate::result::RankError;

    fn ended(rank: u32, end: ProcessEnd, ended_ms: u64) -> RankResult {
        RankResult::ended(rank, 0, end, ended_ms)
    }

    fn recorded(rank: u32, ended_ms: u64, timestamp_ms: u64) -> RankResult {
        let message = "ValueError: x".to_owned();
        let error = RankError {
            message,
            traceback: None,
            timestamp_ms: Some(timestamp_ms),
        };
        RankResult {
            error: Some(error),
            ..ended(rank, ProcessEnd::Exited(1), ended_ms)
        }
    }

    fn blamed(ranks: &[RankResult]) -> Option<u32> {
        first_cause(ranks).map(|rank| rank.rank)
    }

    #[test]
    fn nobody_is_blamed_when_all_went_well() {
        assert_eq!(blamed(&[]), None);
        assert_eq!(blamed(&[ended(0, ProcessEnd::Exited(0), 5)]), None);
    }

    #[test]
    fn row36_the_earlier_end_wins_over_the_lower_rank() {
        let ranks = [
            ended(0, ProcessEnd::Exited(1), 20),
            ended(3, ProcessEnd::Exited(2), 10),
        ];
        assert_eq!(blamed(&ranks), Some(3));
        let tie = [
            ended(3, ProcessEnd::Exited(2), 10),
            ended(1, ProcessEnd::Exited(1), 10),
        ];
        assert_eq!(blamed(&tie), Some(1));
    }

    #[test]
    fn d12_ranks_that_herd_stopped_come_last() {
        let stopped = RankResult {
            stopped: true,
            ..ended(0, ProcessEnd::Signaled(15), 5)
        };
        assert_eq!(
            blamed(&[stopped.clone(), ended(1, ProcessEnd::Exited(1), 9)]),
            Some(1)
        );
        assert_eq!(blamed(&[stopped]), Some(0));
    }

    #[test]
    fn row36_a_stopped_rank_with_a_clearly_older_record_was_first() {
        let stopped = |ended_ms, timestamp_ms| RankResult {
            stopped: true,
            ..recorded(1, ended_ms, timestamp_ms)
        };
        let first = ended(0, ProcessEnd::Exited(1), 20_000);
        assert_eq!(blamed(&[first.clone(), stopped(21_000, 15_000)]), Some(1));
        // Its record is of the end that was asked for.
        assert_eq!(blamed(&[first.clone(), stopped(30_000, 20_000)]), Some(0));
        assert_eq!(blamed(&[first, stopped(21_000, 19_500)]), Some(0));
        // As old as that of the rank that made herd stop it.
        let first = recorded(2, 20_000, 15_000);
        assert_eq!(blamed(&[first, stopped(21_000, 15_000)]), Some(2));
        let first = ended(0, ProcessEnd::Exited(1), 20_000);
        assert_eq!(blamed(&[first, stopped(21_000, 0)]), Some(0));
        // Nobody failed of itself, so nobody can be earlier than that.
        assert_eq!(blamed(&[stopped(21_000, 15_000)]), Some(1));
    }

    #[test]
    fn d12_whole_seconds_do_not_blame_the_wrong_rank() {
        // Rank 1 failed at 10.2 s without a file; rank 0 a moment later, its file says 10 s.
        let ranks = [
            recorded(0, 10_300, 10_000),
            ended(1, ProcessEnd::Signaled(9), 10_200),
        ];
        assert_eq!(blamed(&ranks), Some(1));
        // Rank 0 said so two seconds before its end: it was first.
        let ranks = [
            recorded(0, 12_500, 10_000),
            ended(1, ProcessEnd::Exited(1), 11_800),
        ];
        assert_eq!(blamed(&ranks), Some(0));
        // Its second had not ended when rank 1 failed.
        let ranks = [
            recorded(0, 12_500, 10_000),
            ended(1, ProcessEnd::Exited(1), 10_400),
        ];
        assert_eq!(blamed(&ranks), Some(1));
    }

    #[test]
    fn error_files_break_ties() {
        let ranks = [
            ended(0, ProcessEnd::Exited(1), 10_500),
            recorded(1, 10_500, 10_000),
            recorded(2, 10_500, 9_900),
        ];
        assert_eq!(blamed(&ranks), Some(2));
    }

    #[test]
    fn a_rank_that_never_ran_can_be_the_cause() {
        let mut never = ended(2, ProcessEnd::Exited(127), 1);
        never.start_error = Some("no such file".to_owned());
        assert_eq!(
            blamed(&[ended(0, ProcessEnd::Exited(1), 3), never]),
            Some(2)
        );
    }
}
