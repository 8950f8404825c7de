//! What the workers of this node are: how many, what each runs, and what becomes of what it writes.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::LaunchError;
use crate::accelerators;
use crate::agent::{Streams, Worker, WorkerCommand};
use crate::cpus;
use crate::torchrun::command;
use crate::torchrun::flags::{Flags, NprocPerNode};
use crate::torchrun::macros::{self, PrefixValues};
use crate::torchrun::numa::{self, NumaError};
use crate::torchrun::worker_env::{self, worker_env};
use crate::world::World;

/// How many there are.
pub(super) fn count(flags: &Flags) -> Result<u32, LaunchError> {
    let cpus = || {
        std::thread::available_parallelism()
            .map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
    };
    // Opens the devices, which may wake them: only where their number is asked for.
    let gpus = || {
        let found = accelerators::of_this_process(&Vec::new).len();
        let found = u32::try_from(found).unwrap_or(u32::MAX);
        (found > 0).then_some(found)
    };
    Ok(match flags.nproc_per_node {
        NprocPerNode::Count(count) => count,
        NprocPerNode::Cpu => cpus(),
        NprocPerNode::Gpu => gpus().ok_or(LaunchError::NoAccelerator("gpu"))?,
        NprocPerNode::Xpu => return Err(LaunchError::NoAccelerator("xpu")),
        NprocPerNode::Auto => gpus().unwrap_or_else(cpus),
    })
}

/// What becomes of the streams of the worker with a local rank.
pub(super) fn streams(flags: &Flags, world: &World, rank: u32) -> Streams {
    let (redirect, tee) = (flags.redirects.of(rank), flags.tee.of(rank));
    let global = world.first_rank.saturating_add(rank);
    let on_console = match (&flags.tee_ranks, &flags.local_ranks_filter) {
        // The console has these, files have all.
        (Some(ranks), _) if !ranks.contains(global) => {
            return Streams {
                redirect_out: true,
                redirect_err: true,
                silent: true,
                ..Streams::default()
            };
        }
        (Some(_), _) => {
            return Streams {
                tee_out: true,
                tee_err: true,
                ..Streams::default()
            };
        }
        (None, filter) => filter.as_ref().is_none_or(|ranks| ranks.contains(rank)),
    };
    Streams {
        redirect_out: redirect.has_out(),
        redirect_err: redirect.has_err(),
        tee_out: tee.has_out(),
        tee_err: tee.has_err(),
        silent: !on_console,
    }
}

/// What all workers of this node have in common.
#[derive(Debug)]
pub(super) struct Describer {
    pub(super) flags: Flags,
    /// None where the script is a program of its own.
    pub(super) interpreter: Option<PathBuf>,
    pub(super) run_id: String,
    pub(super) workers: u32,
    pub(super) hostname: String,
}

impl Describer {
    /// Program, environment, header and processors of one worker.
    pub(super) fn describe(&self, worker: &Worker<'_>) -> Result<WorkerCommand, String> {
        let flags = &self.flags;
        let own: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let attempt = worker_env::Attempt {
            world: worker.world,
            local_world_size: self.workers,
            restart_count: worker.attempt,
            run_id: &self.run_id,
        };
        let error_file = worker.files.error.as_os_str();
        let variable = |name: &str| std::env::var_os(name);
        let env = worker_env(flags, &attempt, worker.local_rank, error_file, &variable)
            .map_err(|error| error.to_string())?;
        let header = match &flags.log_line_prefix_template {
            Some(template) => macros::prefix(
                template,
                &PrefixValues {
                    role_name: &flags.role,
                    rank: worker.world.first_rank.saturating_add(worker.local_rank),
                    local_rank: worker.local_rank,
                    node_rank: worker.world.node_rank,
                    hostname: &self.hostname,
                },
            ),
            None => macros::default_prefix(&flags.role, worker.local_rank),
        };
        Ok(WorkerCommand {
            argv: command::argv(flags, self.interpreter.as_deref(), worker.local_rank),
            env: env.over(&own),
            header,
            cpus: near_device(flags, worker.local_rank).map_err(|error| error.to_string())?,
        })
    }
}

/// The processors that a worker is bound to, where it is to be bound.
fn near_device(flags: &Flags, rank: u32) -> Result<Option<Vec<usize>>, NumaError> {
    let Some(mode) = flags.numa_binding else {
        return Ok(None);
    };
    let root = numa::sysfs_root();
    let list = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let devices = numa::visible(&numa::accelerators(&root), list.as_deref())?;
    numa::cpus(&root, mode, &devices, rank, &cpus::allowed()).map(Some)
}

pub(super) fn is_program(path: &Path) -> bool {
    let found = std::fs::metadata(path);
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

pub(super) fn full_host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

pub(super) fn short_host_name() -> String {
    let full = full_host_name();
    full.split('.').next().unwrap_or_default().to_owned()
}
