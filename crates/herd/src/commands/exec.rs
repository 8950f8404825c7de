//! `herd exec`: a command inside a running job.

use std::path::Path;
use std::time::{Duration, Instant};

use herd_core::state::{AttemptState, JobState};
use herd_link::session::Place;

use super::Outcome;
use super::places::Places;
use crate::cli::query::ExecArgs;
use crate::error::ExpectedError;
use crate::jobs::{self, Job};
use crate::printer::Printer;
use crate::watch::Watch;
use crate::{backend_local, backend_login};

/// How long a job that was handed in a moment ago may take until its nodes are there.
const BOUND: Duration = Duration::from_secs(10);
/// Time between looks.
const LOOK: Duration = Duration::from_millis(20);

/// Runs the command; its exit code.
pub(crate) fn run(args: &ExecArgs, home: Option<&Path>, printer: &mut Printer) -> Outcome {
    let home = jobs::open_home(home)?;
    let job = jobs::open_active(&home, &args.job)?;
    if let Some(record) = &job.login {
        return backend_login::exec(record, words(args, &job), printer);
    }
    let job = when_its_nodes_are_there(job)?;
    job.require_active("a command can only be run inside a job that runs")?;
    let places = Places::of(&job);
    let place = match (args.rank, &args.node) {
        (_, Some(node)) => Place::Node(places.node(node)?),
        (Some(rank), None) => {
            places.check_ranks(&[rank], &rank.to_string())?;
            Place::Rank(rank)
        }
        // The tasks of an array come and go; the node stays.
        (None, None) if places.is_array() => Place::Node(0),
        (None, None) => Place::Rank(0),
    };
    printer.flush();
    backend_local::exec(&job.dir, place, &args.command)
}

/// The same request for the herd of a login node.
fn words(args: &ExecArgs, job: &Job) -> Vec<String> {
    let mut words = vec!["exec".to_owned(), job.dir.id().to_string()];
    if let Some(rank) = args.rank {
        words.extend(["--rank".to_owned(), rank.to_string()]);
    }
    words.extend(args.node.as_ref().map(|node| format!("--node={node}")));
    words.push("--".to_owned());
    words.extend(args.command.iter().cloned());
    words
}

/// The job once it has nodes, or after the bound. One that waits for others is not waited for.
fn when_its_nodes_are_there(mut job: Job) -> Result<Job, ExpectedError> {
    let deadline = Instant::now() + BOUND;
    let watch = Watch::new();
    let starting = [
        JobState::Accepted.to_string(),
        JobState::Submitting.to_string(),
        AttemptState::Starting.to_string(),
    ];
    while starting.contains(&job.status.brief.state) && Instant::now() < deadline {
        watch.wait(LOOK);
        job = jobs::read(job.dir.clone())?;
    }
    Ok(job)
}
