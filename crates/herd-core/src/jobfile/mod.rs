//! The job file: text in, [`JobSpec`] or every fault at once out.
//!
//! It checks what the file alone can tell. What a backend can honour is decided in [`crate::plan`].

mod foreign;
pub mod keys;
mod reader;
mod sections;
mod unread;

use std::collections::BTreeSet;

use crate::array::ArrayError;
use crate::diagnostic::Diagnostics;
use crate::spec::{Array, JobSpec, ProcsPerNode};
use crate::text::quoted;
use crate::validate::{self, Refusal};
use crate::yaml::{self, Document, Node, Value};
pub(crate) use reader::{Fields, Reader, join};
pub use unread::Unread;

/// What a file says, and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Reading<T> {
    /// What could be read; a key that could not be is as if it were absent.
    pub value: T,
    /// Every fault of the file, where it has one.
    pub faults: Option<Diagnostics>,
    /// The keys that could not be read.
    pub unread: Unread,
}

impl<T> Reading<T> {
    /// A file that is no YAML.
    pub(crate) fn unreadable(value: T, faults: Diagnostics) -> Self {
        Self {
            value,
            faults: Some(faults),
            unread: Unread::everything(),
        }
    }

    /// The value where the file has no fault.
    pub(crate) fn sound(self) -> Result<T, Diagnostics> {
        match self.faults {
            None => Ok(self.value),
            Some(faults) => Err(faults),
        }
    }

    /// The same reading of another value.
    pub(crate) fn map<U>(self, of: impl FnOnce(T) -> U) -> Reading<U> {
        Reading {
            value: of(self.value),
            faults: self.faults,
            unread: self.unread,
        }
    }
}

/// Reads a job file, YAML or JSON. `file_name` stands in the messages.
pub fn parse(bytes: &[u8], file_name: &str) -> Result<JobSpec, Diagnostics> {
    let document =
        yaml::parse(bytes).map_err(|fault| Diagnostics::unreadable(file_name, bytes, fault))?;
    let mut reader = Reader::of(&document);
    let spec = read_job(&mut reader, &document.root);
    // A key that could not be read would only seem to be absent or at its default, so a
    // contradiction is named once every key that takes part in it is sound.
    let unread = reader.unread(&document, str::to_owned);
    for conflict in validate::conflicts(&spec) {
        if unread.can_judge(&conflict.key) {
            let mut keys = conflict.key.split('.');
            let at = keys.try_fold(&document.root, |node, key| node.get(key));
            reader.fault(
                at.unwrap_or(&document.root),
                &conflict.key,
                conflict.refusal,
            );
        }
    }
    reader
        .done(&document, bytes, file_name, spec, unread)
        .sound()
}

/// Reads a job file that is a tree already, as far as it can be read. Whether its keys agree is not
/// looked at: flags may still change them.
pub(crate) fn read(document: &Document, source: &[u8], file_name: &str) -> Reading<JobSpec> {
    let mut reader = Reader::of(document);
    let spec = read_job(&mut reader, &document.root);
    let unread = reader.unread(document, str::to_owned);
    reader.done(document, source, file_name, spec, unread)
}

fn read_job(reader: &mut Reader, root: &Node) -> JobSpec {
    let default = JobSpec::default();
    let Some(fields) = reader.fields(root, "", keys::JOB) else {
        return default;
    };
    JobSpec {
        name: reader.checked(&fields, "name", validate::job_name),
        job_type: reader.choice(&fields, "type").unwrap_or_default(),
        nodes: reader.integer(&fields, "nodes").unwrap_or(default.nodes),
        procs_per_node: procs_per_node(reader, &fields).unwrap_or_default(),
        launcher: reader.choice(&fields, "launcher").unwrap_or_default(),
        resources: sections::resources(reader, &fields),
        walltime: sections::positive_span(reader, &fields, "walltime"),
        image: reader.checked(&fields, "image", validate::image),
        workdir: reader.checked(&fields, "workdir", validate::path),
        env: sections::env(reader, &fields),
        env_from: sections::env_from(reader, &fields),
        secrets: sections::secrets(reader, &fields),
        setup: sections::setup(reader, &fields),
        run: fields
            .get("run")
            .and_then(|(node, path)| reader.command_of(node, &path)),
        datasets: sections::datasets(reader, &fields),
        checkpoint: sections::checkpoint(reader, &fields),
        retry: sections::retry(reader, &fields),
        array: array(reader, &fields),
        after: sections::after(reader, &fields),
        org: reader.checked(&fields, "org", validate::name),
        project: reader.checked(&fields, "project", validate::name),
        priority: reader.integer(&fields, "priority"),
        backend: reader.checked(&fields, "backend", validate::name),
        slurm: sections::slurm(reader, &fields),
        kueue: sections::kueue(reader, &fields),
    }
}

fn procs_per_node(reader: &mut Reader, fields: &Fields<'_>) -> Option<ProcsPerNode> {
    let (node, path) = fields.get("procs_per_node")?;
    if node.scalar().is_some_and(|scalar| scalar.text == "gpu") {
        return Some(ProcsPerNode::Gpu);
    }
    if node
        .scalar()
        .is_some_and(|scalar| scalar.text.starts_with(char::is_alphabetic))
    {
        let text = node.scalar().map_or("", |scalar| &scalar.text);
        let message = format!("expected a number or `gpu`, found {}", quoted(text));
        reader.fault(node, &path, Refusal::new(message));
        return None;
    }
    reader
        .integer_of(node, &path, keys::PROCS)
        .map(ProcsPerNode::Count)
}

fn array(reader: &mut Reader, fields: &Fields<'_>) -> Option<Array> {
    let (node, path) = fields.get("array")?;
    if node.sequence().is_none() {
        return reader.parsed(fields, "array");
    }
    let items = reader.items(fields, "array");
    let mut indices = Vec::with_capacity(items.len());
    for (item, path) in &items {
        indices.push(reader.integer_of(item, path, (0, u32::MAX)));
    }
    let indices: Vec<u32> = indices.into_iter().collect::<Option<_>>()?;
    match Array::of(indices, None) {
        Ok(array) => Some(array),
        Err(error @ (ArrayError::Empty | ArrayError::TooMany)) => {
            reader.fault(node, &path, Refusal::new(error.to_string()));
            None
        }
        Err(_) => None,
    }
}

/// Lines on which a secret may stand by mistake, so that no message shows them (I12).
pub(crate) fn secret_lines(root: &Node) -> BTreeSet<u32> {
    let mut lines = BTreeSet::new();
    if let Some(secrets) = root.get("secrets") {
        scalar_lines(secrets, &mut lines);
    }
    lines
}

fn scalar_lines(node: &Node, lines: &mut BTreeSet<u32>) {
    match &node.value {
        Value::Scalar(_) => lines.extend(node.position.line..=node.end_line),
        Value::Sequence(items) => {
            for item in items {
                scalar_lines(item, lines);
            }
        }
        Value::Mapping(entries) => {
            for entry in entries {
                scalar_lines(&entry.value, lines);
            }
        }
    }
}

#[cfg(test)]
mod tests;
