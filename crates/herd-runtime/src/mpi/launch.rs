//! How `mpirun` is told where its ranks go: the variables of Open MPI 4 and 5, of MPICH's Hydra and
//! of Intel MPI, side by side, since each reads only its own. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use herd_core::plan::Plan;

/// Variable with the `mpirun` to use, where it is not the first on the PATH.
pub(super) const PROGRAM_VARIABLE: &str = "MPIRUN";

/// The hosts of one job.
pub(super) struct Hosts<'a> {
    /// Names by node index, as `mpirun` is to know them.
    pub(super) names: &'a [String],
    /// Ranks on each.
    pub(super) ranks_each: u32,
}

impl Hosts<'_> {
    /// The host file as Open MPI reads it.
    pub(super) fn for_open_mpi(&self) -> String {
        self.lines(" slots=")
    }

    /// The host file as Hydra reads it.
    pub(super) fn for_hydra(&self) -> String {
        self.lines(":")
    }

    fn lines(&self, separator: &str) -> String {
        let line = |name: &String| format!("{name}{separator}{}\n", self.ranks_each);
        self.names.iter().map(line).collect()
    }
}

/// Files that the variables name.
pub(super) struct Files<'a> {
    pub(super) open_mpi_hosts: &'a Path,
    pub(super) hydra_hosts: &'a Path,
    /// Stands for ssh.
    pub(super) remote_shell: &'a Path,
}

/// What must be so for ranks to be where herd expects them.
pub(super) fn required(files: &Files<'_>) -> BTreeMap<String, String> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let hosts = path(files.open_mpi_hosts);
    let hydra_hosts = path(files.hydra_hosts);
    let shell = path(files.remote_shell);
    [
        // Open MPI 4
        ("OMPI_MCA_orte_default_hostfile", hosts.as_str()),
        ("OMPI_MCA_plm", "rsh"),
        ("OMPI_MCA_plm_rsh_agent", &shell),
        ("OMPI_MCA_ras", "^slurm"),
        ("OMPI_MCA_rmaps_base_mapping_policy", "slot"),
        ("OMPI_MCA_orte_keep_fqdn_hostnames", "1"),
        // Open MPI 5 (PRRTE)
        ("PRTE_MCA_prte_default_hostfile", &hosts),
        ("PRTE_MCA_plm", "ssh"),
        ("PRTE_MCA_plm_ssh_agent", &shell),
        ("PRTE_MCA_ras", "^slurm"),
        (
            "PRTE_MCA_rmaps_default_mapping_policy",
            "slot:OVERSUBSCRIBE",
        ),
        ("PRTE_MCA_prte_keep_fqdn_hostnames", "1"),
        // MPICH and its relatives
        ("HYDRA_LAUNCHER", "ssh"),
        ("HYDRA_LAUNCHER_EXEC", &shell),
        ("HYDRA_HOST_FILE", &hydra_hosts),
        ("HYDRA_RMK", "user"),
        // Intel MPI
        ("I_MPI_HYDRA_BOOTSTRAP", "ssh"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", &shell),
        ("I_MPI_HYDRA_HOST_FILE", &hydra_hosts),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect()
}

/// What a user may have set otherwise. Herd counts ranks, so more of them than cores is no mistake.
pub(super) fn defaults(root: bool, one_machine: bool) -> Vec<(&'static str, &'static str)> {
    let mut defaults = vec![("OMPI_MCA_rmaps_base_oversubscribe", "1")];
    if root {
        // The user has chosen to be root before herd came.
        defaults.extend([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
            ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ]);
    }
    if one_machine {
        defaults.extend([
            // Nothing of the job leaves this machine. PRRTE takes loopback where there is no other.
            ("OMPI_MCA_oob_tcp_if_include", "lo"),
            ("OMPI_MCA_btl_tcp_if_include", "lo"),
            ("HYDRA_IFACE", "lo"),
            // Each emulated node would bind its ranks to the same first cores.
            ("OMPI_MCA_hwloc_base_binding_policy", "none"),
            ("PRTE_MCA_hwloc_default_binding_policy", "none"),
            // Ranks that wait give their core to those that share it.
            ("OMPI_MCA_mpi_yield_when_idle", "1"),
        ]);
    }
    defaults
}

/// `mpirun` with as many shims as there are ranks; `shim` is the program and its arguments.
pub(super) fn argv(program: &str, plan: &Plan, shim: &[String]) -> Vec<String> {
    let world = plan.world_size().to_string();
    let mut argv = vec![program.to_owned(), "-n".to_owned(), world];
    argv.extend(shim.iter().cloned());
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_library_gets_its_own_form_of_the_hosts() {
        let names = ["a".to_owned(), "b.c".to_owned()];
        let hosts = Hosts {
            names: &names,
            ranks_each: 2,
        };
        assert_eq!(hosts.for_open_mpi(), "a slots=2\nb.c slots=2\n");
        assert_eq!(hosts.for_hydra(), "a:2\nb.c:2\n");
    }

    #[test]
    fn only_jobs_of_one_machine_stay_on_loopback() {
        let has =
            |defaults: &[(&str, &str)]| defaults.contains(&("OMPI_MCA_btl_tcp_if_include", "lo"));
        assert!(has(&defaults(false, true)));
        assert!(!has(&defaults(true, false)));
    }
}
