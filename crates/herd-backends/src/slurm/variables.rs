//! What a job's command is told of Slurm besides what its executor's own step tells.

use herd_core::plan::Plan;
use herd_core::spec::SlurmEnvironment;
use herd_runtime::environment::SLURM_MEMORY;

use super::record::Site;

/// What `sbatch` does not give a script of the user's: the first four come of how herd submits and would
/// change what Slurm's commands in the script do; the others of options that each of its scripts has, and of the
/// user's script they stand in the job's `env` where its own options would set them.
const OF_HERD: &[&str] = &[
    "SLURM_EXPORT_ENV",
    "SLURM_GET_USER_ENV",
    "SLURM_OPEN_MODE",
    "SLURM_TIME_FORMAT",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
];

/// The plan with the variables that Slurm has given to the batch script, which are `own`, as far as the
/// job's command is to have them. What the job says in `env` stands.
pub(super) fn with_those_of_slurm(
    plan: &Plan,
    site: &Site,
    own: impl Iterator<Item = (String, String)>,
) -> Plan {
    let mut plan = plan.clone();
    let says_memory = SLURM_MEMORY.iter().any(|name| plan.env.contains_key(*name));
    let mut say = |name: &str, value: String| {
        plan.env.entry(name.to_owned()).or_insert(value);
    };
    if let Some(directory) = &site.submit_dir {
        say("SLURM_SUBMIT_DIR", directory.clone());
    }
    if site.environment == SlurmEnvironment::Rank {
        return plan;
    }
    // Slurm's own name of the job has a part that makes it the only one.
    say("SLURM_JOB_NAME", plan.name.clone());
    for (name, value) in own {
        let of_batch =
            name.starts_with("SLURM_") || name.starts_with("SLURMD_") || name == "ENVIRONMENT";
        let second = says_memory && SLURM_MEMORY.contains(&name.as_str());
        if of_batch && !second && !OF_HERD.contains(&name.as_str()) {
            say(&name, value);
        }
    }
    plan
}
