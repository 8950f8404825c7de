//! SkyPilot's `file_mounts` of local paths: herd copies nothing on this machine, so a path must be
//! where the job looks for it, itself or by a link.

use std::fs;
use std::path::{Path, PathBuf};

use herd_core::skypilot::Mount;
use herd_core::spec::JobSpec;

use super::{Surroundings, home_relative};
use crate::error::Fault;
use crate::text::shell_word;

/// Refuses every mount that is not in place, with the command that puts it there.
pub(crate) fn check(
    mounts: &[Mount],
    spec: &JobSpec,
    around: &Surroundings<'_>,
    faults: &mut Vec<Fault>,
) {
    let workdir = spec.workdir.as_deref().map_or(&*around.cwd, Path::new);
    for mount in mounts {
        let source = around.cwd.join(home_relative(&mount.source, around));
        let target = workdir.join(home_relative(&mount.target, around));
        // Without the `.` of `./data`.
        let target: PathBuf = target.components().collect();
        if let Some(fault) = problem(mount, &source, &target) {
            faults.push(fault);
        }
    }
}

fn problem(mount: &Mount, source: &PathBuf, target: &Path) -> Option<Fault> {
    let key = format!("file_mounts.{}", mount.target);
    let real = match fs::canonicalize(source) {
        Ok(real) => real,
        Err(error) => {
            let text = format!("cannot use {}: {error}", source.display());
            return Some(Fault::of(key, text));
        }
    };
    match fs::canonicalize(target) {
        Ok(there) if there == real => None,
        Ok(_) => {
            let text = format!(
                "{} is there already and is not {}; herd copies nothing on this machine",
                target.display(),
                real.display()
            );
            Some(
                Fault::of(key, text)
                    .hint("name the path itself in the command, and remove the mount"),
            )
        }
        Err(_) => {
            let text = format!(
                "{} is not there; herd copies nothing on this machine",
                target.display()
            );
            let link = format!("ln -s {} {}", shell(&real), shell(target));
            Some(Fault::of(key, text).hint(format!("`{link}` puts it there")))
        }
    }
}

fn shell(path: &Path) -> String {
    shell_word(&path.display().to_string())
}
