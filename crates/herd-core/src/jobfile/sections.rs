//! The parts of a job file that are more than one plain value.

use std::collections::BTreeMap;

use super::{Fields, Reader, keys};
use crate::signal;
use crate::spec::{
    After, Checkpoint, Dataset, KueueOptions, Resources, Retry, RetryOn, SecretSource, Setup,
    SlurmOptions,
};
use crate::state::FailureKind;
use crate::text::{nearest, quoted};
use crate::units::{Bytes, Span};
use crate::validate::{self, Refusal};
use crate::yaml::Node;

/// The mapping under `name`, where it stands there.
fn section<'n>(
    reader: &mut Reader,
    fields: &Fields<'n>,
    name: &str,
    table: &'static [keys::Key],
) -> Option<Fields<'n>> {
    let (node, path) = fields.get(name)?;
    reader.fields(node, &path, table)
}

/// A duration above nothing.
pub(super) fn positive_span(reader: &mut Reader, fields: &Fields<'_>, name: &str) -> Option<Span> {
    let span: Span = reader.parsed(fields, name)?;
    if span.ms > 0 {
        return Some(span);
    }
    let (node, path) = fields.get(name)?;
    reader.fault(node, &path, Refusal::new("must be longer than nothing"));
    None
}

/// A size above nothing.
fn positive_size(reader: &mut Reader, fields: &Fields<'_>, name: &str) -> Option<Bytes> {
    let size: Bytes = reader.parsed(fields, name)?;
    if size.0 > 0 {
        return Some(size);
    }
    let (node, path) = fields.get(name)?;
    reader.fault(node, &path, Refusal::new("must be more than nothing"));
    None
}

fn memory(reader: &mut Reader, fields: &Fields<'_>) -> Option<Bytes> {
    let size: Bytes = reader.parsed(fields, "memory")?;
    let (node, path) = fields.get("memory")?;
    match validate::memory(size) {
        Ok(()) => Some(size),
        Err(refusal) => {
            reader.fault(node, &path, refusal);
            None
        }
    }
}

pub(super) fn resources(reader: &mut Reader, fields: &Fields<'_>) -> Resources {
    let Some(fields) = section(reader, fields, "resources", keys::RESOURCES) else {
        return Resources::default();
    };
    Resources {
        cpus: reader.integer(&fields, "cpus"),
        memory: memory(reader, &fields),
        gpus: reader.integer(&fields, "gpus"),
        gpu_type: reader.checked(&fields, "gpu_type", validate::name),
    }
}

pub(super) fn env(reader: &mut Reader, fields: &Fields<'_>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for (entry, path) in reader.entries(fields, "env") {
        if let Err(refusal) = validate::env_name(&entry.key) {
            reader.key_fault(entry, &path, refusal);
        }
        if entry.value.is_null() {
            let refusal = Refusal::new("has no value").with_hint(
                "write `\"\"` for an empty value, or list the name in `env_from` to pass on yours",
            );
            reader.fault(&entry.value, &path, refusal);
            continue;
        }
        if let Some(value) = reader.checked_of(&entry.value, &path, validate::env_value) {
            env.insert(entry.key.clone(), value);
        }
    }
    env
}

pub(super) fn env_from(reader: &mut Reader, fields: &Fields<'_>) -> Vec<String> {
    let items = reader.items(fields, "env_from");
    items
        .into_iter()
        .filter_map(|(node, path)| reader.checked_of(node, &path, validate::env_name))
        .collect()
}

