//! What whoever runs the tests has in the environment, and a launcher or a job would take for its own.

use std::process::Command;

/// Beginnings of names: of schedulers, of launchers, of herd and of locales.
const BEGINNINGS: [&str; 8] = [
    "SLURM_",
    "SKYPILOT_",
    "OMPI_",
    "PMI_",
    "HERD_",
    "PET_",
    "TORCH",
    // bash warns in every log where a locale is not installed.
    "LC_",
];

/// Whole names.
const NAMES: [&str; 2] = ["JOB_COMPLETION_INDEX", "LANG"];

/// Starts the command without them; what is set for it afterwards stays.
pub fn remove(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_one = BEGINNINGS.iter().any(|begin| text.starts_with(begin));
        if is_one || NAMES.contains(&&*text) {
            command.env_remove(&name);
        }
    }
}

/// Gives a command the environment that another one would have: for a wrapper, or a copy of its program.
pub fn copy(from: &Command, to: &mut Command) {
    for (name, value) in from.get_envs() {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
}
