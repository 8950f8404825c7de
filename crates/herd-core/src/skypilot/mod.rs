//! A SkyPilot task file as a job: what says the same thing is carried over, all else is named.
//!
//! SkyPilot runs `setup` and `run` in bash without `-e`: a line that fails does not end the
//! script. So they become `bash -c TEXT` and not a shell command of ours, which would stop there.
//! It copies `workdir` to the nodes; here it is used in place.

mod fates;
mod resources;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use crate::diagnostic::{Diagnostics, Position};
use crate::jobfile::{self, Reader, keys};
use crate::spec::{Command, JobSpec, SecretSource, Setup, SetupOn};
use crate::text::{nearest, visible};
use crate::validate::{self, Refusal};
use crate::yaml::{self, Document, Node};
use fates::Fate;

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
            "line {}: {path} is ignored: {}",
            self.position.line, self.text
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
    let Some(entries) = root.mapping() else {
        return false;
    };
    let known = |table: &[(&str, Fate)], key: &str| table.iter().any(|(name, _)| *name == key);
    let ours_alone =
        |key: &str| keys::JOB.iter().any(|known| known.name == key) && !known(fates::TASK, key);
    if entries.iter().any(|entry| ours_alone(&entry.key)) {
        return false;
    }
    let resources = root.get("resources");
    // `4+`: at least so many, which no job file says.
    let at_least = |key: &str| {
        let value = resources
            .and_then(|node| node.get(key))
            .and_then(Node::scalar);
        value.is_some_and(|scalar| scalar.text.trim_end().ends_with('+'))
    };
    entries
        .iter()
        .any(|entry| TASK_ONLY.contains(&entry.key.as_str()))
        || resources.is_some_and(|node| RESOURCES_ONLY.iter().any(|key| node.get(key).is_some()))
        || at_least("cpus")
        || at_least("memory")
}

/// Reads a SkyPilot task file. `file_name` stands in the messages.
///
/// `given` are the variables that the command line sets: a task may leave their values out.
pub fn convert(
    bytes: &[u8],
    file_name: &str,
    given: &BTreeSet<String>,
) -> Result<Task, Diagnostics> {
    match yaml::parse(bytes) {
        Ok(document) => from_document(&document, bytes, file_name, given),
        Err(fault) => Err(Diagnostics::new(
            file_name,
            bytes,
            vec![fault],
            &BTreeSet::new(),
        )),
    }
}

/// A file of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A job file.
    Job(JobSpec),
    /// A SkyPilot task.
    Task(Task),
}

/// Reads a file of either kind: a job file, or a SkyPilot task where it looks like one.
pub fn read_any(
    bytes: &[u8],
    file_name: &str,
    given: &BTreeSet<String>,
) -> Result<Input, Diagnostics> {
    match yaml::parse(bytes) {
        Ok(document) if looks_like_skypilot(&document.root) => {
            from_document(&document, bytes, file_name, given).map(Input::Task)
        }
        Ok(document) => jobfile::from_document(&document, bytes, file_name).map(Input::Job),
        Err(fault) => Err(Diagnostics::new(
            file_name,
            bytes,
            vec![fault],
            &BTreeSet::new(),
        )),
    }
}

/// Converts a task that is a tree already.
pub fn from_document(
    document: &Document,
    source: &[u8],
    file_name: &str,
    given: &BTreeSet<String>,
) -> Result<Task, Diagnostics> {
    let mut converter = Converter {
        given,
        reader: Reader {
            faults: document.faults.clone(),
        },
        notes: Vec::new(),
        mounts: Vec::new(),
    };
    let spec = converter.task(&document.root);
    if converter.reader.faults.is_empty() {
        return Ok(Task {
            spec,
            notes: converter.notes,
            mounts: converter.mounts,
        });
    }
    let hidden = jobfile::secret_lines(&document.root);
    Err(Diagnostics::new(
        file_name,
        source,
        converter.reader.faults,
        &hidden,
    ))
}

struct Converter<'g> {
    given: &'g BTreeSet<String>,
    reader: Reader,
    notes: Vec<Note>,
    mounts: Vec<Mount>,
}

