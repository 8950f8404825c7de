//! The ways a step can meet its MPI library: `srun --mpi=list`.

use serde::{Deserialize, Serialize};

use crate::call::Call;

/// What to ask. The answer came on standard error in older releases, so both are to be read.
pub fn call() -> Call {
    Call::new("srun", ["--mpi=list"])
}

/// The MPI library of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Library {
    /// Open MPI.
    OpenMpi,
    /// MPICH, or one made from it.
    Mpich,
}

/// Names of the plug-ins, in Slurm's order. A name without a plug-in that loads is not listed by
/// Slurm, but a plug-in that is listed may still fail on nodes.
pub fn parse(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.strip_prefix("srun:").unwrap_or(line).trim();
        // `specific pmix plugin versions available: pmix_v3,pmix_v4`
        let words = match line.split_once(':') {
            Some((before, after)) if before.contains("plugin versions") => after,
            Some(_) => continue,
            // "MPI plugin types are..."
            None if line.contains(' ') => continue,
            None => line,
        };
        for name in words.split(',').map(str::trim) {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if !name.is_empty() && name.bytes().all(plain) && !names.iter().any(|n| n == name) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// The plug-in for a library; none where `mpirun` has to start the ranks. A wrong one mostly does
/// not fail but gives as many jobs of one rank, so nothing is tried at random.
pub fn choose(library: Library, plugins: &[String]) -> Option<&str> {
    let wanted: &[&str] = match library {
        Library::OpenMpi => &["pmix", "pmix_v5", "pmix_v4", "pmix_v3", "pmix_v2"],
        Library::Mpich => &["pmi2"],
    };
    let has = |name: &&&str| plugins.iter().any(|plugin| plugin == **name);
    wanted.iter().find(has).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plug_ins_are_read_from_either_layout() {
        let new = "MPI plugin types are...\n\tnone\n\tpmix\n\tcray_shasta\n\tpmi2\n\
                   specific pmix plugin versions available: pmix_v4,pmix_v5\n";
        assert_eq!(
            parse(new),
            ["none", "pmix", "cray_shasta", "pmi2", "pmix_v4", "pmix_v5"]
        );
        let old = "srun: MPI types are...\nsrun: cray_shasta\nsrun: none\nsrun: pmi2\n";
        assert_eq!(parse(old), ["cray_shasta", "none", "pmi2"]);
        assert!(parse("srun: error: no such thing: x y\n").is_empty());
    }

    #[test]
    fn a_library_gets_its_own_or_none() {
        let plugins = parse("MPI plugin types are...\n\tnone\n\tpmi2\n");
        assert_eq!(choose(Library::Mpich, &plugins), Some("pmi2"));
        assert_eq!(choose(Library::OpenMpi, &plugins), None);
    }
}