pub(super) fn secrets(reader: &mut Reader, fields: &Fields<'_>) -> BTreeMap<String, SecretSource> {
    let mut secrets = BTreeMap::new();
    for (entry, path) in reader.entries(fields, "secrets") {
        if let Err(refusal) = validate::env_name(&entry.key) {
            reader.key_fault(entry, &path, refusal);
        }
        let refusal = || {
            Refusal::new("a secret names its source, it does not hold its value")
                .with_hint("write `{env: VARIABLE}` or `{file: PATH}`")
        };
        if entry.value.mapping().is_none() {
            reader.fault(&entry.value, &path, refusal());
            continue;
        }
        let Some(fields) = reader.fields(&entry.value, &path, keys::SECRET) else {
            continue;
        };
        let both = (fields.get("env").is_some(), fields.get("file").is_some());
        let source = match both {
            (true, false) => reader
                .checked(&fields, "env", source_name)
                .map(SecretSource::Env),
            (false, true) => reader
                .checked(&fields, "file", validate::path)
                .map(SecretSource::File),
            (true, true) => {
                let refusal = Refusal::new("has two sources").with_hint("keep `env` or `file`");
                reader.fault(&entry.value, &path, refusal);
                None
            }
            (false, false) => {
                reader.fault(&entry.value, &path, refusal());
                None
            }
        };
        if let Some(source) = source {
            secrets.insert(entry.key.clone(), source);
        }
    }
    secrets
}

/// The name of a variable that is read, not set: any that the submitter's environment may hold.
fn source_name(text: &str) -> Result<(), Refusal> {
    if text.is_empty() || text.contains(['=', '\0']) {
        return Err(Refusal::new("is not the name of a variable"));
    }
    Ok(())
}

pub(super) fn setup(reader: &mut Reader, fields: &Fields<'_>) -> Option<Setup> {
    let (node, path) = fields.get("setup")?;
    if node.mapping().is_none() {
        return reader
            .command_of(node, &path)
            .map(|run| Setup { run, on: None });
    }
    let fields = reader.fields(node, &path, keys::SETUP)?;
    let run = fields
        .get("run")
        .and_then(|(node, path)| reader.command_of(node, &path));
    let on = reader.choice(&fields, "on");
    Some(Setup { run: run?, on })
}

pub(super) fn datasets(reader: &mut Reader, fields: &Fields<'_>) -> Vec<Dataset> {
    let items = reader.items(fields, "datasets");
    items
        .into_iter()
        .filter_map(|(node, path)| dataset(reader, node, &path))
        .collect()
}

fn dataset(reader: &mut Reader, node: &Node, path: &str) -> Option<Dataset> {
    let fields = reader.fields(node, path, keys::DATASET)?;
    let name = reader.checked(&fields, "name", validate::dataset_name);
    let mode = reader.choice(&fields, "mode").unwrap_or_default();
    let mount = reader.checked(&fields, "mount", |text| {
        validate::path(text)?;
        if !text.starts_with('/') {
            return Err(Refusal::new("must be an absolute directory"));
        }
        Ok(())
    });
    let min_cached = fields.get("min_cached").and_then(|(node, path)| {
        let text = reader.text_of(node, &path)?;
        let number = text
            .strip_suffix('%')
            .unwrap_or(&text)
            .trim()
            .parse::<u8>()
            .ok();
        if number.is_none_or(|percent| percent > 100) {
            let message = format!("expected 0% to 100%, found {}", quoted(&text));
            reader.fault(node, &path, Refusal::new(message));
            return None;
        }
        number
    });
    Some(Dataset {
        name: name?,
        mode,
        mount,
        min_cached,
    })
}

pub(super) fn checkpoint(reader: &mut Reader, fields: &Fields<'_>) -> Option<Checkpoint> {
    let fields = section(reader, fields, "checkpoint", keys::CHECKPOINT)?;
    let protocol = reader.checked(&fields, "protocol", validate::name);
    let signal = fields.get("signal").and_then(|(node, path)| {
        let text = reader.text_of(node, &path)?;
        let name = signal::full_name(&text);
        if name.is_none() {
            let refusal = Refusal::new(format!("{} is not a signal to send", quoted(&text)));
            let refusal = match nearest(&text, signal::NAMES.iter().copied()) {
                Some(name) => refusal.with_hint(format!("did you mean `{name}`?")),
                None => refusal.with_hint("use one that a program can handle, like `SIGUSR1`"),
            };
            reader.fault(node, &path, refusal);
        }
        name.map(str::to_owned)
    });
    let checkpoint = Checkpoint {
        protocol: String::new(),
        dir: reader.checked(&fields, "dir", validate::path),
        signal,
        grace: positive_span(reader, &fields, "grace"),
        interval: positive_span(reader, &fields, "interval"),
        expected_size: positive_size(reader, &fields, "expected_size"),
    };
    Some(Checkpoint {
        protocol: protocol?,
        ..checkpoint
    })
}

