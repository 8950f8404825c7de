//! Checks of a Slurm cluster: what it is, what it can do, and what of it stands in the way of jobs.

mod home;
mod login;
mod nodes;
mod settings;

use std::path::Path;

use herd_backends::slurm::cluster::Cluster;
use herd_core::text::{error_line, nearest};

use super::{Finding, Verdict};
use crate::backends::{SLURM, configured};
use crate::config::{self, SlurmBackend};
use crate::error::ExpectedError;
use crate::{backend_login, backend_slurm};

/// Every check of a cluster.
pub(super) fn all(name: &str, home: Option<&Path>) -> Result<Vec<Finding>, ExpectedError> {
    let config = config::read(&|variable| std::env::var_os(variable))?;
    let known = || config.backends.keys().map(String::as_str).chain([SLURM]);
    if !known().any(|known| known == name) {
        let near = nearest(name, known()).map(|near| format!("; did you mean `{near}`?"));
        return Err(ExpectedError::BadOption {
            option: "--backend",
            value: name.to_owned(),
            source: format!("no backend has this name{}", near.unwrap_or_default()).into(),
        });
    }
    let backend = configured(name, &config);
    match backend.login() {
        Some(target) => Ok(backend_login::doctor(&target, &backend)),
        None => Ok(of(&backend, home)),
    }
}

/// Every check of this cluster, whose commands are on this machine.
pub(crate) fn of(backend: &SlurmBackend, home: Option<&Path>) -> Vec<Finding> {
    let mut findings = match backend.shared_home {
        Some(false) => vec![home::staged(backend)],
        Some(true) | None => vec![home::program(), home::directory(home)],
    };
    findings.push(login::shell());
    let cluster = Cluster::named(backend.cluster.clone());
    match backend_slurm::survey(&cluster) {
        Ok(survey) => {
            findings.insert(0, settings::versions(&survey));
            findings.extend(settings::clock(&survey));
            findings.extend(nodes::partitions(&survey.facts, backend));
            findings.push(nodes::nodes(&survey.facts));
            findings.push(nodes::gpus(&survey.facts));
            findings.extend(settings::all(&survey, backend));
        }
        Err(error) => findings.insert(0, unanswered(&error, backend)),
    }
    findings
}

fn unanswered(error: &ExpectedError, backend: &SlurmBackend) -> Finding {
    let remedy = match &backend.cluster {
        Some(cluster) => format!(
            "is `{cluster}` one of `sacctmgr show clusters`? The configuration names it; \
             `scontrol ping` shows whether its controller answers"
        ),
        None => {
            "jobs are handed over where Slurm's commands are: a login node, with them on PATH; \
                 `scontrol ping` shows whether the controller answers"
                .to_owned()
        }
    };
    Finding::new("slurm", Verdict::Fail, error_line(error)).remedy(remedy)
}
