//! What a script does not see of the step that its executor runs in (§4): `srun` takes these as its own
//! options, and a step that the script starts would silently get this step's shape. Pure.

/// Beginnings of names.
const PREFIXES: &[&str] = &["SLURM_STEP_", "SLURM_CPU_BIND", "SLURM_MEM_BIND"];
/// Names.
const NAMES: &[&str] = &[
    "SLURM_CPUS_PER_TASK",
    "SLURM_TRES_PER_TASK",
    "SLURM_CPUS_ON_NODE",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "SLURM_DISTRIBUTION",
    "SLURM_SRUN_COMM_HOST",
    "SLURM_SRUN_COMM_PORT",
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_TASK_PID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_GTIDS",
    "SLURM_STEPID",
];

/// One line for a shell, to stand before the script, so that what an export of the user or a profile
/// sets is removed too.
pub(super) fn line() -> String {
    let prefixes = PREFIXES.iter().map(|prefix| format!("\"${{!{prefix}@}}\""));
    let names = NAMES.iter().map(|&name| name.to_owned());
    let words: Vec<String> = prefixes.chain(names).collect();
    format!("unset -v {} 2>/dev/null", words.join(" "))
}
