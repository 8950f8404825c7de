//! The workdir as it travels to nodes that do not see it: an archive of `tar`.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use herd_slurm::staging::BUNDLE;
use thiserror::Error;

/// Most bytes of a workdir.
pub const MOST: u64 = 1 << 30;
/// File in the workdir with the names of what stays behind, as `tar --exclude-from` reads them.
pub const IGNORE: &str = ".herdignore";

/// Why a workdir could not be taken along.
#[derive(Debug, Error)]
pub enum BundleError {
    /// It is too large.
    #[error("it holds more than {} MiB", MOST >> 20)]
    TooLarge,
    /// `tar` failed.
    #[error("tar {0}")]
    Tar(String),
    /// The system failed.
    #[error("could not {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// Packs `workdir` into the job's directory. Version control and what [`IGNORE`] names stay behind.
pub fn pack(workdir: &Path, job: &Path) -> Result<(), BundleError> {
    let system = |what| move |source| BundleError::System { what, source };
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(job.join(BUNDLE))
        .map_err(system("make the archive of the workdir"))?;
    let mut command = Command::new("tar");
    command.env_clear().env("PATH", "/usr/bin:/bin").args([
        "--create",
        "--file=-",
        "--exclude-vcs",
    ]);
    let ignore = workdir.join(IGNORE);
    if ignore.is_file() {
        command.arg("--exclude-from").arg(ignore);
    }
    command.arg("--directory").arg(workdir).arg(".");
    let mut tar = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(system("start tar"))?;
    let mut copied = 0;
    if let Some(out) = tar.stdout.take() {
        // A closed pipe ends it where it says too much.
        copied = io::copy(&mut out.take(MOST + 1), &mut file)
            .map_err(system("write the archive of the workdir"))?;
    }
    let ended = tar.wait_with_output().map_err(system("wait for tar"))?;
    if copied > MOST {
        return Err(BundleError::TooLarge);
    }
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        let line = said.lines().last().unwrap_or_default();
        return Err(BundleError::Tar(format!(
            "ended with {}: {line}",
            ended.status
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_ignored_stays_behind() {
        let work = tempfile::tempdir().unwrap();
        let job = tempfile::tempdir().unwrap();
        fs::create_dir_all(work.path().join(".git")).unwrap();
        for name in ["train.py", "big.bin", ".git/config"] {
            fs::write(work.path().join(name), "x").unwrap();
        }
        fs::write(work.path().join(IGNORE), "*.bin\n").unwrap();
        pack(work.path(), job.path()).unwrap();
        let list = Command::new("tar")
            .arg("-tf")
            .arg(job.path().join(BUNDLE))
            .output()
            .unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        assert!(list.contains("train.py"), "{list}");
        assert!(
            !list.contains("big.bin") && !list.contains(".git/"),
            "{list}"
        );
    }
}
