//! Options become keys of a job.

use herd_core::array::ArrayError;
use herd_core::diagnostic::{Diagnostic, Position};
use herd_core::skypilot::Note;
use herd_core::spec::{JobSpec, SlurmEnvironment, SlurmOptions};
use herd_core::text::quoted;
use herd_core::validate::{self, Refusal};

use super::fates::{Fate, OPTIONS};
use super::lines::{Given, Options};
use super::resources;
use crate::time::Limit;

/// What is found while options are read.
pub(super) struct Findings<'a> {
    pub(super) faults: &'a mut Vec<Diagnostic>,
    pub(super) notes: &'a mut Vec<Note>,
}

impl Findings<'_> {
    /// An option's value cannot be carried over.
    pub(super) fn refuse(&mut self, option: &str, given: &Given, message: &str, hint: &str) {
        let mut fault = Diagnostic::at(given.position, message).with_hint(hint);
        fault.path = format!("--{option}");
        self.faults.push(fault);
    }

    /// An option is left out, which changes no result.
    pub(super) fn note(&mut self, option: &str, position: Position, text: &str) {
        self.notes.push(Note {
            position,
            path: format!("--{option}"),
            text: text.to_owned(),
        });
    }

    fn check(&mut self, option: &str, given: &Given, result: Result<(), Refusal>) -> bool {
        let Err(refusal) = result else {
            return true;
        };
        let hint = refusal
            .hint
            .unwrap_or_else(|| "change its value".to_owned());
        self.refuse(option, given, &refusal.message, &hint);
        false
    }
}

/// Carries every option over, or says why not.
pub(super) fn apply(
    given: &Options,
    spec: &mut JobSpec,
    faults: &mut Vec<Diagnostic>,
    notes: &mut Vec<Note>,
) {
    let mut found = Findings { faults, notes };
    let mut slurm = SlurmOptions {
        environment: SlurmEnvironment::Script,
        ..SlurmOptions::default()
    };
    for (name, value) in given {
        let Some(option) = OPTIONS.iter().find(|option| option.name == *name) else {
            continue;
        };
        match option.fate {
            Fate::Ignored(why) => found.note(name, value.position, why),
            Fate::Refused(why, hint) => found.refuse(name, value, why, hint),
            Fate::Extra => {
                let text = if value.value.is_empty() {
                    format!("--{name}")
                } else {
                    format!("--{name}={}", value.value)
                };
                if found.check(name, value, validate::slurm_extra(&text)) {
                    slurm.extra.push(text);
                }
            }
            Fate::Read => read(name, value, spec, &mut slurm, &mut found),
        }
    }
    resources::apply(given, spec, &mut found);
    spec.slurm = Some(slurm);
}

fn read(
    name: &str,
    given: &Given,
    spec: &mut JobSpec,
    slurm: &mut SlurmOptions,
    found: &mut Findings<'_>,
) {
    let value = given.value.as_str();
    match name {
        "job-name" if found.check(name, given, validate::job_name(value)) => {
            spec.name = Some(value.to_owned());
        }
        "account" | "partition" | "qos" if found.check(name, given, validate::name(value)) => {
            let place = match name {
                "account" => &mut slurm.account,
                "partition" => &mut slurm.partition,
                _ => &mut slurm.qos,
            };
            *place = Some(value.to_owned());
        }
        "chdir" if found.check(name, given, validate::path(value)) => {
            spec.workdir = Some(value.to_owned());
        }
        "time" => match Limit::parse(value) {
            // 0 is Slurm's other word for no limit.
            Some(Limit::Unlimited) => {}
            Some(Limit::Of(span)) if span.ms == 0 => {}
            Some(Limit::Of(span)) => spec.walltime = Some(span),
            None => {
                let message = format!("{} is no time limit", quoted(value));
                found.refuse(name, given, &message, "write `--time=1-12:00:00`");
            }
        },
        "array" => match value.parse() {
            Ok(array) => spec.array = Some(array),
            Err(error) => {
                let error: ArrayError = error;
                found.refuse(name, given, &error.to_string(), "write `--array=0-9%2`");
            }
        },
        "export" => export(given, spec, found),
        // Amounts depend on each other: `resources`.
        _ => {}
    }
}

/// `NONE`, `ALL`, `NIL`, `NAME`, `NAME=VALUE`, in a list.
fn export(given: &Given, spec: &mut JobSpec, found: &mut Findings<'_>) {
    for entry in given.value.split(',').filter(|entry| !entry.is_empty()) {
        match entry.split_once('=') {
            Some((name, value)) => {
                let result = validate::env_name(name).and_then(|()| validate::env_value(value));
                if found.check("export", given, result) {
                    spec.env.insert(name.to_owned(), value.to_owned());
                }
            }
            None if entry.eq_ignore_ascii_case("NONE") || entry == "NIL" => {}
            None if entry.eq_ignore_ascii_case("ALL") => found.note(
                "export",
                given.position,
                "on a cluster the submitting shell's variables are not passed on; name those that \
                 the script needs",
            ),
            None => {
                if found.check("export", given, validate::env_name(entry)) {
                    spec.env_from.push(entry.to_owned());
                }
            }
        }
    }
}
