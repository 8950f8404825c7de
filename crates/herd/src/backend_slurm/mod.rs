//! The seam to the Slurm backend: every call that asks Slurm or hands something to it.
//!
//! It translates between the command line's types and the backend's; it decides nothing.

mod after;
mod control;
mod observe;
mod stage;
mod submit;

use std::io::Write as _;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use herd_backends::slurm::cluster::{Cluster, ClusterError, Survey};
use herd_jobdir::Home;
use herd_slurm::facts::{ClusterFacts, Images};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::backend_local::runtime;
use crate::error::ExpectedError;
use crate::file_system;

pub(crate) use control::{Control, cancel, cancel_again, cancel_submission, control};
pub(crate) use observe::{evidence, observe, settle, settle_tasks};
pub(crate) use stage::{look_after, stage};
pub(crate) use submit::{find_again, script, submit, submit_as, take_up};

/// How long Slurm is waited for in silence.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// What a cluster has and can do.
pub(crate) fn facts(cluster: &Cluster) -> Result<ClusterFacts, ClusterError> {
    match runtime() {
        Ok(runtime) => patiently(&runtime, cluster.facts()),
        Err(_) => Err(ClusterError::Output {
            command: "(the event loop did not start)",
        }),
    }
}

/// The containers that a cluster runs.
pub(crate) fn images(cluster: &Cluster, facts: &ClusterFacts) -> Images {
    match runtime() {
        Ok(runtime) => patiently(&runtime, cluster.images(facts)),
        Err(_) => Images::No,
    }
}

/// Everything about a cluster that a person may want to check.
pub(crate) fn survey(cluster: &Cluster) -> Result<Survey, ExpectedError> {
    let asked = patiently(&runtime()?, cluster.survey());
    asked.map_err(|error| ExpectedError::failed("ask Slurm", error))
}

/// What to say of a directory for jobs that the nodes may not see.
pub(crate) fn home_warning(home: &Home) -> Option<String> {
    let why = file_system::of_one_machine(home.path())?;
    Some(format!(
        "{why}, which each machine has for itself: where the nodes do not see it the job fails; \
         HERD_HOME names another directory"
    ))
}

/// The small binary beside this one, which nodes see where they see this one.
pub(crate) fn node_program() -> Result<PathBuf, ExpectedError> {
    let own = std::env::current_exe()
        .map_err(|error| ExpectedError::failed("find herd's own program", error))?;
    let node = own.with_file_name("herd-node");
    if node.is_file() {
        return Ok(node);
    }
    Err(ExpectedError::Surroundings {
        what: "find herd-node, which runs on the nodes",
        source: format!("{} does not exist", node.display()).into(),
        hint: "install it beside herd, in a directory that the nodes see",
    })
}

/// The user's name; the number, which Slurm takes too, where nobody knows it.
fn user_name() -> String {
    let own = nix::unistd::Uid::effective();
    match nix::unistd::User::from_uid(own) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => own.to_string(),
    }
}

/// Waits for Slurm, and says so where that is long.
fn patiently<T>(runtime: &Runtime, question: impl Future<Output = T>) -> T {
    static SAID: AtomicBool = AtomicBool::new(false);
    runtime.block_on(async {
        let mut question = pin!(question);
        tokio::select! {
            answer = &mut question => return answer,
            () = sleep(PATIENCE) => {}
        }
        if !SAID.swap(true, Ordering::Relaxed) {
            let seconds = PATIENCE.as_secs();
            let text = format!("herd: waits for Slurm, which has not answered for {seconds} s");
            // A closed standard error leaves nobody to tell.
            drop(writeln!(std::io::stderr(), "{text}"));
        }
        question.await
    })
}
