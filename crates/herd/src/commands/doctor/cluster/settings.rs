//! Checks of versions, clocks and settings.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use herd_backends::slurm::cluster::Survey;
use herd_core::text::error_line;
use herd_slurm::facts::Images;
use herd_slurm::mpi::{Library, choose};
use herd_slurm::version::{NEWEST, OLDEST};

use crate::commands::doctor::{Finding, Verdict};
use crate::config::SlurmBackend;
use crate::text;

/// A clock that is further away than this is a warning; munge refuses what is minutes away.
const SKEW: Duration = Duration::from_secs(5);

/// Versions of the controller and of the commands here.
pub(super) fn versions(survey: &Survey) -> Finding {
    let controller = survey.facts.version;
    let cluster = survey.facts.config.cluster().unwrap_or("without a name");
    let detail = format!("{controller}, cluster {cluster}");
    let release = (controller.year, controller.month);
    if release < (OLDEST.year, OLDEST.month) {
        return Finding::new("slurm", Verdict::Fail, detail)
            .remedy(format!("herd needs {OLDEST} or newer"));
    }
    match survey.commands {
        Some(commands) if (commands.year, commands.month) != release => Finding::new(
            "slurm",
            Verdict::Warn,
            format!("{detail}; the commands here are of {commands}"),
        )
        .remedy("use the commands of the controller's release"),
        _ if release > (NEWEST.year, NEWEST.month) => {
            Finding::ok("slurm", detail).remedy(format!("herd was tried with {OLDEST} to {NEWEST}"))
        }
        _ => Finding::ok("slurm", detail),
    }
}

/// The controller's clock beside ours.
pub(super) fn clock(survey: &Survey) -> Option<Finding> {
    let theirs = UNIX_EPOCH + Duration::from_secs(survey.controller_time?);
    let (asked, answered) = survey.asked;
    let apart = |early: SystemTime, late: SystemTime| late.duration_since(early).ok();
    // It told whole seconds, and did so between the question and the answer.
    let behind = apart(theirs + Duration::from_secs(1), asked);
    let ahead = apart(answered, theirs);
    let (skew, word) = match (behind, ahead) {
        (Some(skew), _) => (skew, "behind"),
        (None, Some(skew)) => (skew, "ahead of"),
        (None, None) => return Some(Finding::ok("clock", "the controller's is as this one")),
    };
    let milliseconds = u64::try_from(skew.as_millis()).unwrap_or(u64::MAX);
    let detail = format!(
        "the controller's is {} {word} this one",
        text::span(milliseconds)
    );
    Some(if skew > SKEW {
        Finding::new("clock", Verdict::Warn, detail)
            .remedy("times of Slurm and of herd do not fit together: let NTP set both clocks")
    } else {
        Finding::ok("clock", detail)
    })
}

/// Everything that is a setting.
pub(super) fn all(survey: &Survey, backend: &SlurmBackend) -> Vec<Finding> {
    let mut findings = vec![
        accounting(survey),
        memory(survey),
        preemption(survey),
        processes(survey),
        queueing(survey),
        mpi(survey),
        images(survey),
    ];
    findings.extend(defaults(survey, backend));
    findings
}

fn accounting(survey: &Survey) -> Finding {
    let config = &survey.facts.config;
    match &survey.database {
        None => {
            let kept = config.min_job_age().map_or(300, |age| age.ms / 1000);
            let detail =
                format!("no database: Slurm forgets jobs {kept} s after their end (MinJobAge)");
            Finding::new("accounting", Verdict::Warn, detail).remedy(
                "herd keeps its own records; a job that dies with its node and is not looked at in \
                 that time stays without an end. `AccountingStorageType=accounting_storage/slurmdbd` helps",
            )
        }
        Some(Err(error)) => Finding::new("accounting", Verdict::Warn, error_line(error))
            .remedy("the database does not answer: is slurmdbd up?"),
        Some(Ok(qos)) => {
            let names: Vec<&str> = qos.iter().map(|qos| qos.name.as_str()).collect();
            let must = if config.enforces("associations") {
                "jobs need an account"
            } else {
                "jobs need no account"
            };
            Finding::ok(
                "accounting",
                format!("slurmdbd; {must}; QOS {}", names.join(", ")),
            )
        }
    }
}

