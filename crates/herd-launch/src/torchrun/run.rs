//! `herd launch` from its flags to its status: meets, starts, restarts, reports.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use herd_core::exit;
use herd_core::text::error_report;
use tokio::sync::mpsc;

use super::command::{self, NoPython};
use super::events;
use super::failure::{ProcessFailure, root_cause};
use super::flags::{ExitRule, Flags, NprocPerNode, Rendezvous};
use super::macros::{self, PrefixValues};
use super::numa::{self, NumaError};
use super::parent_copy::copy_to_parent;
use super::report::{Reported, report};
use super::worker_env::{self, worker_env};
use crate::accelerators;
use crate::agent::events::{CannotOpen, Event, Events};
use crate::agent::exit_code;
use crate::agent::layout::{Layout, LayoutError};
use crate::agent::{
    Agent, AgentError, Outcome, Settings, Streams, Told, Worker, WorkerCommand, WorkerEnd,
};
use crate::cpus;
use crate::sys;
use crate::world::World;

/// Variable with the prefix template where the flag is absent.
const TEMPLATE_VARIABLE: &str = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";

/// How a launch ended.
#[derive(Debug)]
pub struct Status {
    /// The code to exit with.
    pub code: u8,
    /// For standard error; empty, or ending with a newline.
    pub report: String,
}