pub(super) fn retry(reader: &mut Reader, fields: &Fields<'_>) -> Option<Retry> {
    let fields = section(reader, fields, "retry", keys::RETRY)?;
    let max = reader.integer(&fields, "max");
    let items = reader.items(&fields, "on");
    let on = items
        .into_iter()
        .filter_map(|(node, path)| retry_on(reader, node, &path))
        .collect();
    let backoff = reader.parsed(&fields, "backoff");
    Some(Retry {
        max: max?,
        on,
        backoff,
    })
}

fn retry_on(reader: &mut Reader, node: &Node, path: &str) -> Option<RetryOn> {
    let text = reader.text_of(node, path)?;
    if let Some(code) = text.strip_prefix("exit:") {
        let code = code.trim().parse::<u8>().ok().filter(|code| *code > 0);
        if code.is_none() {
            let message = format!("expected `exit:1` to `exit:255`, found {}", quoted(&text));
            reader.fault(node, path, Refusal::new(message));
        }
        return code.map(RetryOn::Exit);
    }
    let kind = FailureKind::ALL
        .iter()
        .copied()
        .find(|kind| kind.name() == text);
    if kind.is_none() {
        let names = || FailureKind::ALL.iter().map(|kind| kind.name());
        let refusal = Refusal::new(format!("{} is not a reason to fail", quoted(&text)));
        let hint = match nearest(&text, names()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("use {} or `exit:N`", names().collect::<Vec<_>>().join(", ")),
        };
        reader.fault(node, path, refusal.with_hint(hint));
    }
    kind.map(RetryOn::Reason)
}

pub(super) fn after(reader: &mut Reader, fields: &Fields<'_>) -> Vec<After> {
    let items = reader.items(fields, "after");
    items
        .into_iter()
        .filter_map(|(node, path)| after_one(reader, node, &path))
        .collect()
}

fn after_one(reader: &mut Reader, node: &Node, path: &str) -> Option<After> {
    if node.mapping().is_none() {
        let job = reader.checked_of(node, path, validate::name)?;
        return Some(After {
            job,
            when: crate::spec::AfterWhen::default(),
        });
    }
    let fields = reader.fields(node, path, keys::AFTER)?;
    let job = reader.checked(&fields, "job", validate::name);
    let when = reader.choice(&fields, "when").unwrap_or_default();
    Some(After { job: job?, when })
}

pub(super) fn slurm(reader: &mut Reader, fields: &Fields<'_>) -> Option<SlurmOptions> {
    let fields = section(reader, fields, "slurm", keys::SLURM)?;
    let partition = reader.checked(&fields, "partition", validate::name);
    let qos = reader.checked(&fields, "qos", validate::name);
    let account = reader.checked(&fields, "account", validate::name);
    let items = reader.items(&fields, "extra");
    let extra = items
        .into_iter()
        .filter_map(|(node, path)| reader.checked_of(node, &path, validate::slurm_extra))
        .collect();
    let allocation = reader.choice(&fields, "allocation").unwrap_or_default();
    let environment = reader.choice(&fields, "environment").unwrap_or_default();
    Some(SlurmOptions {
        partition,
        qos,
        account,
        extra,
        allocation,
        environment,
    })
}

pub(super) fn kueue(reader: &mut Reader, fields: &Fields<'_>) -> Option<KueueOptions> {
    let fields = section(reader, fields, "kueue", keys::KUEUE)?;
    Some(KueueOptions {
        namespace: reader.checked(&fields, "namespace", validate::name),
        queue: reader.checked(&fields, "queue", validate::name),
        priority_class: reader.checked(&fields, "priority_class", validate::name),
    })
}
