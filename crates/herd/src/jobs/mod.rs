//! Jobs as commands see them: found by a selector, read from their directories, shown as rows.

mod choose;
mod observed;
mod row;
mod submission;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use herd_core::JobId;
use herd_core::plan::Plan;
use herd_core::result::AttemptEnd;
use herd_core::retry;
use herd_core::spec::JobType;
use herd_core::state::JobState;
use herd_core::units::Span;
use herd_jobdir::status::{DRIVER_LOST, TaskOverview};
use herd_jobdir::{Home, JobDir, JobStatus, SelectError, Summary, apart};

use crate::error::ExpectedError;
use crate::report::Context;
use crate::text;
use crate::{backend_local, backend_login, backend_slurm};
pub(crate) use choose::open_active;
use herd_backends::slurm::cancel::Taken;
use herd_backends::slurm::observe::View;
use herd_backends::slurm::record::Record;
use herd_login::mirror::Record as LoginRecord;
use herd_slurm::job::Id;
use herd_slurm::outcome::Condition;
use observed::Seen;
pub(crate) use row::{JobRow, list, type_name};

/// Columns assumed where no terminal says how many it has.
const DEFAULT_WIDTH: usize = 80;

/// Opens the home, made where it does not exist.
pub(crate) fn open_home(given: Option<&Path>) -> Result<Home, ExpectedError> {
    let home = match given.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => Home::at(path),
        None => Home::from_env(),
    };
    home.map_err(|error| ExpectedError::Surroundings {
        what: "use the directory for jobs",
        source: error.into(),
        hint: "choose another one with `--home DIR` or the variable HERD_HOME",
    })
}

/// A span given to an option.
pub(crate) fn span_option(option: &'static str, value: &str) -> Result<Span, ExpectedError> {
    value.parse().map_err(
        |error: herd_core::units::UnitError| ExpectedError::BadOption {
            option,
            value: value.to_owned(),
            source: error.into(),
        },
    )
}

/// The id of the job that a selector means in a home.
pub(crate) fn find(home: Option<&Path>, selector: &str) -> Result<JobId, ExpectedError> {
    select(&open_home(home)?, selector)
}

/// One job and where it stands.
#[derive(Debug)]
pub(crate) struct Job {
    /// Its directory.
    pub(crate) dir: JobDir,
    /// A few words about it; absent while it is being written down.
    pub(crate) summary: Option<Summary>,
    /// Where it stands.
    pub(crate) status: JobStatus,
    /// What Slurm calls it, for a job of Slurm.
    pub(crate) slurm: Option<Record>,
    /// Whether Slurm has not got it yet, or not all of it.
    pub(crate) submitting: bool,
    /// What Slurm says of it, or said not long ago.
    pub(crate) observed: Option<View>,
    /// The same of its tasks that have not ended, where they are Slurm's.
    pub(crate) tasks_observed: BTreeMap<u32, View>,
    /// The login node that has it, for a job behind one.
    pub(crate) login: Option<LoginRecord>,
    /// When this was last heard of it, where that cannot be asked for just now; milliseconds since the
    /// Unix epoch.
    pub(crate) as_of_ms: Option<u64>,
    /// Why Slurm, which has the job, has said nothing of it now.
    pub(crate) unanswered: Option<String>,
}

/// The job that Slurm has under this number, `slurm:25` or `slurm:25_3`: the newest, for numbers come again
/// after years, and clusters have each their own.
fn by_number(home: &Home, number: &str) -> Result<Option<JobId>, ExpectedError> {
    let failed = |error| ExpectedError::failed("look through the jobs", error);
    let Some(id) = Id::parse(number) else {
        return Ok(None);
    };
    for job in home.jobs().map_err(failed)? {
        // One that cannot be read, or was removed meanwhile, has no number.
        let record = home.open(job).and_then(|dir| Record::read(&dir));
        if record.ok().flatten().is_some_and(|record| record.is(id)) {
            return Ok(Some(job));
        }
    }
    Ok(None)
}

