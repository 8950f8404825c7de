//! One call of a Slurm command, and the environment it may see.

/// Times come as seconds since the Unix epoch: readable whatever the time zones of the two hosts.
/// `squeue`, `sacct`, `scontrol show` and `sbatch --test-only` heed it (22.05 to 26.05).
const EPOCH: (&str, &str) = ("SLURM_TIME_FORMAT", "%s");

/// A command with its arguments. Nothing in it is secret, and no shell reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Name of the program, looked for on the administrator's `PATH`.
    pub program: &'static str,
    /// Arguments.
    pub args: Vec<String>,
    /// Variables to set besides those that [`command_keeps`] lets through.
    pub env: Vec<(&'static str, &'static str)>,
}

impl Call {
    /// A call whose output is read.
    pub(crate) fn new<S: Into<String>>(
        program: &'static str,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            program,
            args: args.into_iter().map(Into::into).collect(),
            env: vec![EPOCH],
        }
    }

    /// The same call of one of several clusters that share an accounting database.
    #[must_use]
    pub fn on_cluster(mut self, cluster: Option<&str>) -> Self {
        // `scontrol` wants it before its verb, and the others do not mind.
        if let Some(cluster) = cluster.filter(|_| !OF_NO_CLUSTER.contains(&self.program)) {
            self.args.insert(0, format!("--clusters={cluster}"));
        }
        self
    }
}

/// Commands without the option: the database is one for all clusters, and `sbcast` goes by the job.
const OF_NO_CLUSTER: &[&str] = &["sacctmgr", "sbcast"];

/// Variables by which Slurm's commands are told where and as whom, and nothing else.
const CONNECTION: &[&str] = &["SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"];

/// Whether a Slurm command that herd starts may see this variable of herd's own environment.
///
/// The variables of Slurm's commands change what they do and print: `SBATCH_*` even overrides what
/// the batch script says, so each is a way past the job file.
pub fn command_keeps(name: &str) -> bool {
    const COMMANDS: &[&str] = &[
        "SLURM_",
        "SLURMD_",
        "SBATCH_",
        "SALLOC_",
        "SRUN_",
        "SQUEUE_",
        "SACCT_",
        "SACCTMGR_",
        "SINFO_",
        "SCANCEL_",
        "SCONTROL_",
        "SSHARE_",
        "SPRIO_",
        "SREPORT_",
        "LD_",
    ];
    CONNECTION.contains(&name) || !COMMANDS.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether `srun` inside the job may see this variable of the batch script.
///
/// `srun` reads most of its options from variables that the job itself set: `SLURM_NTASKS` makes
/// six tasks of three nodes, `SLURM_EXPORT_ENV` starts tasks without `PATH`, `SLURM_CPU_BIND`
/// confines. What only informs is passed on, since the step does not set all of it again.
pub fn step_keeps(name: &str) -> bool {
    const INFORMING: &[&str] = &["SLURM_JOB_", "SLURM_ARRAY_", "SLURM_SUBMIT_"];
    const NAMES: &[&str] = &[
        "SLURM_JOBID",
        "SLURM_CLUSTER_NAME",
        "SLURM_NODELIST",
        "SLURM_NODE_ALIASES",
        "SLURM_RESTART_COUNT",
    ];
    // The one of them that is an option: the name of the step.
    if name == "SLURM_JOB_NAME" {
        return false;
    }
    let ours = name.starts_with("SLURM_") || name.starts_with("SLURMD_");
    !(ours || name.starts_with("SRUN_") || name.starts_with("SBATCH_"))
        || CONNECTION.contains(&name)
        || NAMES.contains(&name)
        || INFORMING.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i13_no_variable_gets_past_the_job_file() {
        for name in ["PATH", "HOME", "SLURM_CONF", "SLURM_JWT", "KRB5CCNAME"] {
            assert!(command_keeps(name), "{name}");
        }
        for name in [
            "SBATCH_ACCOUNT",
            "SBATCH_EXPORT",
            "SQUEUE_FORMAT",
            "SLURM_CLUSTERS",
            "SLURM_TIME_FORMAT",
            "LD_PRELOAD",
        ] {
            assert!(!command_keeps(name), "{name}");
        }
    }

    #[test]
    fn a_step_inherits_information_but_no_shape() {
        for name in [
            "PATH",
            "HERD_KEY",
            "SLURM_CONF_SERVER",
            "SLURM_JOB_ID",
            "SLURM_JOB_PARTITION",
            "SLURM_ARRAY_TASK_ID",
            "SLURM_RESTART_COUNT",
        ] {
            assert!(step_keeps(name), "{name}");
        }
        for name in [
            "SLURM_NTASKS",
            "SLURM_EXPORT_ENV",
            "SLURM_CPU_BIND",
            "SLURM_MEM_PER_NODE",
            "SLURM_TRES_PER_TASK",
            "SLURM_JOB_NAME",
            "SLURM_GPUS",
        ] {
            assert!(!step_keeps(name), "{name}");
        }
    }

    #[test]
    fn a_cluster_is_named_before_all_else() {
        let call = Call::new("scontrol", ["show", "config"]).on_cluster(Some("big"));
        assert_eq!(call.args, ["--clusters=big", "show", "config"]);
        let call = Call::new("sacctmgr", ["show", "qos"]).on_cluster(Some("big"));
        assert_eq!(call.args, ["show", "qos"]);
    }
}