/// Why nothing could be launched.
#[derive(Debug, thiserror::Error)]
enum LaunchError {
    #[error("{flag} is not available yet in this release\nhint: leave it out")]
    NotYet { flag: &'static str },
    #[error("there is no accelerator for --nproc-per-node={0}\nhint: give a number, cpu, or auto")]
    NoAccelerator(&'static str),
    #[error(transparent)]
    Python(#[from] NoPython),
    #[error(transparent)]
    Flag(#[from] super::flags::FlagError),
    #[error(transparent)]
    Events(#[from] CannotOpen),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("cannot find a free port")]
    Port(#[source] std::io::Error),
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// Launches the workers and sees them to their end. `told` brings signals.
pub async fn run(flags: Flags, told: &mut mpsc::Receiver<Told>) -> Status {
    let began = Instant::now();
    let refused = |error: LaunchError| Status {
        code: 1,
        report: format!("herd launch: {}", error_report(&error)),
    };
    let events = match events::open(&flags) {
        Ok(events) => events,
        Err(error) => return refused(error.into()),
    };
    let launched = launch(&flags, &events, told).await;
    let status = launched.unwrap_or_else(refused);
    events::ended(&events, began, status.code);
    status
}

async fn launch(
    flags: &Flags,
    events: &Events,
    told: &mut mpsc::Receiver<Told>,
) -> Result<Status, LaunchError> {
    refuse_what_is_not_there(flags)?;
    let workers = count(flags)?;
    events::started(events, flags, workers, full_host_name());
    let variable = |name: &str| std::env::var_os(name);
    let interpreter = command::interpreter(flags, &variable, &is_program)?;
    if flags.rendezvous()? != Rendezvous::Standalone {
        // Nodes that meet come with the next step of this command.
        return Err(LaunchError::NotYet {
            flag: "a rendezvous of several nodes",
        });
    }
    if worker_env::sets_omp_default(workers, &variable) {
        eprint_text(&format!("{}\n", worker_env::omp_banner(workers)));
    }
    let run_id = flags.rdzv_id.clone();
    let layout = Layout::make(flags.log_dir.as_deref(), &std::env::temp_dir(), &run_id)?;
    let hostname = short_host_name();
    let template = flags.log_line_prefix_template.clone().or_else(|| {
        let text = variable(TEMPLATE_VARIABLE)?.into_string().ok()?;
        (!text.is_empty()).then_some(text)
    });
    let own = flags.clone();
    let describe = move |worker: &Worker<'_>| {
        describe(
            &own,
            interpreter.as_deref(),
            &run_id,
            template.as_deref(),
            &hostname,
            worker,
            workers,
        )
    };
    let shown = flags.clone();
    let agent = Agent::new(Settings {
        workers,
        describe: Box::new(describe),
        streams: Box::new(move |world, rank| streams(&shown, world, rank)),
        layout,
        wanted_out: flags.duplicate_stdout_filters.clone(),
        wanted_err: flags.duplicate_stderr_filters.clone(),
        max_restarts: flags.max_restarts,
        shutdown_timeout: flags.shutdown_timeout,
        hang_timeout: flags.hang_timeout,
        events: events.clone(),
    });
    let mut restarts = 0;
    let began = Instant::now();
    loop {
        let world = alone(flags, workers)?;
        match agent.attempt(&world, restarts, told).await? {
            Outcome::Succeeded(ends) => {
                agent.settings().layout.remove_implicit();
                return Ok(Status {
                    code: exit::SUCCESS,
                    report: if flags.summary {
                        summary(&world, &ends, began)
                    } else {
                        String::new()
                    },
                });
            }
            Outcome::Failed(ends) if restarts < flags.max_restarts => {
                restarts += 1;
                let left = flags.max_restarts - restarts;
                let what = first_line(&ends);
                events.record(&Event::Restarting {
                    attempt: restarts,
                    left,
                    reason: what.clone(),
                });
                eprint_text(&format!(
                    "herd launch: {what}; attempt {restarts} begins, {left} restarts are left after it\n"
                ));
            }
            Outcome::Failed(ends) => {
                let mut status = failed(flags, &world, &ends);
                if flags.summary {
                    status.report.push_str(&summary(&world, &ends, began));
                }
                return Ok(status);
            }
            Outcome::Signalled { signal, .. } => {
                let signal = u8::try_from(signal).unwrap_or(0);
                return Ok(Status {
                    code: match flags.exit_rule {
                        ExitRule::One => 1,
                        ExitRule::Worker => 128u8.saturating_add(signal),
                    },
                    report: format!("herd launch: ended by signal {signal}\n"),
                });
            }
        }
    }
}

/// What the command line knows and this release does not do is refused, never ignored.
fn refuse_what_is_not_there(flags: &Flags) -> Result<(), LaunchError> {
    let given = |name: &str| flags.given.contains(name);
    for flag in ["--store-allow"] {
        if given(flag.trim_start_matches('-')) || given(flag) {
            return Err(LaunchError::NotYet { flag });
        }
    }
    Ok(())
}

fn count(flags: &Flags) -> Result<u32, LaunchError> {
    let cpus = || {
        std::thread::available_parallelism()
            .map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
    };
    let gpus = u32::try_from(accelerators::of_this_process().len()).unwrap_or(u32::MAX);
    Ok(match flags.nproc_per_node {
        NprocPerNode::Count(count) => count,
        NprocPerNode::Cpu => cpus(),
        NprocPerNode::Gpu if gpus > 0 => gpus,
        NprocPerNode::Gpu => return Err(LaunchError::NoAccelerator("gpu")),
        NprocPerNode::Xpu => return Err(LaunchError::NoAccelerator("xpu")),
        NprocPerNode::Auto if gpus > 0 => gpus,
        NprocPerNode::Auto => cpus(),
    })
}

fn streams(flags: &Flags, world: &World, rank: u32) -> Streams {
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

fn describe(
    flags: &Flags,
    interpreter: Option<&Path>,
    run_id: &str,
    template: Option<&str>,
    hostname: &str,
    worker: &Worker<'_>,
    workers: u32,
) -> Result<WorkerCommand, String> {
    let own: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let attempt = worker_env::Attempt {
        world: worker.world,
        local_world_size: workers,
        restart_count: worker.attempt,
        run_id,
    };
    let error_file = worker.files.error.as_os_str();
    let variable = |name: &str| std::env::var_os(name);
    let env = worker_env(flags, &attempt, worker.local_rank, error_file, &variable)
        .map_err(|error| error.to_string())?;
    let header = match template {
        Some(template) => macros::prefix(
            template,
            &PrefixValues {
                role_name: &flags.role,
                rank: worker.world.first_rank.saturating_add(worker.local_rank),
                local_rank: worker.local_rank,
                node_rank: worker.world.node_rank,
                hostname,
            },
        ),
        None => macros::default_prefix(&flags.role, worker.local_rank),
    };
    Ok(WorkerCommand {
        argv: command::argv(flags, interpreter, worker.local_rank),
        env: env.over(&own),
        header,
        cpus: near_device(flags, worker.local_rank).map_err(|error| error.to_string())?,
    })
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

/// What each worker used, for `--summary`.
fn summary(world: &World, ends: &[WorkerEnd], began: Instant) -> String {
    let mut text = format!(
        "herd launch: {} workers in {:.1} s\n  rank  exit  cpu (s)  peak (MiB)\n",
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

/// The world of a node that needs no other, with a port that is free now.
fn alone(flags: &Flags, workers: u32) -> Result<World, LaunchError> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(LaunchError::Port)?
        .port();
    Ok(World {
        node_rank: 0,
        nodes: 1,
        first_rank: 0,
        world_size: workers,
        first_role_rank: 0,
        role_world_size: workers,
        master_addr: flags
            .local_addr
            .clone()
            .unwrap_or_else(|| Ipv4Addr::LOCALHOST.to_string()),
        master_port: port,
        has_store: false,
    })
}

/// The report of an attempt after which there is none, and the code that goes with it.
fn failed(flags: &Flags, world: &World, ends: &[WorkerEnd]) -> Status {
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

fn first_line(ends: &[WorkerEnd]) -> String {
    let first = ends
        .iter()
        .filter(|end| !end.exit.end.is_success() && !end.exit.stopped)
        .min_by_key(|end| end.exit.at);
    match first {
        Some(WorkerEnd {
            local_rank,
            note: Some(note),
            ..
        }) => format!("local rank {local_rank} was {note}"),
        Some(end) => format!("local rank {} {}", end.local_rank, end.exit.end),
        None => "the workers failed".to_owned(),
    }
}

fn is_program(path: &Path) -> bool {
    let found = std::fs::metadata(path);
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn full_host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

fn short_host_name() -> String {
    let full = full_host_name();
    full.split('.').next().unwrap_or_default().to_owned()
}

/// A closed stderr is no reason to fail.
fn eprint_text(text: &str) {
    use std::io::Write as _;
    drop(std::io::stderr().write_all(text.as_bytes()));
}
