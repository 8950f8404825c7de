//! Jobs that ended, from the accounting database: `sacct`.
//!
//! It lags behind by a second or more and then still shows the state before; the queue is asked
//! first. Each attempt of a requeued job is a row of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::exit::ExitCode;
use crate::gres;
use crate::job::{self, Id};
use crate::state::State;
use crate::text::{FIELD, fields, given, number};
use crate::time::Time;

/// No text of users among them: `sacct` has no mark for the end of a record.
const FIELDS: &str = "JobIDRaw,JobID,State,ExitCode,Submit,Start,End,ElapsedRaw,AllocTRES,NodeList";

/// One attempt of a job or task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The job, with the index where it is a task.
    pub id: Id,
    /// Number of this job or task alone.
    pub raw: u32,
    /// How it ended, or what it was doing when that was last recorded.
    pub state: State,
    /// The user who cancelled it.
    pub cancelled_by: Option<u32>,
    /// How its batch script ended.
    pub exit: Option<ExitCode>,
    /// When it was submitted, or queued again.
    pub submit: Option<Time>,
    /// When it began.
    pub start: Option<Time>,
    /// When it ended.
    pub end: Option<Time>,
    /// Seconds that it ran, without those in which it was suspended.
    pub elapsed: u64,
    /// GPUs that it had.
    pub gpus: u64,
    /// Its nodes, in Slurm's short form.
    pub node_list: Option<String>,
}

fn call(more: impl IntoIterator<Item = String>) -> Call {
    // -D: every attempt. -X: jobs and not their steps.
    let delimiter = format!("--delimiter={FIELD}");
    let fixed = ["-n", "-P", "-X", "-D", &delimiter, "-o", FIELDS].map(str::to_owned);
    Call::new("sacct", fixed.into_iter().chain(more))
}

/// Asks for these jobs and arrays, whenever they ran. Numbers are used again after some years, so
/// rows older than the submission have to be left out.
pub fn job_calls(jobs: &[u32]) -> Vec<Call> {
    job::lists(jobs)
        .into_iter()
        .map(|list| call([format!("--jobs={list}")]))
        .collect()
}

/// Looks for a job by its name among those of the last `seconds`.
pub fn find_call(user: &str, name: &str, seconds: u64) -> Call {
    call([
        format!("--user={user}"),
        format!("--name={name}"),
        format!("--starttime=now-{seconds}seconds"),
    ])
}

/// The rows of the output, in its order.
pub fn parse(output: &str) -> Vec<Row> {
    // A last line without its end was cut off.
    let whole = output.rfind('\n').map_or("", |end| &output[..end]);
    whole.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Row> {
    let [
        raw,
        id,
        state,
        exit,
        submit,
        start,
        end,
        elapsed,
        tres,
        node_list,
    ] = fields(line)?;
    let raw: u32 = raw.parse().ok()?;
    Some(Row {
        // `34_[2-9%2]`: the part of an array that has not begun.
        id: Id::parse(id).unwrap_or_else(|| Id::job(raw)),
        raw,
        state: State::parse(state),
        cancelled_by: state
            .split_once(" by ")
            .and_then(|(_, user)| user.trim().parse().ok()),
        exit: ExitCode::parse(exit),
        submit: Time::parse(submit),
        start: Time::parse(start),
        end: Time::parse(end),
        elapsed: number(elapsed).unwrap_or(0),
        gpus: gres::tres(tres, "gres/gpu").unwrap_or(0),
        node_list: given(node_list).map(str::to_owned),
    })
}

/// The newest attempt of each job and task: the one that says whether it is over, once the queue
/// has forgotten the job. Before that it says nothing about the end (I3): a job that was preempted or
/// lost a node is queued again, and 22.05 has no row for the attempt that waits.
pub fn latest(rows: &[Row]) -> BTreeMap<Id, &Row> {
    let mut latest: BTreeMap<Id, &Row> = BTreeMap::new();
    for row in rows {
        let newer = |old: &&Row| (row.submit, row.start) >= (old.submit, old.start);
        if latest.get(&row.id).is_none_or(newer) {
            latest.insert(row.id, row);
        }
    }
    latest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(id: &str, state: &str, submit: u32) -> String {
        format!("7|{id}|{state}|0:0|{submit}|Unknown|Unknown|0||None assigned\n")
            .replace('|', "\u{1f}")
    }

    #[test]
    fn the_newest_attempt_counts() {
        let text = line("7", "PREEMPTED", 10)
            + &line("7", "CANCELLED by 1000", 30)
            + &line("7", "NODE_FAIL", 20);
        let rows = parse(&text);
        let row = latest(&rows)[&Id::job(7)];
        assert_eq!(
            (&row.state, row.cancelled_by),
            (&State::Cancelled, Some(1000))
        );
        assert_eq!(rows.len(), 3);
        assert_eq!(parse(&line("7_[2-9%2]", "PENDING", 1))[0].id, Id::job(7));
    }

    #[test]
    fn i3_a_line_that_was_cut_off_says_nothing() {
        let whole = line("7", "COMPLETED", 10);
        for end in 0..whole.len() - 1 {
            assert!(parse(&whole[..end]).is_empty(), "{end}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9A-Za-z_ \u{1f}\né=/,]{0,120}") {
            let rows = parse(&text);
            drop(latest(&rows));
        }
    }
}
