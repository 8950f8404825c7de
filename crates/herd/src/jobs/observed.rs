//! What Slurm says of jobs that have not ended, asked seldom: one question for all of a list, and of one
//! job that is waited for the less often the longer it waits.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use herd_backends::slurm::array;
use herd_backends::slurm::observe::{Asked, View, Views};
use herd_backends::slurm::record::Record;
use herd_core::state::{AttemptState, JobState};
use herd_core::text::error_line;
use herd_jobdir::listing::Listed;
use herd_jobdir::status::Brief;
use herd_jobdir::{Home, JobDir, JobDirError, apart};
use herd_slurm::job::Id;
use herd_slurm::outcome::Condition;
use herd_slurm::reason::Reason;

use crate::backend_slurm::{self, PATIENCE};
use crate::backends::LOCAL;

/// How long an answer stands: the first one, and the longest.
const STANDS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// How long an answer is waited for about jobs that run by their own records: a little more than what is
/// waited in silence.
const SHORT: Duration = Duration::from_millis(PATIENCE.as_secs() * 1000 + 200);
/// The same about others.
pub(super) const LONG: Duration = Duration::from_secs(10);
/// After no answer nothing is asked for as long, or for as long as the answer was waited for.
const QUIET: Duration = Duration::from_secs(5);

/// What Slurm says of a job.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Of the job; of an array of Slurm, of the task that says most: one that waits.
    pub(super) whole: Option<View>,
    /// Of tasks that are Slurm's, by their indices.
    pub(super) tasks: BTreeMap<u32, View>,
    /// Why it says nothing now, where it does not answer; the rest is what it said before.
    pub(super) unanswered: Option<String>,
}

impl Seen {
    fn of(asked: &Asked, views: &Views) -> Self {
        if asked.record.parts.is_empty() {
            return Self {
                whole: views.get(&Id::job(asked.record.job)).cloned(),
                ..Self::default()
            };
        }
        let tasks = array::tell(asked, views);
        let living = || {
            let ended = |view: &&View| matches!(view.condition, Condition::Ended(_));
            tasks.values().filter(move |view| !ended(view))
        };
        let waits = |view: &&View| matches!(view.condition, Condition::Pending { .. });
        let whole = living().find(waits).or_else(|| living().next()).cloned();
        Self {
            whole,
            tasks,
            unanswered: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.whole.is_none() && self.tasks.is_empty()
    }
}

/// An answer and how long it stands. Empty where Slurm does not know the job, or has not answered.
struct Answer {
    at: Instant,
    stands: Duration,
    seen: Seen,
    /// What is asked about it when another job is asked about; nothing of one that has ended.
    again: Option<Asked>,
}

impl Answer {
    fn now(asked: Asked, stands: Duration, seen: Seen) -> Self {
        let ended = |view: &View| matches!(view.condition, Condition::Ended(_));
        let over = seen.whole.as_ref().is_some_and(ended);
        Self {
            at: Instant::now(),
            stands,
            seen,
            again: (!over).then_some(asked),
        }
    }
}

/// Answers of this process, by Slurm's numbers.
static ANSWERS: Mutex<BTreeMap<(Option<String>, u32), Answer>> = Mutex::new(BTreeMap::new());

fn key(record: &Record) -> (Option<String>, u32) {
    (record.cluster.clone(), record.job)
}

/// What to ask of a job that has not ended; nothing of one that Slurm has not got.
pub(super) fn ask_about(dir: &JobDir) -> Result<Option<Asked>, JobDirError> {
    let Some(record) = Record::read(dir)? else {
        return Ok(None);
    };
    let plan = match record.parts.as_slice() {
        [] => None,
        _ => apart::plan_of(dir)?,
    };
    let open = match plan.and_then(|plan| plan.array) {
        Some(array) => apart::open(dir, &array)?,
        None => Vec::new(),
    };
    Ok(Some(Asked { record, open }))
}

/// When this process was last left without an answer, for how long nothing is asked, and why.
static SILENCE: Mutex<Option<(Instant, Duration, String)>> = Mutex::new(None);

/// Asks about jobs, unless Slurm has not answered just now.
fn ask(asked: Vec<Asked>, bound: Duration) -> Result<BTreeMap<Option<String>, Views>, String> {
    once(bound, || backend_slurm::observe(asked, bound))
}

/// Asks Slurm something, unless it has not answered just now.
pub(super) fn once<T, E: std::error::Error + 'static>(
    bound: Duration,
    question: impl FnOnce() -> Result<T, E>,
) -> Result<T, String> {
    let mut silence = SILENCE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((since, lasts, why)) = &*silence
        && since.elapsed() < *lasts
    {
        return Err(why.clone());
    }
    let answer = question().map_err(|error| error_line(&error));
    *silence = answer.as_ref().err().map(|why| {
        // A program that goes on after its first look has time.
        (Instant::now(), bound.min(QUIET), why.clone())
    });
    answer
}