fn select(home: &Home, selector: &str) -> Result<JobId, ExpectedError> {
    if let Some(number) = selector.strip_prefix("slurm:")
        && let Some(id) = by_number(home, number)?
    {
        return Ok(id);
    }
    herd_jobdir::listing::select(home, selector).map_err(|error| match error {
        SelectError::NotFound { .. } if selector == "last" => ExpectedError::NoJobs {
            home: home.path().to_owned(),
        },
        SelectError::NotFound { text, mut nearest } => {
            if let Ok(Some(_)) = by_number(home, &text) {
                nearest.insert(0, format!("slurm:{text}"));
            }
            ExpectedError::NoSuchJob {
                selector: text,
                nearest,
            }
        }
        SelectError::Ambiguous {
            text, candidates, ..
        } => ExpectedError::AmbiguousJob {
            selector: text,
            candidates: candidates
                .iter()
                .map(|(id, name)| format!("{} ({name})", id.short()))
                .collect(),
        },
        SelectError::Unreadable(error) => ExpectedError::failed("look through the jobs", error),
    })
}

/// The job a selector means.
pub(crate) fn open(home: &Home, selector: &str) -> Result<Job, ExpectedError> {
    let id = select(home, selector)?;
    let dir = home
        .open(id)
        .map_err(|error| ExpectedError::failed("open the job", error))?;
    read(dir)
}

/// A job that somebody has removed meanwhile can neither run nor end any more.
pub(crate) fn require_present(dir: &JobDir) -> Result<(), ExpectedError> {
    if dir.path().is_dir() {
        return Ok(());
    }
    Err(ExpectedError::WrongState {
        job: dir.id().short(),
        problem: "was removed meanwhile, with all it had to say".to_owned(),
        hint: None,
    })
}

/// Reads where a job stands. One whose driver died is ended here: nobody else may be left to do it. Of a
/// job of Slurm that has not ended, Slurm is asked.
pub(crate) fn read(dir: JobDir) -> Result<Job, ExpectedError> {
    let failed = |error| ExpectedError::failed(format!("read job {}", dir.id().short()), error);
    require_present(&dir)?;
    let login = LoginRecord::read(&dir).map_err(failed)?;
    let submission = match &login {
        None => submission::look(&dir).map_err(failed)?,
        Some(_) => None,
    };
    let mut status = herd_jobdir::status(&dir).map_err(failed)?;
    if status.brief.state == DRIVER_LOST {
        let ended = herd_jobdir::finish_lost(&dir, text::now_ms()).map_err(failed)?;
        status = herd_jobdir::status(&dir).map_err(failed)?;
        if let Some(result) = ended.filter(|_| !status.brief.settled) {
            // On a full disk it cannot be written down; it has ended all the same.
            status.brief.settled = true;
            status.brief.exit_code = Some(result.exit_code);
            status.failure = result.failure;
        }
    }
    let mut as_of_ms = None;
    if let Some(record) = login.as_ref().filter(|_| !status.brief.settled) {
        as_of_ms = backend_login::look(&dir, record);
        status = herd_jobdir::status(&dir).map_err(failed)?;
        backend_login::tell(&mut status.brief, &dir, record);
    }
    let asked = observed::ask_about(&dir).map_err(failed)?;
    let mut seen = Seen::default();
    if let Some(asked) = asked.as_ref().filter(|_| !status.brief.settled) {
        backend_slurm::look_after(&dir, &asked.record)?;
        seen = observed::look(asked, observed::runs(&status.brief));
        if dir.is_cancel_unheard().map_err(failed)? {
            seen = observed::cancel_again(&dir, asked, seen);
        }
        let ended = if asked.record.parts.is_empty() {
            settle(&dir, &asked.record, seen.whole.as_ref())?
        } else {
            settle_tasks(&dir, &seen)?
        };
        if ended {
            status = herd_jobdir::status(&dir).map_err(failed)?;
        } else if let Some(view) = &seen.whole {
            observed::tell(&mut status.brief, &asked.record, view);
        }
    }
    let summary = dir.read_summary().map_err(failed)?;
    let settled = status.brief.settled;
    if let Some(why) = &submission {
        submission::tell(&mut status.brief, why);
    }
    Ok(Job {
        submitting: submission.is_some(),
        dir,
        summary,
        status,
        slurm: asked.map(|asked| asked.record),
        observed: seen.whole,
        tasks_observed: seen.tasks,
        login,
        as_of_ms: as_of_ms.filter(|_| !settled),
        unanswered: seen.unanswered.filter(|_| !settled),
    })
}

