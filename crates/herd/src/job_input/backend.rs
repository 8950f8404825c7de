//! Which backend runs a job, by the order of preference; a pure function over what is known.

use herd_core::text::nearest;

use crate::backends::{LOCAL, SLURM};
use crate::error::Fault;

/// Backends that later releases have.
const LATER: &[&str] = &["kueue", "ray"];

/// What the choice depends on besides names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Whether `sbatch` is on PATH.
    pub(crate) has_sbatch: bool,
    /// Slurm's job id, inside an allocation.
    pub(crate) allocation: Option<String>,
    /// Whether the job asks for GPUs.
    pub(crate) wants_gpus: bool,
    /// Backends that the configuration names.
    pub(crate) configured: Vec<String>,
    /// The configuration's choice for jobs that name none.
    pub(crate) default: Option<String>,
}

/// A backend and what to say about the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Its name.
    pub(crate) backend: String,
    /// Said to the user where the choice may surprise.
    pub(crate) note: Option<String>,
}

/// The flag decides, else the file, else where we are; `auto` is no decision.
pub(crate) fn resolve(
    flag: Option<&str>,
    file: Option<&str>,
    facts: &Facts,
) -> Result<Choice, Fault> {
    let named = [flag, file]
        .into_iter()
        .flatten()
        .find(|name| *name != "auto");
    if let Some(name) = named {
        return explicit(name, facts);
    }
    let local = |note: Option<String>| Choice {
        backend: LOCAL.to_owned(),
        note,
    };
    if let Some(id) = &facts.allocation {
        let note = format!("backend local, on this node of Slurm allocation {id} alone");
        return Ok(local(Some(note)));
    }
    if let Some(name) = facts.default.as_deref().filter(|name| *name != "auto") {
        let choice = explicit(name, facts)?;
        let note = format!("backend {name}, as the configuration says");
        return Ok(Choice {
            note: Some(note),
            ..choice
        });
    }
    if facts.has_sbatch && facts.wants_gpus {
        return Err(Fault::new(
            "backend auto: this machine hands jobs to Slurm, and this job asks for GPUs",
        )
        .hint("`-b slurm` hands it over, `-b local` runs it on this machine all the same"));
    }
    let note = facts
        .has_sbatch
        .then(|| "backend local, although this machine has Slurm (`-b slurm`)".to_owned());
    Ok(local(note))
}

fn explicit(name: &str, facts: &Facts) -> Result<Choice, Fault> {
    let known = || {
        let configured = facts.configured.iter().map(String::as_str);
        [LOCAL, SLURM].into_iter().chain(configured)
    };
    if known().any(|known| known == name) {
        return Ok(Choice {
            backend: name.to_owned(),
            note: None,
        });
    }
    let hint = "`-b local` runs the job on this machine";
    if LATER.contains(&name) {
        let text = format!("backend {name}: the {name} backend is not available in this release");
        return Err(Fault::new(text).hint(hint));
    }
    let fault = Fault::new(format!("backend {name:?}: no backend has this name"));
    Err(match nearest(name, known()) {
        Some(near) => fault.hint(format!("did you mean `{near}`?")),
        None => fault.hint(hint),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(has_sbatch: bool, allocation: bool, wants_gpus: bool) -> Facts {
        Facts {
            has_sbatch,
            allocation: allocation.then(|| "71".to_owned()),
            wants_gpus,
            ..Facts::default()
        }
    }

    #[test]
    fn the_flag_wins_over_the_file() {
        let nothing = facts(true, false, true);
        assert_eq!(
            resolve(Some("local"), Some("slurm"), &nothing)
                .unwrap()
                .backend,
            "local"
        );
        let slurm = resolve(Some("slurm"), Some("local"), &nothing).unwrap();
        assert_eq!(slurm.backend, "slurm");
        assert!(
            resolve(None, Some("local"), &nothing)
                .unwrap()
                .note
                .is_none()
        );
        assert!(resolve(Some("auto"), Some("kueue"), &nothing).is_err());
    }

    #[test]
    fn i13_backends_of_later_releases_are_refused_with_that_sentence() {
        for name in ["kueue", "ray"] {
            let fault = resolve(Some(name), None, &Facts::default()).unwrap_err();
            assert!(
                fault.text.contains("not available in this release"),
                "{fault:?}"
            );
        }
        let fault = resolve(Some("\u{1b}x"), None, &Facts::default()).unwrap_err();
        assert!(fault.text.contains("no backend has this name"), "{fault:?}");
    }

    #[test]
    fn the_configuration_names_backends_and_the_default() {
        let facts = Facts {
            configured: vec!["big".to_owned()],
            default: Some("big".to_owned()),
            ..facts(true, false, true)
        };
        let chosen = resolve(None, Some("auto"), &facts).unwrap();
        assert_eq!(chosen.backend, "big");
        assert!(chosen.note.is_some());
        assert_eq!(
            resolve(Some("local"), None, &facts).unwrap().backend,
            "local"
        );
        let fault = resolve(Some("bgi"), None, &facts).unwrap_err();
        assert_eq!(fault.hint.as_deref(), Some("did you mean `big`?"));
    }

    #[test]
    fn gpus_beside_sbatch_need_a_word() {
        let fault = resolve(None, None, &facts(true, false, true)).unwrap_err();
        assert!(fault.hint.unwrap().contains("-b local"));
        assert!(
            resolve(None, None, &facts(true, false, false))
                .unwrap()
                .note
                .is_some()
        );
        assert!(
            resolve(None, Some("auto"), &facts(false, false, true))
                .unwrap()
                .note
                .is_none()
        );
        let inside = resolve(None, None, &facts(true, true, true)).unwrap();
        assert!(inside.note.unwrap().contains("allocation 71"));
    }
}
