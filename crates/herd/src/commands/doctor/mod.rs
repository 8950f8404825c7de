//! `herd doctor`: checks this machine or a cluster and says what to change. It changes nothing that stays.

pub(crate) mod cluster;
mod programs;
mod system;

use std::borrow::Cow;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Outcome;
use crate::backends::LOCAL;
use crate::cli::Format;
use crate::cli::machine::DoctorArgs;
use crate::error::{ExpectedError, count};
use crate::jobs;
use crate::printer::table::Column;
use crate::printer::{Printer, Row};

/// The code herd ends with when a check failed.
const FAILED: u8 = 1;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// Nothing to do.
    Ok,
    /// Works, with less than there could be.
    Warn,
    /// Jobs will not run.
    Fail,
}

/// One finding.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Finding {
    check: Cow<'static, str>,
    verdict: Verdict,
    detail: String,
    remedy: Option<String>,
}

impl Finding {
    pub(crate) fn new(check: &'static str, verdict: Verdict, detail: impl Into<String>) -> Self {
        Self {
            check: Cow::Borrowed(check),
            verdict,
            detail: detail.into(),
            remedy: None,
        }
    }

    pub(crate) fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, detail)
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl Row for Finding {
    const COLUMNS: &'static [Column] = &[
        Column::new("CHECK"),
        Column::new("RESULT"),
        // Never shortened: what is wrong with a machine is read to its end.
        Column::new("DETAIL"),
        Column::wide("REMEDY"),
    ];

    fn cells(&self) -> Vec<String> {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        };
        vec![
            self.check.to_string(),
            verdict.to_owned(),
            self.detail.clone(),
            self.remedy.clone().unwrap_or_default(),
        ]
    }

    fn name(&self) -> String {
        self.check.to_string()
    }
}

/// Runs every check; 1 when one failed.
pub(crate) fn run(args: &DoctorArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let findings = match args.backend.as_deref().filter(|name| *name != LOCAL) {
        Some(name) => cluster::all(name, home)?,
        None => this_machine(home),
    };
    printer.list(&findings, args.output.output)?;
    // The table is narrow; what to change stands below it, on its own lines.
    if args.output.output == Format::Table {
        for finding in &findings {
            if let Some(remedy) = &finding.remedy {
                printer.line(&format!("{}: {remedy}", finding.check));
            }
        }
    }
    let number = |verdict| {
        findings
            .iter()
            .filter(|finding| finding.verdict == verdict)
            .count()
    };
    let (warned, failed) = (number(Verdict::Warn), number(Verdict::Fail));
    printer.note(&format!(
        "{}, {} failed",
        count(warned, "warning"),
        count(failed, "check")
    ));
    Ok(if failed > 0 { FAILED } else { 0 })
}

fn this_machine(home: Option<&Path>) -> Vec<Finding> {
    let mut findings = Vec::new();
    match jobs::open_home(home) {
        Ok(home) => {
            findings.push(system::home(home.path()));
            findings.extend(system::space(home.path()));
            findings.push(system::clock(home.path()));
        }
        Err(error) => findings.push(unusable_home(&error)),
    }
    findings.push(system::kernel());
    findings.push(system::descriptors());
    findings.push(system::cgroup());
    findings.push(system::cpus());
    findings.push(system::gpus());
    findings.extend(programs::all());
    findings
}

fn unusable_home(error: &ExpectedError) -> Finding {
    Finding::new("home", Verdict::Fail, herd_core::text::error_line(error))
        .remedy("set HERD_HOME to a directory of your own that you can write to")
}