/// Ends a job that has ended in Slurm alone; whether it was looked at.
fn settle(dir: &JobDir, record: &Record, view: Option<&View>) -> Result<bool, ExpectedError> {
    // What the job left on its nodes comes first; who brings it ends the job.
    let ended =
        |view: &&View| matches!(view.condition, Condition::Ended(_)) && record.staged_to.is_none();
    let Some(view) = view.filter(ended) else {
        return Ok(false);
    };
    backend_slurm::settle(dir, view)?;
    Ok(true)
}

/// The same for tasks that are Slurm's; whether the job has ended with them.
fn settle_tasks(dir: &JobDir, seen: &Seen) -> Result<bool, ExpectedError> {
    let plan = apart::plan_of(dir);
    match plan.map_err(|error| ExpectedError::failed("read the job's plan", error))? {
        Some(plan) => backend_slurm::settle_tasks(dir, &plan, &seen.tasks),
        None => Ok(false),
    }
}

impl Job {
    /// The short id.
    pub(crate) fn short(&self) -> String {
        self.dir.id().short()
    }

    /// Asks for its end.
    pub(crate) fn cancel(&self, signal: u8, grace: Option<Span>) -> Result<Taken, ExpectedError> {
        if let Some(record) = &self.login {
            return backend_login::cancel(&self.dir, record, signal, grace).map(|()| Taken::Now);
        }
        if self.submitting {
            return backend_slurm::cancel_submission(&self.dir, signal, grace).map(|()| Taken::Now);
        }
        match &self.slurm {
            Some(record) => {
                let silent = self.is_unanswered();
                backend_slurm::cancel(&self.dir, record, silent, signal, grace)
            }
            None => backend_local::cancel(&self.dir, signal, grace).map(|()| Taken::Now),
        }
    }

    /// Whether it works on nodes that do not see this machine's directories.
    pub(crate) fn is_staged(&self) -> bool {
        let record = self.slurm.as_ref();
        record.is_some_and(|record| record.staged_to.is_some())
    }

