//! What is said of the workers' ends: the report, the reason told to other nodes, the summary.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Status;
use super::workers::full_host_name;
use crate::agent::{WorkerEnd, exit_code};
use crate::sys;
use crate::torchrun::command;
use crate::torchrun::failure::{ProcessFailure, root_cause};
use crate::torchrun::flags::{ExitRule, Flags};
use crate::torchrun::parent_copy::copy_to_parent;
use crate::torchrun::report::{Reported, report};
use crate::world::World;

/// The report of an attempt after which there is none, and the code that goes with it.
pub(super) fn failed(flags: &Flags, world: &World, ends: &[WorkerEnd]) -> Status {
    let failures = failures(world, ends);
    let Some(root) = root_cause(&failures) else {
        return Status {
            code: 1,
            report: "herd launch: the workers failed\n".to_owned(),
        };
    };
    let host = full_host_name();
    let reported: Vec<Reported<'_>> = failures
        .iter()
        .map(|(&rank, failure)| Reported {
            rank,
            host: &host,
            failure,
        })
        .collect();
    let mut text = report(&command::title(flags), &reported, root, &sys::local_time);
    text.push('\n');
    let first = failures.get(&root);
    if let (Some(first), Some(parent)) = (first, std::env::var_os("TORCHELASTIC_ERROR_FILE")) {
        if let Err(error) = copy_to_parent(first, Path::new(&parent)) {
            text.extend(["herd launch: warning: ", &error.to_string(), "\n"]);
        }
    }
    let code = match (flags.exit_rule, first) {
        (ExitRule::Worker, Some(first)) => first.end.code(),
        _ => 1,
    };
    Status { code, report: text }
}

fn failures(world: &World, ends: &[WorkerEnd]) -> BTreeMap<u32, ProcessFailure> {
    ends.iter()
        .filter(|end| !end.exit.end.is_success())
        .map(|end| {
            let file = (!end.error_file.as_os_str().is_empty()).then_some(&*end.error_file);
            let mut failure = ProcessFailure::read(end.local_rank, end.pid, &end.exit, file);
            failure.note = failure.note.or_else(|| end.note.clone());
            (world.first_rank.saturating_add(end.local_rank), failure)
        })
        .collect()
}

/// What failed, for one line here and for the other nodes.
pub(super) fn reason(world: &World, local_rank: u32, what: &str) -> String {
    let rank = world.first_rank.saturating_add(local_rank);
    format!("rank {rank} (local rank {local_rank}) {what}")
}

/// Whether all workers ended well, and by themselves.
pub(super) fn all_done(ends: &[WorkerEnd]) -> bool {
    let done = |end: &WorkerEnd| end.exit.end.is_success() && !end.exit.stopped;
    ends.iter().all(done)
}

/// What each worker used, for `--summary`.
pub(super) fn summary(world: &World, ends: &[WorkerEnd], began: Instant) -> String {
    let s = if ends.len() == 1 { "" } else { "s" };
    let mut text = format!(
        "herd launch: {} worker{s} in {:.1} s\n  rank  exit  cpu (s)  peak (MiB)\n",
        ends.len(),
        began.elapsed().as_secs_f64()
    );
    for end in ends {
        let line = format!(
            "  {:>4}  {:>4}  {:>7.1}  {:>10}\n",
            world.first_rank.saturating_add(end.local_rank),
            exit_code(end.exit.end),
            Duration::from_millis(end.exit.cpu_ms).as_secs_f64(),
            end.exit.peak_kib / 1024
        );
        text.push_str(&line);
    }
    text
}
