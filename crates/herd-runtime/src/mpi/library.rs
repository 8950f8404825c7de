//! Which MPI library a running program has loaded. A program that was built with another library than
//! `mpirun`'s does not fail: each rank finds itself alone, computes the whole, and ends with 0. So the
//! shim looks what its rank has mapped and says so instead.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use herd_launch::{Pid, tree};

use super::starter::STEP_VARIABLE;

/// When a rank is looked at, from its start. Programs load their libraries first, and MPI takes longer
/// to initialise than the first of these.
pub(super) const LOOKS: [Duration; 5] = [
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// Libraries that start their ranks alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    OpenMpi,
    /// MPICH and what shares its binary interface (Intel MPI, MVAPICH, Cray MPICH).
    Mpich,
}

impl Family {
    /// Whose `mpirun`, or way to meet, has made this environment.
    pub(super) fn of_launcher(variable: impl Fn(&str) -> Option<String>) -> Self {
        let step = variable(STEP_VARIABLE).is_some();
        if variable("OMPI_COMM_WORLD_SIZE").is_some() || step && variable("PMIX_RANK").is_some() {
            Self::OpenMpi
        } else {
            Self::Mpich
        }
    }

    /// As people call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }
}

/// What is wrong with a rank that was started by `launcher`, or by a step of Slurm that meets its library
/// that way, as far as its processes show it now.
pub(super) fn mismatch(rank: Pid, launcher: Family, by_step: bool) -> Option<String> {
    let processes = std::iter::once(rank).chain(tree::descendants(rank));
    let loaded: BTreeSet<Family> = processes
        .filter_map(|pid| fs::read_to_string(format!("/proc/{}/maps", pid.as_raw_nonzero())).ok())
        .flat_map(|maps| families(&maps))
        .collect();
    let other = loaded.iter().find(|&&family| family != launcher)?;
    let other = (!loaded.contains(&launcher)).then(|| other.name())?;
    let launcher = launcher.name();
    Some(if by_step {
        format!(
            "the program was built with {other}, and srun has met it as {launcher}: each rank would run \
             alone; put the mpirun of {other} first on the PATH of the job, or set SLURM_MPI_TYPE to what \
             {other} meets by (pmix, pmi2), or to none for its mpirun"
        )
    } else {
        format!(
            "the program was built with {other}, and mpirun is {launcher}'s: each rank would run alone; \
             put the mpirun of {other} first on the PATH of the job, or name it in the variable MPIRUN"
        )
    })
}

/// The families whose libraries a process has mapped.
fn families(maps: &str) -> BTreeSet<Family> {
    let mut found = BTreeSet::new();
    for path in maps.lines().filter_map(|line| line.rsplit('/').next()) {
        // Both call their main library libmpi; these names are of one only.
        if path.starts_with("libopen-pal.so") || path.starts_with("libopen-rte.so") {
            found.insert(Family::OpenMpi);
        } else if path.starts_with("libmpich.so") || path.starts_with("libmpi.so.12.") {
            found.insert(Family::Mpich);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_known_by_the_file_that_is_mapped() {
        let line = |path: &str| format!("7f00-7f01 r--p 00000000 fe:00 12 {path}\n");
        let open_mpi = line("/usr/lib/x/libopen-pal.so.40.30.2") + &line("/usr/lib/libm.so.6");
        assert_eq!(families(&open_mpi), BTreeSet::from([Family::OpenMpi]));
        let mpich = line("/opt/lib/libmpich.so.12.2.2");
        assert_eq!(families(&mpich), BTreeSet::from([Family::Mpich]));
        assert!(families(&line("/usr/bin/bash")).is_empty());
    }
}
