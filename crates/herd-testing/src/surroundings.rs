//! What whoever runs the tests has in the environment, and a launcher or a job would take for its own.

use std::process::Command;

/// Beginnings of names: of schedulers, of launchers and of herd.
const BEGINNINGS: [&str; 7] = [
    "SLURM_",
    "SKYPILOT_",
    "OMPI_",
    "PMI_",
    "HERD_",
    "PET_",
    "TORCH",
];

/// Whole names.
const NAMES: [&str; 1] = ["JOB_COMPLETION_INDEX"];

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
