//! The queue: one call for all jobs (`squeue`), and starts that Slurm expects (`squeue --start`).
//!
//! Jobs that ended stay in it for `MinJobAge` (300 s). A job that is missing has not ended (I3).

use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::job::{self, Id};
use crate::reason::Reason;
use crate::state::State;
use crate::text::{self, fields, given, number, records};
use crate::time::Time;

/// `%r` stands last: newer releases put words of their own into it.
const LETTERS: [&str; 10] = ["%A", "%F", "%K", "%T", "%V", "%S", "%e", "%D", "%N", "%r"];

/// One job, or one task of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The job, with the index where it is a task.
    pub id: Id,
    /// Number of this job or task alone; a waiting task has the array's.
    pub raw: u32,
    /// What it is doing.
    pub state: State,
    /// Why.
    pub reason: Reason,
    /// When it was submitted, or queued again.
    pub submit: Option<Time>,
    /// When it began; for a waiting job when it may begin, as far as Slurm expects.
    pub start: Option<Time>,
    /// When it ended, or its time limit passes.
    pub end: Option<Time>,
    /// Nodes it has or asks for.
    pub nodes: u32,
    /// The nodes it has, in Slurm's short form.
    pub node_list: Option<String>,
}

fn call(more: impl IntoIterator<Item = String>) -> Call {
    let format = text::record_format(&LETTERS);
    let fixed = ["-h", "-a", "-r", "-t", "all", "-o", &format].map(str::to_owned);
    Call::new("squeue", fixed.into_iter().chain(more))
}

/// Asks for these jobs and arrays; one call unless they are tens of thousands. With a single number
/// that Slurm has forgotten it fails with "Invalid job id", with several it leaves that one out.
pub fn poll_calls(jobs: &[u32]) -> Vec<Call> {
    job::lists(jobs)
        .into_iter()
        .map(|list| call([format!("--jobs={list}")]))
        .collect()
}

/// Asks for the jobs of one user, or of all.
pub fn all_call(user: Option<&str>) -> Call {
    call(user.map(|user| format!("--user={user}")))
}

/// Looks for a job by its name, which herd makes unique: after a submission without an answer.
pub fn find_call(user: &str, name: &str) -> Call {
    call([format!("--user={user}"), format!("--name={name}")])
}

/// Whether `squeue` failed only because it knows none of the jobs.
pub fn is_unknown_job(errors: &str) -> bool {
    errors.contains("Invalid job id")
}

/// The rows of the output. A record that is no row is left out; it says nothing about any job.
pub fn parse(output: &str) -> Vec<Row> {
    records(output).filter_map(row).collect()
}

fn row(record: &str) -> Option<Row> {
    let [
        raw,
        array,
        task,
        state,
        submit,
        start,
        end,
        nodes,
        node_list,
        reason,
    ] = fields(record)?;
    let raw = raw.parse().ok()?;
    let task: Option<u32> = number(task);
    Some(Row {
        id: Id {
            job: if task.is_some() {
                array.parse().ok()?
            } else {
                raw
            },
            task,
        },
        raw,
        state: State::parse(state),
        reason: Reason::parse(reason),
        submit: Time::parse(submit),
        start: Time::parse(start),
        end: Time::parse(end),
        nodes: number(nodes).unwrap_or(0),
        node_list: given(node_list).map(str::to_owned),
    })
}

/// When Slurm expects to start a waiting job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// Number of the job or array.
    pub job: u32,
    /// When; none where Slurm has not worked it out.
    pub start: Option<Time>,
    /// On which nodes.
    pub nodes: Option<String>,
    /// What it waits for.
    pub reason: Reason,
}

/// Asks for estimates.
pub fn start_calls(jobs: &[u32]) -> Vec<Call> {
    let format = text::record_format(&["%A", "%S", "%Y", "%r"]);
    job::lists(jobs)
        .into_iter()
        .map(|list| {
            let jobs = format!("--jobs={list}");
            Call::new("squeue", ["-h", "-a", "--start", "-o", &format, &jobs])
        })
        .collect()
}

/// The estimates of the output.
pub fn parse_start(output: &str) -> Vec<Estimate> {
    records(output)
        .filter_map(|record| {
            let [job, start, nodes, reason] = fields(record)?;
            // `17_[2-9%2]` where the release prints arrays like that.
            let digits = job.find(|c: char| !c.is_ascii_digit()).unwrap_or(job.len());
            Some(Estimate {
                job: job[..digits].parse().ok()?,
                start: Time::parse(start),
                nodes: given(nodes).map(str::to_owned),
                reason: Reason::parse(reason),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROW: &str = "38\u{1f}34\u{1f}1\u{1f}RUNNING\u{1f}1796039686\u{1f}1796039686\u{1f}NONE\
                       \u{1f}1\u{1f}node1\u{1f}None\u{1e}\n";

    #[test]
    fn i3_a_record_that_was_cut_off_says_nothing() {
        let whole = parse(ROW);
        assert_eq!(whole[0].id.to_string(), "34_1");
        assert_eq!((whole[0].raw, whole[0].end), (38, None));
        for end in 0..ROW.len() - 2 {
            assert!(parse(&ROW[..end]).is_empty(), "{end}");
        }
        assert_eq!(parse(&format!("{ROW}{}", &ROW[..20])), whole);
    }

    #[test]
    fn names_of_users_are_never_asked_for() {
        for call in [
            all_call(Some("ann")),
            find_call("ann", "x-1"),
            poll_calls(&[1]).remove(0),
        ] {
            let format = call.args.iter().find(|arg| arg.contains('\u{1f}')).unwrap();
            for letters in ["%j", "%k", "%Z", "%o", "%C"] {
                assert!(!format.contains(letters), "{letters}");
            }
            assert_eq!(call.env, [("SLURM_TIME_FORMAT", "%s")]);
        }
        assert_eq!(poll_calls(&[]).len(), 0);
        assert!(is_unknown_job(
            "slurm_load_jobs error: Invalid job id specified"
        ));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9A-Z_\u{1f}\u{1e}\né]{0,120}") {
            drop((parse(&text), parse_start(&text)));
        }

        #[test]
        fn whatever_a_reason_holds_rows_stay_apart(reason in "[ -~\u{1f}\n]{0,40}") {
            let text = ROW.replace("None\u{1e}", &format!("{reason}\u{1e}"));
            prop_assert_eq!(parse(&(text + ROW)).len(), 2);
        }
    }
}
