//! What Slurm says of jobs that have not ended, asked seldom: one question for all of a list, and of one
//! job that is waited for the less often the longer it waits.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use herd_backends::slurm::observe::View;
use herd_backends::slurm::record::Record;
use herd_core::state::{AttemptState, JobState};
use herd_jobdir::Home;
use herd_jobdir::index::Listed;
use herd_jobdir::status::Brief;
use herd_slurm::outcome::Condition;
use herd_slurm::reason::Reason;

use crate::backend_slurm;
use crate::backends::LOCAL;

/// How long an answer stands: the first one, and the longest.
const STANDS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// An answer and how long it stands. Nothing where Slurm does not know the job, or has not answered.
struct Answer {
    at: Instant,
    stands: Duration,
    /// The job, as long as it is worth a question.
    record: Option<Record>,
    view: Option<View>,
}

/// Answers of this process, by Slurm's numbers.
static ANSWERS: Mutex<BTreeMap<(Option<String>, u32), Answer>> = Mutex::new(BTreeMap::new());

fn key(record: &Record) -> (Option<String>, u32) {
    (record.cluster.clone(), record.job)
}

/// What Slurm says of a job, or said not long ago. All that this process looks at are asked about together.
pub(super) fn look(record: &Record) -> Option<View> {
    let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    let before = answers.get(&key(record));
    if let Some(answer) = before.filter(|answer| answer.at.elapsed() < answer.stands) {
        return answer.view.clone();
    }
    let mut records = vec![record.clone()];
    let others = answers.values().filter_map(|answer| answer.record.clone());
    records.extend(others.filter(|other| key(other) != key(record)));
    let asked = backend_slurm::observe(&records);
    for record in records {
        let before = answers.get(&key(&record));
        let stands = before.map_or(STANDS.0, |answer| (answer.stands * 2).min(STANDS.1));
        let said_before = before.and_then(|answer| answer.view.clone());
        // Where Slurm does not answer, what it said before stands (I3).
        let view = match &asked {
            Ok(views) => views.get(&record.job).cloned().or(said_before),
            Err(_) => said_before,
        };
        let answer = Answer {
            at: Instant::now(),
            stands,
            record: Some(record.clone()).filter(|_| !has_ended(view.as_ref())),
            view,
        };
        answers.insert(key(&record), answer);
    }
    answers.get(&key(record))?.view.clone()
}

/// One that has ended is asked about again only when it is looked at.
fn has_ended(view: Option<&View>) -> bool {
    view.is_some_and(|view| matches!(view.condition, Condition::Ended(_)))
}

/// Asks once for all of a list that have not ended.
pub(super) fn look_at_all(home: &Home, listed: &[Listed]) {
    let records: Vec<Record> = listed
        .iter()
        .filter(|job| !job.brief.settled && job.summary.backend != LOCAL)
        .filter_map(|job| Record::read(&home.open(job.id).ok()?).ok()?)
        .collect();
    if records.is_empty() {
        return;
    }
    let mut views = backend_slurm::observe(&records).unwrap_or_default();
    let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    for record in records {
        let view = views.remove(&record.job);
        answers.insert(
            key(&record),
            Answer {
                at: Instant::now(),
                stands: STANDS.1,
                record: None,
                view,
            },
        );
    }
}

/// Puts what Slurm says into a status where the job's own records say less: it waits, or its driver has
/// not begun to write.
pub(super) fn tell(brief: &mut Brief, record: &Record, view: &View) {
    let unstarted = [JobState::Accepted, JobState::Submitting, JobState::Queued]
        .iter()
        .any(|state| brief.state == state.to_string())
        || brief.state == AttemptState::Preempted.to_string();
    if !unstarted {
        return;
    }
    let job = record.job;
    match view.condition {
        Condition::Pending { held, .. } => {
            brief.state = JobState::Queued.to_string();
            let held = if held { ", held" } else { "" };
            brief.why = Some(format!("Slurm job {job}{held}: {}", sentence(&view.reason)));
        }
        Condition::Starting | Condition::Running => {
            brief.state = AttemptState::Starting.to_string();
            brief.why = Some(format!("Slurm job {job} has its nodes"));
        }
        Condition::Suspended => brief.why = Some(format!("Slurm job {job} is suspended")),
        Condition::Unchanged | Condition::Ended(_) => {}
    }
}

fn sentence(reason: &Reason) -> String {
    match reason.explain() {
        Some(known) => format!("{} ({})", known.meaning, known.code),
        None if reason.code().is_empty() => "it waits".to_owned(),
        None => format!("it waits ({reason})"),
    }
}
