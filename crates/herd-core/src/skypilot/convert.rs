//! From the tree of a task file to a job: each key by its fate, every fault kept.

use std::collections::{BTreeMap, BTreeSet};

use super::fates::{self, Fate};
use super::{Mount, Note, Task, places, resources};
use crate::jobfile::{self, Reader, Reading, keys};
use crate::spec::{Command, JobSpec, SecretSource, Setup, SetupOn};
use crate::text::nearest;
use crate::validate::{self, Refusal};
use crate::yaml::{Document, Node};

/// Converts a task that is a tree already, as far as it can be read.
pub(super) fn read(
    document: &Document,
    source: &[u8],
    file_name: &str,
    given: &BTreeSet<String>,
) -> Reading<Task> {
    let mut converter = Converter {
        given,
        mark: super::mark_of(&document.root),
        reader: Reader::of(document),
        notes: Vec::new(),
        mounts: Vec::new(),
    };
    let spec = converter.task(&document.root);
    let Converter {
        reader,
        notes,
        mounts,
        ..
    } = converter;
    let task = Task {
        spec,
        notes,
        mounts,
    };
    let unread = reader.unread(document, places::job_key);
    reader.done(document, source, file_name, task, unread)
}

struct Converter<'g> {
    given: &'g BTreeSet<String>,
    /// The key that shows the file to be a task.
    mark: Option<String>,
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
            spec.name = self.reader.checked_of(node, "name", validate::job_name);
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
                    let refusal = match self.advice(path, &entry.key, table) {
                        Some(hint) => refusal.with_hint(hint),
                        None => refusal,
                    };
                    self.reader.key_fault(entry, &key, refusal);
                }
            }
        }
        true
    }

    /// What to say about an unknown key.
    fn advice(&self, path: &str, key: &str, table: &[(&str, Fate)]) -> Option<String> {
        match (path, key) {
            ("resources", "gpus" | "gpu" | "gpu_type" | "accelerator") => {
                return Some("write `accelerators: H100:8`".to_owned());
            }
            ("resources", "mem") => return Some("did you mean `memory`?".to_owned()),
            _ => {}
        }
        if let Some(name) = nearest(key, table.iter().map(|(name, _)| *name)) {
            return Some(format!("did you mean `{name}`?"));
        }
        let mark = self.mark.as_ref()?;
        Some(format!(
            "the file is read as a SkyPilot task because of `{mark}`"
        ))
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