fn memory(survey: &Survey) -> Finding {
    let config = &survey.facts.config;
    if config.divides_memory() && config.bounds_memory() {
        return Finding::ok("memory", "divided among jobs, which are kept within it");
    }
    if config.divides_memory() {
        let detail = "divided among jobs, and nothing keeps them within their part";
        return Finding::new("memory", Verdict::Warn, detail).remedy(
            "a job that takes more than `resources.memory` goes on, at the expense of others: \
             `TaskPlugin=task/cgroup` with `ConstrainRAMSpace=yes` in cgroup.conf, or \
             `JobAcctGatherParams=OverMemoryKill`, ends it",
        );
    }
    Finding::new("memory", Verdict::Warn, "not divided among jobs").remedy(
        "`resources.memory` bounds nothing; `SelectTypeParameters=CR_Core_Memory` divides it",
    )
}

fn preemption(survey: &Survey) -> Finding {
    let config = &survey.facts.config;
    if !config.preempts() {
        return Finding::ok("preemption", "none: running jobs stay");
    }
    let word = |name| config.get(name).unwrap_or("not set");
    let detail = format!("{}, {}", word("PreemptType"), word("PreemptMode"));
    if config.sends_user_signal(survey.facts.version) {
        return Finding::ok("preemption", format!("{detail}, with a signal ahead"));
    }
    Finding::new(
        "preemption",
        Verdict::Warn,
        format!("{detail}, without a signal ahead"),
    )
    .remedy(
        "set `send_user_signal` in PreemptParameters (before 23.02: `preempt_send_user_signal` in \
         SlurmctldParameters), so that jobs learn of a preemption when its grace begins",
    )
}

fn processes(survey: &Survey) -> Finding {
    let config = &survey.facts.config;
    let how = config.proctrack().unwrap_or("not set");
    if how == "cgroup" {
        return Finding::ok("processes", "found by control group (proctrack/cgroup)");
    }
    Finding::new("processes", Verdict::Warn, format!("proctrack/{how}")).remedy(
        "Slurm misses processes that leave their parents; herd ends them while its executor lives. \
         `ProctrackType=proctrack/cgroup` makes sure",
    )
}

fn queueing(survey: &Survey) -> Finding {
    let config = &survey.facts.config;
    let detail = format!(
        "a requeued job waits at least {}; a cancelled one is killed after {} (KillWait)",
        text::span(config.requeue_wait().ms),
        text::span(config.kill_wait().ms)
    );
    Finding::ok("queue", detail)
}

fn mpi(survey: &Survey) -> Finding {
    let all = &survey.mpi;
    let missing: Vec<&str> = [
        (Library::OpenMpi, "Open MPI (pmix)"),
        (Library::Mpich, "MPICH (pmi2)"),
    ]
    .into_iter()
    .filter(|(library, _)| choose(*library, all).is_none())
    .map(|(_, name)| name)
    .collect();
    let listed = if all.is_empty() {
        "srun lists no plug-ins".to_owned()
    } else {
        all.join(", ")
    };
    if missing.is_empty() {
        return Finding::ok("mpi", listed);
    }
    let detail = format!("{listed}; none for {}", missing.join(" and "));
    Finding::ok("mpi", detail).remedy("herd starts ranks with the library's own mpirun there")
}

fn images(survey: &Survey) -> Finding {
    Finding::ok(
        "images",
        match survey.images {
            Images::Pyxis => "Pyxis: `image` is the name of an image, or a file with one",
            Images::Bundles => "Slurm's OCI support: `image` is the path of a bundle on the nodes",
            Images::No => "none, neither Pyxis nor oci.conf: jobs with `image` are refused",
        },
    )
}

/// What the configuration names and the cluster does not have.
fn defaults(survey: &Survey, backend: &SlurmBackend) -> Option<Finding> {
    let name = backend.qos.as_ref()?;
    let known = survey.database.as_ref()?.as_ref().ok()?;
    if known.iter().any(|qos| qos.name == *name) {
        return None;
    }
    let detail = format!("the configuration names the QOS `{name}`, which does not exist");
    Some(
        Finding::new("configuration", Verdict::Fail, detail)
            .remedy("change `qos` in the configuration"),
    )
}
