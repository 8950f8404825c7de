//! The workdir as it travels to nodes that do not see it: an archive beside the job's records.

use std::fs::File;
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use herd_slurm::staging::BUNDLE;
use herd_workdir::{Tree, TreeError};
use thiserror::Error;

/// Why a workdir could not be taken along.
#[derive(Debug, Error)]
pub enum BundleError {
    /// It is not to be packed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The archive could not be written.
    #[error("cannot write the archive of it: {0}")]
    Write(#[from] io::Error),
}

/// Packs `workdir` into the job's directory, but for what stays behind.
pub fn pack(workdir: &Path, job: &Path) -> Result<(), BundleError> {
    let tree = Tree::survey(workdir)?;
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(job.join(BUNDLE))?;
    tree.write(BufWriter::new(file))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use herd_workdir::IGNORE;

    use super::*;

    #[test]
    fn what_is_ignored_stays_behind() {
        let work = tempfile::tempdir().unwrap();
        let job = tempfile::tempdir().unwrap();
        for name in ["train.py", "big.bin"] {
            fs::write(work.path().join(name), "x").unwrap();
        }
        fs::write(work.path().join(IGNORE), "*.bin\n").unwrap();
        pack(work.path(), job.path()).unwrap();
        // With the tar of the nodes.
        let list = Command::new("tar")
            .arg("-tf")
            .arg(job.path().join(BUNDLE))
            .output()
            .unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        assert!(list.contains("train.py"), "{list}");
        assert!(!list.contains("big.bin"), "{list}");
    }
}
