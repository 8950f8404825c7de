//! The seam to a login node that ssh reaches: every call that asks it or hands something to it.
//!
//! The job's directory is there; here is a mirror of it, which is as old as the last answer.

mod command;
mod follow;
mod look;
mod place;
mod submit;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use herd_core::text::error_line;
use herd_login::mirror::Record;
use herd_login::program::{HELLO_BOUND, Programs};
use herd_login::protocol::{Hello, Refusal, Request, ask};
use herd_login::{Channel, LoginError, Ssh, Target};

use crate::commands::doctor::{Finding, Verdict};
use crate::config::{self, SlurmBackend};
use crate::error::{ExpectedError, Fault};

pub(crate) use command::{cancel, control, exec, show};
pub(crate) use follow::{fetch_log, follow, get, may_come};
pub(crate) use look::{complaints, look, look_at_all, tell};
pub(crate) use place::LoginPlace;
pub(crate) use submit::submit;

/// How long a cluster may take to be looked over, or to take a job.
const ANSWER_BOUND: Duration = Duration::from_mins(3);

/// A login node and the programs for it.
#[derive(Debug)]
pub(super) struct Login {
    ssh: Ssh,
    programs: Programs,
}

impl Login {
    fn to(target: &Target) -> Result<Self, LoginError> {
        target.check()?;
        let own = std::env::current_exe()
            .map_err(|source| LoginError::here("find herd's own program", source))?;
        let directory = own.parent().map(PathBuf::from).unwrap_or_default();
        Ok(Self {
            ssh: Ssh::new(target),
            programs: Programs::in_directory(&directory, &cache().join("programs.json"))?,
        })
    }

    /// The login node of a job, by what the configuration says of it now.
    fn of(record: &Record) -> Result<Self, LoginError> {
        Self::to(&target_of(record))
    }

    fn start(&self, within: Duration) -> Result<(Channel, Hello), LoginError> {
        self.programs.start(&self.ssh, false, within)
    }

    fn host(&self) -> &str {
        &self.ssh.target().host
    }
}

fn target_of(record: &Record) -> Target {
    let variable = |name: &str| std::env::var_os(name);
    let now = config::read(&variable)
        .ok()
        .and_then(|config| crate::backends::configured(&record.backend, &config).login());
    match now {
        // Where the job's directory is, its record knows.
        Some(now) => Target {
            home: record.target.home.clone(),
            ..now
        },
        None => record.target.clone(),
    }
}

/// Where what can be found out again is kept.
fn cache() -> PathBuf {
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let base = given("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    base.or_else(|| Some(given("HOME")?.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("herd")
}

/// A failure of the connection, as herd says it.
fn failed(what: impl Into<String>, error: LoginError) -> ExpectedError {
    ExpectedError::Login {
        what: what.into(),
        hints: error.hint().into_iter().collect(),
        source: error.into(),
        code: herd_core::exit::HERD_FAILED,
    }
}

/// A refusal of the other side, as herd says it.
fn refused(what: impl Into<String>, refusal: Refusal) -> ExpectedError {
    if !refusal.faults.is_empty() {
        return ExpectedError::Faults {
            file: None,
            faults: refusal.faults.into_iter().map(fault).collect(),
        };
    }
    ExpectedError::Login {
        what: what.into(),
        source: refusal.text.into(),
        hints: refusal.hints,
        code: refusal.code,
    }
}

fn fault(fault: herd_login::protocol::Fault) -> Fault {
    Fault {
        key: fault.key,
        text: fault.text,
        hint: fault.hint,
    }
}

/// Looks a login node over, and the cluster behind it.
pub(crate) fn doctor(target: &Target, backend: &SlurmBackend) -> Vec<Finding> {
    let began = Instant::now();
    let login = match Login::to(target) {
        Ok(login) => login,
        Err(error) => return vec![unreached(&error)],
    };
    let (mut channel, hello) = match login.start(HELLO_BOUND) {
        Ok(started) => started,
        Err(error) => return vec![unreached(&error)],
    };
    let host = login.host();
    let took = crate::text::span(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    let mut findings = vec![
        Finding::ok("ssh", format!("{host} answered after {took}")),
        Finding::ok(
            "remote",
            format!("herd {}, jobs in {} there", hello.version, hello.home),
        ),
    ];
    let request = Request::Doctor {
        options: [
            backend.cluster.clone(),
            backend.partition.clone(),
            backend.account.clone(),
            backend.qos.clone(),
        ],
    };
    match ask::<Vec<Finding>>(&mut channel, &request, ANSWER_BOUND) {
        Ok(Ok(found)) => findings.extend(found),
        Ok(Err(refusal)) => findings.push(Finding::new("slurm", Verdict::Fail, refusal.text)),
        Err(error) => findings.push(unreached(&error)),
    }
    findings
}

fn unreached(error: &LoginError) -> Finding {
    let finding = Finding::new("ssh", Verdict::Fail, error_line(error));
    match error.hint() {
        Some(hint) => finding.remedy(hint),
        None => finding,
    }
}
