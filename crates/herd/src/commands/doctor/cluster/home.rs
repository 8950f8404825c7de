//! Checks of what nodes have to see: herd's programs and the directory with jobs.

use std::path::Path;

use herd_core::text::error_line;

use crate::backend_slurm;
use crate::commands::doctor::{Finding, Verdict};
use crate::config::SlurmBackend;
use crate::{file_system, jobs};

/// What to do where nodes may not see a directory, and how to find out.
const TRY: &str = "nodes must see it under the same path: `herd run -b BACKEND -- true` shows whether they do; where \
     nodes share no directory, say `shared_home = false` in the configuration";

/// The same for a cluster whose nodes share no directory with this machine.
pub(super) fn staged(backend: &SlurmBackend) -> Finding {
    let room = backend
        .node_dir
        .as_deref()
        .unwrap_or_else(|| Path::new("/tmp"));
    let detail = format!(
        "not shared; jobs are staged to {} of their nodes",
        room.display()
    );
    match backend_slurm::node_program() {
        Ok(_) => Finding::ok("home", detail).remedy(
            "nodes must reach this machine as for `srun` from here: `herd run -b BACKEND -- true` shows \
             whether they do",
        ),
        Err(error) => Finding::new("program", Verdict::Fail, error_line(&error))
            .remedy("install herd-node beside herd, from where it is taken to the nodes"),
    }
}

/// The small binary beside this one.
pub(super) fn program() -> Finding {
    let found = match backend_slurm::node_program() {
        Ok(found) => found,
        Err(error) => {
            return Finding::new("program", Verdict::Fail, error_line(&error))
                .remedy("install herd-node beside herd, in a directory that the nodes see");
        }
    };
    seen("program", &found, found.display().to_string())
}

/// The directory with jobs.
pub(super) fn directory(home: Option<&Path>) -> Finding {
    match jobs::open_home(home) {
        Ok(home) => seen("home", home.path(), home.path().display().to_string()),
        Err(error) => Finding::new("home", Verdict::Fail, error_line(&error))
            .remedy("set HERD_HOME to a directory that you can write to and that the nodes see"),
    }
}

fn seen(check: &'static str, path: &Path, shown: String) -> Finding {
    if let Some(why) = file_system::of_one_machine(path) {
        let detail = format!("{why}, which each machine has for itself");
        return Finding::new(check, Verdict::Warn, detail).remedy(match check {
            "home" => "set HERD_HOME to a directory on the shared file system",
            _ => "install herd and herd-node on the shared file system",
        });
    }
    match file_system::of(path) {
        Some(found) if found.network => Finding::ok(check, format!("{shown}, on {}", found.name)),
        Some(found) => {
            let detail = format!("{shown}, on {}, a file system of this machine", found.name);
            Finding::ok(check, detail).remedy(TRY)
        }
        None => Finding::ok(check, shown).remedy(TRY),
    }
}