/// Whether a job runs by its own records, which leaves little to ask.
pub(super) fn runs(brief: &Brief) -> bool {
    let running = [
        AttemptState::Starting,
        AttemptState::SettingUp,
        AttemptState::Running,
        AttemptState::Checkpointing,
    ];
    let mut states = running.iter().map(ToString::to_string);
    states.any(|state| state == brief.state) || brief.state == JobState::Cancelling.to_string()
}

/// What Slurm says of a job, or said not long ago. It is asked about all that this process looks at, in one
/// question, and of one that runs not waited for long.
pub(super) fn look(asked: &Asked, runs: bool) -> Seen {
    let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = key(&asked.record);
    let before = answers.get(&key);
    if let Some(answer) = before.filter(|answer| answer.at.elapsed() < answer.stands) {
        return answer.seen.clone();
    }
    let mut all = vec![asked.clone()];
    let others = answers.iter().filter(|(other, _)| **other != key);
    all.extend(others.filter_map(|(_, answer)| answer.again.clone()));
    // Who waits for long can wait for Slurm.
    let longer = before.map(|answer| answer.stands).unwrap_or_default();
    let bound = if runs {
        SHORT.max(longer).min(LONG)
    } else {
        LONG
    };
    let views = ask(all.clone(), bound);
    for job in all {
        let before = answers.get(&self::key(&job.record));
        let stands = before.map_or(STANDS.0, |answer| (answer.stands * 2).min(STANDS.1));
        let before = before.map(|answer| answer.seen.clone()).unwrap_or_default();
        // Where Slurm does not answer, what it said before stands (I3).
        let seen = views.as_ref().ok().and_then(|views| {
            let none = Views::new();
            let views = views.get(&job.record.cluster).unwrap_or(&none);
            Some(Seen::of(&job, views)).filter(|seen| !seen.is_empty())
        });
        let seen = Seen {
            unanswered: views.as_ref().err().cloned(),
            ..seen.unwrap_or(before)
        };
        answers.insert(self::key(&job.record), Answer::now(job, stands, seen));
    }
    answers
        .get(&key)
        .map(|answer| answer.seen.clone())
        .unwrap_or_default()
}

/// Passes on a request for the end of a job that has reached nobody, since Slurm did not answer then; what
/// Slurm says afterwards.
pub(super) fn cancel_again(dir: &JobDir, asked: &Asked, seen: Seen) -> Seen {
    let answers = seen.unanswered.is_none() && !seen.is_empty();
    if !answers || once(SHORT, || backend_slurm::cancel_again(dir, &asked.record)).is_err() {
        return seen;
    }
    let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    answers.remove(&key(&asked.record));
    drop(answers);
    look(asked, false)
}

/// Asks once for all of a list that have not ended.
pub(super) fn look_at_all(home: &Home, listed: &[Listed]) {
    let asked: Vec<Asked> = listed
        .iter()
        .filter(|job| !job.brief.settled && job.summary.backend != LOCAL)
        .filter_map(|job| ask_about(&home.open(job.id).ok()?).ok()?)
        .collect();
    if asked.is_empty() {
        return;
    }
    let all_run = listed
        .iter()
        .all(|job| job.brief.settled || runs(&job.brief));
    let views = ask(asked.clone(), if all_run { SHORT } else { LONG });
    let mut answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    for job in asked {
        let none = Views::new();
        let seen = match &views {
            Ok(views) => Seen::of(&job, views.get(&job.record.cluster).unwrap_or(&none)),
            Err(why) => Seen {
                unanswered: Some(why.clone()),
                ..Seen::default()
            },
        };
        answers.insert(key(&job.record), Answer::now(job, STANDS.1, seen));
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
    let job = match record.parts.as_slice() {
        [] => format!("job {}", record.job),
        _ => format!("array {}", view.id.job),
    };
    match view.condition {
        Condition::Pending { held, .. } => {
            brief.state = JobState::Queued.to_string();
            let held = if held { ", held" } else { "" };
            brief.why = Some(format!("Slurm {job}{held}: {}", sentence(&view.reason)));
        }
        Condition::Starting | Condition::Running => {
            brief.state = AttemptState::Starting.to_string();
            brief.why = Some(format!("Slurm {job} has its nodes"));
        }
        Condition::Suspended => brief.why = Some(format!("Slurm {job} is suspended")),
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