impl Converter<'_> {
    fn task(&mut self, root: &Node) -> JobSpec {
        let mut spec = JobSpec::default();
        if !self.sort_out(root, "", fates::TASK) {
            return spec;
        }
        let value = |key: &str| root.get(key).filter(|node| !node.is_null());
        if let Some(node) = value("name") {
            spec.name = self.reader.checked_of(node, "name", validate::name);
        }
        if let Some(node) = value("workdir") {
            spec.workdir = self.workdir(node);
        }
        if let Some(node) = value("num_nodes") {
            spec.nodes = self
                .reader
                .integer_of(node, "num_nodes", keys::NODES)
                .unwrap_or(1);
        }
        if let Some(node) = value("resources") {
            if self.sort_out(node, "resources", fates::RESOURCES) {
                spec.resources = resources::read(&mut self.reader, node);
            }
        }
        if let Some(node) = value("envs") {
            spec.env = self.envs(node);
        }
        if let Some(node) = value("secrets") {
            spec.secrets = self.secrets(node);
        }
        if let Some(node) = value("file_mounts") {
            self.file_mounts(node);
        }
        if let Some(node) = value("setup") {
            let on = Some(SetupOn::Each);
            spec.setup = self.script(node, "setup").map(|run| Setup { run, on });
        }
        if let Some(node) = value("run") {
            spec.run = self.script(node, "run");
        }
        if value("run").is_none() && value("setup").is_none() {
            let refusal =
                Refusal::new("the task has nothing to run").with_hint("add `run: COMMAND`");
            self.reader.fault(root, "run", refusal);
        }
        for name in spec
            .secrets
            .keys()
            .filter(|name| spec.env.contains_key(*name))
        {
            let path = format!("secrets.{name}");
            self.reader
                .fault(root, &path, Refusal::new("is set in `envs` too"));
        }
        spec
    }

    /// Names every key that is unknown, ignored or refused; false where it is no mapping.
    fn sort_out(&mut self, node: &Node, path: &str, table: &[(&str, Fate)]) -> bool {
        let Some(entries) = node.mapping() else {
            let message = format!("expected a mapping, found {}", node.kind());
            self.reader.fault(node, path, Refusal::new(message));
            return false;
        };
        for entry in entries {
            let key = jobfile::join(path, &entry.key);
            match table
                .iter()
                .find(|(name, _)| *name == entry.key)
                .map(|(_, fate)| *fate)
            {
                Some(Fate::Read) => {}
                Some(Fate::Ignored(_) | Fate::Refused(..)) if entry.value.is_null() => {}
                Some(Fate::Ignored(why)) => self.notes.push(Note {
                    position: entry.position,
                    path: key,
                    text: why.to_owned(),
                }),
                Some(Fate::Refused(..)) if only_places(&entry.value) => self.notes.push(Note {
                    position: entry.position,
                    path: key,
                    text: "herd provisions no machines".to_owned(),
                }),
                Some(Fate::Refused(why, hint)) => {
                    self.reader
                        .key_fault(entry, &key, Refusal::new(why).with_hint(hint));
                }
                None => {
                    let refusal = Refusal::new("unknown key of a SkyPilot task");
                    let refusal = match nearest(&entry.key, table.iter().map(|(name, _)| *name)) {
                        Some(name) => refusal.with_hint(format!("did you mean `{name}`?")),
                        None => refusal,
                    };
                    self.reader.key_fault(entry, &key, refusal);
                }
            }
        }
        true
    }

    fn workdir(&mut self, node: &Node) -> Option<String> {
        if node.mapping().is_some() {
            let refusal = Refusal::new("a repository cannot be fetched")
                .with_hint("clone it, and name the directory");
            self.reader.fault(node, "workdir", refusal);
            return None;
        }
        self.reader.checked_of(node, "workdir", local_path)
    }

    fn envs(&mut self, node: &Node) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for (key, path, value) in self.variables(node, "envs") {
            if value.is_null() && self.given.contains(&key) {
                continue;
            }
            if value.is_null() {
                let refusal = Refusal::new("has no value and must come from the command line")
                    .with_hint(format!(
                        "give it with `--env {key}=VALUE`, or write a value"
                    ));
                self.reader.fault(value, &path, refusal);
                continue;
            }
            if let Some(text) = self.reader.checked_of(value, &path, validate::env_value) {
                env.insert(key, text);
            }
        }
        env
    }

    /// A secret without a value is the submitter's own variable; one that is written out is
    /// refused, since job files are kept.
    fn secrets(&mut self, node: &Node) -> BTreeMap<String, SecretSource> {
        let mut secrets = BTreeMap::new();
        for (key, path, value) in self.variables(node, "secrets") {
            if value.is_null() || value.scalar().is_some_and(|scalar| scalar.text.is_empty()) {
                secrets.insert(key.clone(), SecretSource::Env(key));
                continue;
            }
            let refusal = Refusal::new("holds its value, which would be kept with the job")
                .with_hint("leave the value out: it is read from your own variable");
            self.reader.fault(value, &path, refusal);
        }
        secrets
    }

    /// The entries of a mapping whose keys name variables.
    fn variables<'n>(&mut self, node: &'n Node, path: &str) -> Vec<(String, String, &'n Node)> {
        let Some(entries) = node.mapping() else {
            let message = format!(
                "expected a mapping of names to values, found {}",
                node.kind()
            );
            self.reader.fault(node, path, Refusal::new(message));
            return Vec::new();
        };
        let mut variables = Vec::new();
        for entry in entries {
            let path = jobfile::join(path, &entry.key);
            match validate::env_name(&entry.key) {
                Ok(()) => variables.push((entry.key.clone(), path, &entry.value)),
                Err(refusal) => self.reader.key_fault(entry, &path, refusal),
            }
        }
        variables
    }

    /// Nothing is copied or mounted here: a bucket is refused, a local path must be in place.
    fn file_mounts(&mut self, node: &Node) {
        let Some(entries) = node.mapping() else {
            let message = format!("expected a mapping of paths, found {}", node.kind());
            self.reader
                .fault(node, "file_mounts", Refusal::new(message));
            return;
        };
        for entry in entries {
            let path = jobfile::join("file_mounts", &entry.key);
            let source = entry
                .value
                .scalar()
                .map(|scalar| scalar.text.as_str())
                .filter(|source| !source.contains("://"));
            let Some(source) = source else {
                let refusal = Refusal::new("a bucket cannot be mounted")
                    .with_hint("fetch the data in `setup`, and remove the mount");
                self.reader.key_fault(entry, &path, refusal);
                continue;
            };
            let checked = local_path(&entry.key).and_then(|()| local_path(source));
            match checked {
                Ok(()) => self.mounts.push(Mount {
                    position: entry.position,
                    target: entry.key.clone(),
                    source: source.to_owned(),
                }),
                Err(refusal) => self.reader.key_fault(entry, &path, refusal),
            }
        }
    }

    fn script(&mut self, node: &Node, path: &str) -> Option<Command> {
        let text = self.reader.text_of(node, path)?;
        if let Err(refusal) = validate::command(&Command::Shell(text.clone())) {
            self.reader.fault(node, path, refusal);
            return None;
        }
        Some(Command::Argv(vec![
            "bash".to_owned(),
            "-c".to_owned(),
            text,
        ]))
    }
}

/// Whether a list of alternatives chooses among clouds alone, which changes no result.
fn only_places(node: &Node) -> bool {
    let ignored = |key: &str| {
        let fate = fates::RESOURCES.iter().find(|(name, _)| *name == key);
        matches!(fate, Some((_, Fate::Ignored(_))))
    };
    let alternatives = node.sequence().unwrap_or_default();
    !alternatives.is_empty()
        && alternatives.iter().all(|alternative| {
            let entries = alternative.mapping();
            entries.is_some_and(|entries| entries.iter().all(|entry| ignored(&entry.key)))
        })
}

/// A path as SkyPilot takes it; `~` is the caller's home, which is not known here.
fn local_path(text: &str) -> Result<(), Refusal> {
    match text {
        "" => Err(Refusal::new("must not be empty")),
        _ => validate::no_control(text),
    }
}

#[cfg(test)]
mod tests;
