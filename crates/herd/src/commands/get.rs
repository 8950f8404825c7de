//! `herd get`: what a job behind a login node has left in its directory of work.

use std::path::{Path, PathBuf};

use super::Outcome;
use crate::backend_login;
use crate::cli::query::GetArgs;
use crate::error::ExpectedError;
use crate::jobs;
use crate::printer::Printer;
use crate::text;

/// Copies the directory here.
pub(crate) fn run(args: &GetArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let home = jobs::open_home(home)?;
    let job = jobs::open(&home, &args.job)?;
    let Some(record) = &job.login else {
        let plan = job.dir.attempt(1).read_plan().ok().flatten();
        let place = plan.map_or_else(String::new, |plan| format!(": {}", plan.workdir));
        return Err(ExpectedError::WrongState {
            job: job.short(),
            problem: format!("works where it was handed in{place}"),
            hint: None,
        });
    };
    let name = job.summary.as_ref().map_or("job", |summary| &summary.name);
    let to = args
        .to
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{name}-{}", job.short())));
    if to.exists() {
        return Err(ExpectedError::BadOption {
            option: "DIR",
            value: to.display().to_string(),
            source: "it is there already; nothing is written over".into(),
        });
    }
    let bytes = backend_login::get(&job.dir, record, &to)?;
    if !job.is_ended() {
        printer.note(&format!("{} has not ended", job.short()));
    }
    printer.note(&format!("{} in {}", text::size(bytes), to.display()));
    Ok(0)
}