    /// Whether Slurm, which has the job, does not answer just now.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.unanswered.is_some()
    }

    /// What to know of the facts besides: what they lack, or why the job was not retried.
    fn note(&self) -> Option<String> {
        let unanswered = self.unanswered.as_ref().map(|why| row::unanswered(why));
        unanswered.or_else(|| self.not_retried())
    }

    /// Whether nothing can change any more.
    pub(crate) fn is_ended(&self) -> bool {
        self.status.brief.settled
    }

    /// State and reason in a few words.
    pub(crate) fn state_text(&self) -> String {
        let age = self.as_of_ms.map(|at| format!(" ({})", text::as_of(at)));
        let state = format!("{}{}", self.status.brief.state, age.unwrap_or_default());
        match &self.status.brief.why {
            Some(why) => format!("{state}, {why}"),
            None => state,
        }
    }

    /// What it waits for or why it ended; of a pause before a retry, what is left.
    pub(crate) fn why(&self) -> Option<String> {
        let why = self.status.brief.why.as_ref()?;
        let left = self.waits_for().and_then(|why| {
            // The wait is the attempt's latest event.
            let attempt = self.dir.attempt(self.status.brief.attempt);
            let since = attempt.read_events().ok()?.last()?.time_ms;
            let waited = Duration::from_millis(text::now_ms().saturating_sub(since));
            Some(match retry::left_of(why, waited)?.as_millis() {
                0 => "retries now".to_owned(),
                left => format!("retries in {}", text::span(u64::try_from(left).ok()?)),
            })
        });
        Some(left.unwrap_or_else(|| why.clone()))
    }

    /// What it waits for, where it does.
    pub(crate) fn waits_for(&self) -> Option<&str> {
        let brief = &self.status.brief;
        let queued = brief.state == JobState::Queued.to_string();
        brief.why.as_deref().filter(|_| queued)
    }

    /// Refuses a job that does not run.
    pub(crate) fn require_active(&self, what: &str) -> Result<(), ExpectedError> {
        if !self.is_ended() && self.tasks_apart()?.is_some() {
            return Err(ExpectedError::WrongState {
                job: self.short(),
                problem: "has a driver for each of its tasks, and this reaches none of them"
                    .to_owned(),
                hint: Some(
                    "`srun --overlap --jobid=N` runs a command beside a task of Slurm".to_owned(),
                ),
            });
        }
        if !self.is_ended() && self.status.driver.is_some() {
            return Ok(());
        }
        let state = &self.status.brief.state;
        Err(ExpectedError::WrongState {
            job: self.short(),
            problem: format!("is {state}: {what}"),
            hint: Some(format!("`herd why {}` tells more", self.short())),
        })
    }

    /// How the latest attempt ended, where it did and can be read.
    pub(crate) fn last_end(&self) -> Option<AttemptEnd> {
        self.dir
            .latest_attempt()
            .ok()
            .flatten()?
            .read_end()
            .ok()
            .flatten()
    }

    /// What a report needs to know about this job.
    pub(crate) fn report_context(&self, color: bool) -> Context {
        let status = &self.status;
        let nodes = status
            .nodes
            .iter()
            .map(|node| node.index as usize + 1)
            .max()
            .unwrap_or(0);
        let mut names: Vec<String> = (0..nodes).map(|index| format!("node{index}")).collect();
        for node in &status.nodes {
            names[node.index as usize].clone_from(&node.name);
        }
        Context {
            short: self.short(),
            name: self
                .summary
                .as_ref()
                .map_or_else(String::new, |s| s.name.clone()),
            started_ms: status.brief.started_ms,
            why: status.brief.why.clone(),
            nodes: names,
            log: self.log_path(),
            tasks: None,
            note: self.note(),
            output_shown: false,
            width: width(),
            color,
        }
    }

    /// The plan of a job whose tasks have drivers of their own.
    pub(crate) fn tasks_apart(&self) -> Result<Option<Plan>, ExpectedError> {
        apart::plan_of(&self.dir)
            .map_err(|error| ExpectedError::failed("read the job's plan", error))
    }

    /// Where the tasks of an array stand, and which did not succeed.
    pub(crate) fn tasks(&self) -> Result<Option<TaskOverview>, ExpectedError> {
        if self.status.tasks.is_none() {
            return Ok(None);
        }
        herd_jobdir::status::task_overview(&self.dir)
            .map_err(|error| ExpectedError::failed("read what became of the tasks", error))
    }

    /// Why a job that asks for retries was not retried, where its failure is none of those.
    pub(crate) fn not_retried(&self) -> Option<String> {
        let failure = self.status.failure.as_ref().filter(|_| self.is_ended())?;
        // Every attempt has the first one's rule; without the plan there is nothing to say.
        let plan = self.dir.attempt(1).read_plan().ok().flatten()?;
        retry::not_listed(plan.retry.as_ref(), failure)
    }

    /// Path of the merged log; where tasks have drivers of their own, of the directory with theirs.
    pub(crate) fn log_path(&self) -> String {
        let path = match self.tasks_apart() {
            Ok(Some(_)) => self.dir.tasks_dir(),
            Ok(None) | Err(_) => self.dir.path().join(herd_jobdir::runlog::DATA_NAME),
        };
        path.display().to_string()
    }

    /// The job as a row.
    pub(crate) fn row(&self) -> JobRow {
        let id = self.dir.id();
        let summary = self.summary.clone().unwrap_or_else(|| Summary {
            name: String::new(),
            job_type: JobType::default(),
            nodes: 0,
            created_ms: id.created_ms().unwrap_or(0),
            backend: String::new(),
            command: String::new(),
        });
        JobRow {
            as_of_ms: self.as_of_ms,
            note: self.unanswered.as_deref().map(row::unanswered),
            backend_id: self.slurm.as_ref().map(Record::name),
            ..JobRow::new(id, summary, self.status.brief.clone())
        }
    }
}

/// Columns of the terminal on standard error, where reports go.
fn width() -> usize {
    crate::printer::columns(std::io::stderr()).unwrap_or(DEFAULT_WIDTH)
}
