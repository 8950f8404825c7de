//! `herd launch` from its flags to its status: meets, starts, restarts, reports.

mod attempt;
mod course;
mod ends;
mod meeting;
mod said;
mod say;
mod shared_store;
mod workers;

use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

use herd_core::exit;
use herd_core::text::{error_line, error_report};
use herd_link::LinkError;
use tokio::sync::mpsc;

use super::command::{self, NoPython};
use super::events;
use super::flags::Flags;
use super::parent_copy;
use super::place::{self, NoPlace};
use super::worker_env;
use crate::agent::events::{CannotOpen, Events};
use crate::agent::layout::{Layout, LayoutError};
use crate::agent::{Agent, AgentError, Settings, Told};
use crate::rendezvous::{Rendezvous, RendezvousError, Surroundings};
use course::Course;
use meeting::Own;
use say::{print, say};
use shared_store::SharedStore;
use workers::Describer;

/// First failures that wait to be heard; there is one in an attempt.
const FAILURES: usize = 1;

/// How a launch ended.
#[derive(Debug)]
pub struct Status {
    /// The code to exit with.
    pub code: u8,
    /// For standard error; empty, or ending with a newline.
    pub report: String,
}

/// Why nothing could be launched, or no further attempt.
#[derive(Debug, thiserror::Error)]
enum LaunchError {
    #[error("there is no accelerator for --nproc-per-node={0}\nhint: give a number, cpu, or auto")]
    NoAccelerator(&'static str),
    #[error(transparent)]
    Python(#[from] NoPython),
    #[error(transparent)]
    Flag(#[from] super::flags::FlagError),
    #[error(transparent)]
    Place(#[from] NoPlace),
    #[error(transparent)]
    Events(#[from] CannotOpen),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    #[error("cannot make an id for this run")]
    Random(#[source] LinkError),
    #[error(
        "cannot serve the store of the workers\nhint: TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 lets rank 0 open one instead"
    )]
    Store(#[source] std::io::Error),
    #[error(transparent)]
    Agent(#[from] AgentError),
}

impl LaunchError {
    /// Faults of the command line, seen before anything has begun, are usage errors.
    fn code(&self) -> u8 {
        match self {
            Self::Flag(_)
            | Self::Place(_)
            | Self::Rendezvous(
                RendezvousError::Conf { .. }
                | RendezvousError::Settings(_)
                | RendezvousError::Key { .. }
                | RendezvousError::KeyFile { .. },
            ) => exit::USAGE,
            _ => 1,
        }
    }
}

/// Launches the workers and sees them to their end. `secret` is the text of `HERD_RDZV_KEY`, `told`
/// brings signals.
pub async fn run(flags: Flags, secret: Option<&str>, told: &mut mpsc::Receiver<Told>) -> Status {
    let began = Instant::now();
    let mut events = match events::open(&flags) {
        Ok(events) => events,
        Err(error) => return refused(&error.into()),
    };
    let launched = launch(flags, &mut events, secret, told).await;
    let status = launched.unwrap_or_else(|error| refused(&error));
    events::ended(&events, began, status.code);
    status
}

fn refused(error: &LaunchError) -> Status {
    let code = error.code();
    if code != exit::USAGE {
        record(&error_line(error));
    }
    Status {
        code,
        report: format!("herd launch: {}", error_report(error)),
    }
}

async fn launch(
    mut flags: Flags,
    events: &mut Events,
    secret: Option<&str>,
    told: &mut mpsc::Receiver<Told>,
) -> Result<Status, LaunchError> {
    let workers = workers::count(&flags)?;
    let variable = |name: &str| std::env::var_os(name);
    let interpreter = command::interpreter(&flags, &variable, &workers::is_program)?;
    let found = Surroundings::read(|name| variable(name)?.into_string().ok());
    for sentence in place::fill(&mut flags, &found)? {
        verbose(&flags, &sentence);
    }
    let store = shared_store::decide(interpreter.as_deref(), &variable, &workers::is_program);
    verbose(&flags, &store.why);
    let own = Own {
        workers,
        has_store: store.has_store,
        secret,
    };
    let settings = meeting::settings(&flags, own)?;
    let run_id = settings.id.clone();
    events.set_run_id(&run_id);
    events::started(events, &flags, workers, workers::full_host_name());
    let min_nodes = settings.min_nodes;
    let meeting = Rendezvous::new(settings)?;
    if worker_env::sets_omp_default(workers, &variable) {
        print(&format!("{}\n", worker_env::omp_banner(workers)));
    }
    let layout = Layout::make(flags.log_dir.as_deref(), &std::env::temp_dir(), &run_id)?;
    let (fails, failures) = mpsc::channel(FAILURES);
    let describer = Describer {
        flags: flags.clone(),
        interpreter,
        run_id,
        workers,
        hostname: workers::short_host_name(),
    };
    let shown = flags.clone();
    let agent = Agent::new(Settings {
        workers,
        describe: Box::new(move |worker| describer.describe(worker)),
        streams: Box::new(move |world, rank| workers::streams(&shown, world, rank)),
        layout,
        wanted_out: flags.duplicate_stdout_filters.clone(),
        wanted_err: flags.duplicate_stderr_filters.clone(),
        max_restarts: flags.max_restarts,
        shutdown_timeout: flags.shutdown_timeout,
        first_failure: Box::new(move |rank, end| {
            // Full only where one of the attempt is there already.
            let _full = fails.try_send((rank, end));
        }),
        hang_timeout: flags.hang_timeout,
        events: events.clone(),
    });
    let course = Course {
        store: SharedStore::new(&flags),
        flags,
        agent,
        meeting,
        failures,
        told,
        min_nodes,
        restarts: 0,
        earlier: None,
        began: Instant::now(),
    };
    course.run().await
}

fn verbose(flags: &Flags, sentence: &str) {
    if flags.verbose {
        say(sentence);
    }
}

/// Tells the program that started this one why it ends, in the error file that it gave, as torchrun
/// does with errors of its own.
fn record(message: &str) {
    let parent: Option<OsString> = std::env::var_os("TORCHELASTIC_ERROR_FILE");
    let Some(parent) = parent else {
        return;
    };
    if let Err(error) = parent_copy::record(Path::new(&parent), message) {
        say(&format!("warning: {error}"));
    }
}
