//! Jobs as lines of a list, with stable keys.

use herd_backends::slurm::record::Record;
use herd_core::spec::JobType;
use herd_jobdir::{Home, Summary};
use serde::Serialize;

use super::{observed, read};
use crate::backend_login;
use crate::backends::LOCAL;
use crate::error::ExpectedError;
use crate::printer::Row;
use crate::printer::table::Column;
use crate::text;

/// One line of `herd ls`, with stable keys.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct JobRow {
    /// Full id.
    pub(crate) id: String,
    /// Short id.
    pub(crate) short: String,
    /// Name.
    pub(crate) name: String,
    /// How ranks start.
    #[serde(rename = "type")]
    pub(crate) job_type: JobType,
    /// State as users see it.
    pub(crate) state: String,
    /// What it waits for, or why it failed.
    pub(crate) why: Option<String>,
    /// Number of nodes.
    pub(crate) nodes: u32,
    /// Backend.
    pub(crate) backend: String,
    /// What its cluster calls it: Slurm's number.
    pub(crate) backend_id: Option<String>,
    /// Command in one line.
    pub(crate) command: String,
    /// Latest attempt.
    pub(crate) attempt: u32,
    /// Milliseconds since the Unix epoch.
    pub(crate) created_ms: u64,
    /// Milliseconds since the Unix epoch.
    pub(crate) started_ms: Option<u64>,
    /// Milliseconds since the Unix epoch.
    pub(crate) ended_ms: Option<u64>,
    /// The code herd ends with.
    pub(crate) exit_code: Option<u8>,
    /// When this was last heard, where the login node that has the job cannot be asked just now.
    /// Milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) as_of_ms: Option<u64>,
    /// What the facts lack, where Slurm has the job and does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

impl JobRow {
    pub(super) fn new(
        id: herd_core::JobId,
        summary: Summary,
        brief: herd_jobdir::status::Brief,
    ) -> Self {
        Self {
            id: id.to_string(),
            short: id.short(),
            name: summary.name,
            job_type: summary.job_type,
            state: brief.state,
            why: brief.why,
            nodes: summary.nodes,
            backend: summary.backend,
            backend_id: None,
            command: summary.command,
            attempt: brief.attempt,
            created_ms: summary.created_ms,
            started_ms: brief.started_ms,
            ended_ms: brief.ended_ms,
            exit_code: brief.exit_code,
            as_of_ms: None,
            note: None,
        }
    }

    /// How long it has run, or ran.
    pub(crate) fn time(&self, now_ms: u64) -> Option<String> {
        let started = self.started_ms?;
        Some(text::span(
            self.ended_ms.unwrap_or(now_ms).saturating_sub(started),
        ))
    }
}

/// What to say of facts that are the job's own records alone.
pub(super) fn unanswered(why: &str) -> String {
    format!("Slurm does not answer ({why}): this is what the job's own records say")
}

/// The name of a type as in job files.
pub(crate) fn type_name(job_type: JobType) -> &'static str {
    match job_type {
        JobType::Command => "command",
        JobType::Pytorch => "pytorch",
        JobType::Mpi => "mpi",
        JobType::Ray => "ray",
    }
}

impl Row for JobRow {
    const COLUMNS: &'static [Column] = &[
        Column::new("ID"),
        Column::text("NAME"),
        Column::new("TYPE"),
        Column::new("STATE"),
        Column::new("NODES"),
        Column::new("AGE"),
        Column::new("TIME"),
        Column::new("EXIT"),
        Column::wide("BACKEND"),
        Column::wide("BACKEND ID"),
        Column::wide("ATTEMPT"),
        Column::wide("FULL ID"),
        Column::wide("COMMAND"),
    ];

    fn cells(&self) -> Vec<String> {
        let now = text::now_ms();
        let dash = || "-".to_owned();
        vec![
            self.short.clone(),
            self.name.clone(),
            type_name(self.job_type).to_owned(),
            match self.as_of_ms {
                Some(at) => format!("{} ({})", self.state, text::as_of(at)),
                None => self.state.clone(),
            },
            self.nodes.to_string(),
            text::span(now.saturating_sub(self.created_ms)),
            self.time(now).unwrap_or_else(dash),
            self.exit_code.map_or_else(dash, |code| code.to_string()),
            self.backend.clone(),
            self.backend_id.clone().unwrap_or_else(dash),
            self.attempt.to_string(),
            self.id.clone(),
            self.command.clone(),
        ]
    }

    fn name(&self) -> String {
        self.id.clone()
    }
}

/// The newest jobs.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Newest first.
    pub(crate) rows: Vec<JobRow>,
    /// Jobs beyond the bound.
    pub(crate) more: usize,
}

impl Listing {
    /// With what clusters call the jobs that have ended, each of which has to be looked for.
    pub(crate) fn with_backend_ids(mut self, home: &Home) -> Self {
        let unknown = |row: &&mut JobRow| row.backend_id.is_none() && row.backend != LOCAL;
        for row in self.rows.iter_mut().filter(unknown) {
            let dir = row.id.parse().ok().and_then(|id| home.open(id).ok());
            // What cannot be read is not told.
            let record = dir.and_then(|dir| Record::read(&dir).ok().flatten());
            row.backend_id = record.map(|record| record.name());
        }
        self
    }

    /// The newest `most` of those that are wanted.
    pub(crate) fn only(mut self, most: usize, wanted: impl Fn(&JobRow) -> bool) -> Self {
        self.rows.retain(wanted);
        self.more = self.rows.len().saturating_sub(most);
        self.rows.truncate(most);
        self
    }
}

/// The newest `most` jobs and where they stand.
pub(crate) fn list(home: &Home, most: usize) -> Result<Listing, ExpectedError> {
    let failed = |error| ExpectedError::failed("list the jobs", error);
    let listed = herd_jobdir::listing::list(home, most).map_err(failed)?;
    let total = if listed.len() < most {
        0
    } else {
        home.jobs().map_err(failed)?.len()
    };
    let more = total.saturating_sub(listed.len());
    observed::look_at_all(home, &listed);
    backend_login::look_at_all(home, &listed);
    let rows = listed.into_iter().map(|job| {
        // What has a backend of its own is read as one by one, of which all was just asked.
        if job.brief.settled || job.summary.backend == LOCAL {
            return Ok(JobRow::new(job.id, job.summary, job.brief));
        }
        let dir = home.open(job.id).map_err(failed)?;
        Ok(read(dir)?.row())
    });
    let rows = rows.collect::<Result<_, ExpectedError>>()?;
    Ok(Listing { rows, more })
}
