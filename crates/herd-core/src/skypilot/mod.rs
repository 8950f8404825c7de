//! A SkyPilot task file as a job: what says the same thing is carried over, all else is named.
//!
//! SkyPilot runs `setup` and `run` in bash without `-e`: a line that fails does not end the
//! script. So they become `bash -c TEXT` and not a shell command of ours, which would stop there.
//! It copies `workdir` to the nodes; here it is used in place.

mod convert;
mod fates;
mod places;
mod resources;

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::diagnostic::{Diagnostics, Position};
use crate::jobfile::{self, Reading, keys};
use crate::spec::JobSpec;
use crate::text::visible;
use crate::yaml::{self, Node};
use fates::Fate;
pub use places::Places;

/// Something that was not carried over and changes no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// Where it stands.
    #[serde(flatten)]
    pub position: Position,
    /// The key.
    pub path: String,
    /// Why it is ignored.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path: String = self.path.chars().map(visible).collect();
        write!(
            f,
            "{}:{}: {path} is ignored: {}",
            self.position.line, self.position.column, self.text
        )
    }
}

/// A SkyPilot task that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The job.
    pub spec: JobSpec,
    /// What was not carried over and changes no result.
    pub notes: Vec<Note>,
    /// Local paths that the job expects at another place; whether they are there is for those to
    /// find out who may look at files.
    pub mounts: Vec<Mount>,
}

/// A local path of `file_mounts`, and where the job looks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it stands in the task file.
    pub position: Position,
    /// Where the job looks: absolute, below `~`, or relative to the working directory.
    pub target: String,
    /// The file or directory: absolute, below `~`, or relative to the caller's directory.
    pub source: String,
}

/// Whether the tree is a SkyPilot task rather than a job file with a slip.
pub fn looks_like_skypilot(root: &Node) -> bool {
    mark_of(root).is_some()
}

/// The key that only a SkyPilot task has, where the tree is one.
fn mark_of(root: &Node) -> Option<String> {
    const TASK_ONLY: &[&str] = &["num_nodes", "envs", "file_mounts", "service"];
    const RESOURCES_ONLY: &[&str] = &[
        "accelerators",
        "cloud",
        "infra",
        "instance_type",
        "use_spot",
        "disk_size",
        "image_id",
        "any_of",
        "region",
        "zone",
        "ports",
    ];
    let entries = root.mapping()?;
    let known = |table: &[(&str, Fate)], key: &str| table.iter().any(|(name, _)| *name == key);
    let ours_alone =
        |key: &str| keys::JOB.iter().any(|known| known.name == key) && !known(fates::TASK, key);
    if entries.iter().any(|entry| ours_alone(&entry.key)) {
        return None;
    }
    let resources = root.get("resources");
    // `4+`: at least so many, which no job file says.
    let at_least = |key: &str| {
        let value = resources
            .and_then(|node| node.get(key))
            .and_then(Node::scalar);
        value.is_some_and(|scalar| scalar.text.trim_end().ends_with('+'))
    };
    let mut tops = entries.iter().map(|entry| entry.key.as_str());
    if let Some(key) = tops.find(|key| TASK_ONLY.contains(key)) {
        return Some(key.to_owned());
    }
    let has = |key: &str| resources.is_some_and(|node| node.get(key).is_some());
    RESOURCES_ONLY
        .iter()
        .copied()
        .find(|key| has(key))
        .or_else(|| ["cpus", "memory"].into_iter().find(|key| at_least(key)))
        .map(|key| jobfile::join("resources", key))
}

/// Reads a SkyPilot task file. `file_name` stands in the messages.
///
/// `given` are the variables that the command line sets: a task may leave their values out.
pub fn convert(
    bytes: &[u8],
    file_name: &str,
    given: &BTreeSet<String>,
) -> Result<Task, Diagnostics> {
    let document =
        yaml::parse(bytes).map_err(|fault| Diagnostics::unreadable(file_name, bytes, fault))?;
    convert::read(&document, bytes, file_name, given).sound()
}

/// A file of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A job file.
    Job(JobSpec),
    /// A SkyPilot task.
    Task(Task),
}

/// Reads a file of either kind as far as it can be read: a job file, or a SkyPilot task where it
/// looks like one. Whether the keys of a job file agree is not looked at: flags may change them.
pub fn read_any(bytes: &[u8], file_name: &str, given: &BTreeSet<String>) -> Reading<Input> {
    match yaml::parse(bytes) {
        Ok(document) if looks_like_skypilot(&document.root) => {
            convert::read(&document, bytes, file_name, given).map(Input::Task)
        }
        Ok(document) => jobfile::read(&document, bytes, file_name).map(Input::Job),
        Err(fault) => Reading::unreadable(
            Input::Job(JobSpec::default()),
            Diagnostics::unreadable(file_name, bytes, fault),
        ),
    }
}

#[cfg(test)]
mod tests;
