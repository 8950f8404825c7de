//! Amounts, which Slurm counts by job, node, task, CPU or GPU, as amounts of one node.

use herd_core::jobfile::keys;
use herd_core::spec::JobSpec;
use herd_core::text::quoted;
use herd_core::units::Bytes;
use herd_core::validate;

use super::fates::TASKS;
use super::lines::{Given, Options};
use super::options::Findings;
use crate::gres::{self, megabytes};

/// Fills in `nodes` and `resources`.
pub(super) fn apply(given: &Options, spec: &mut JobSpec, found: &mut Findings<'_>) {
    let mut number = |name: &str| {
        let value = given.get(name)?;
        // `2-2` and `2` are the same number of nodes.
        let text = match value.value.split_once('-') {
            Some((least, most)) if name == "nodes" && least == most => least,
            _ => &value.value,
        };
        match text.parse::<u32>() {
            Ok(number) if number > 0 => Some((value, number)),
            _ => {
                let message = format!("{} is no number above 0", quoted(&value.value));
                found.refuse(name, value, &message, "write one number");
                None
            }
        }
    };
    let nodes = number("nodes");
    let cpus = number("cpus-per-task");
    let tasks = number("ntasks");
    let tasks_per_node = number("ntasks-per-node");
    // A script runs on the first node; herd would run it on each.
    for (name, value) in [
        ("nodes", nodes),
        ("ntasks", tasks),
        ("ntasks-per-node", tasks_per_node),
    ] {
        if let Some((value, _)) = value.filter(|(_, number)| *number > 1) {
            let message = if name == "nodes" {
                "Slurm runs a script on the first node alone, herd a command on every node"
            } else {
                "herd starts the tasks itself, and the script's srun would start one"
            };
            found.refuse(name, value, message, TASKS);
        }
    }
    if let Some((value, cpus)) = cpus {
        let result = validate::in_range(cpus, keys::CPUS);
        match result {
            Ok(()) => spec.resources.cpus = Some(cpus),
            Err(refusal) => found.refuse("cpus-per-task", value, &refusal.message, "ask for less"),
        }
    }
    gpus(given, spec, found);
    memory(given, spec, found);
    variables(given, spec);
}

/// What `sbatch` tells a script of options that herd asks for in another way.
fn variables(given: &Options, spec: &mut JobSpec) {
    let mut say = |option: &str, name: &str, value: &str| {
        if given.contains_key(option) {
            spec.env
                .entry(name.to_owned())
                .or_insert_with(|| value.to_owned());
        }
    };
    // More than one was refused.
    for option in ["ntasks", "ntasks-per-node"] {
        say(option, "SLURM_NTASKS", "1");
        say(option, "SLURM_NPROCS", "1");
    }
    say("ntasks-per-node", "SLURM_NTASKS_PER_NODE", "1");
    for (option, name) in [
        ("gpus", "SLURM_GPUS"),
        ("gpus-per-node", "SLURM_GPUS_PER_NODE"),
        ("gpus-per-task", "SLURM_GPUS_PER_TASK"),
    ] {
        if let Some(value) = given.get(option) {
            say(option, name, &value.value);
        }
    }
    for (option, name) in [
        ("mem-per-cpu", "SLURM_MEM_PER_CPU"),
        ("mem-per-gpu", "SLURM_MEM_PER_GPU"),
    ] {
        if let Some(mib) = given.get(option).and_then(amount) {
            say(option, name, &mib.to_string());
        }
    }
}

/// With one node and one task, all ways to ask for GPUs mean the same.
fn gpus(given: &Options, spec: &mut JobSpec, found: &mut Findings<'_>) {
    for name in ["gres", "gpus", "gpus-per-node", "gpus-per-task"] {
        let Some(value) = given.get(name) else {
            continue;
        };
        if value.value.eq_ignore_ascii_case("none") || value.value == "0" {
            continue;
        }
        // `--gpus=h800:2`: the word before is left out.
        let list = if name == "gres" {
            value.value.clone()
        } else {
            format!("gpu:{}", value.value)
        };
        let entries = gres::parse(&list);
        let [entry] = entries.as_slice() else {
            let message = format!("{} is not one kind of GPUs", quoted(&value.value));
            found.refuse(name, value, &message, "write `--gres=gpu:h800:4`");
            continue;
        };
        if entry.name != "gpu" || entry.count == 0 {
            let message = format!("{} asks for something else than GPUs", quoted(&value.value));
            found.refuse(
                name,
                value,
                &message,
                "write `--gres=gpu:4`, or ask for a feature with `--constraint`",
            );
            continue;
        }
        let same = spec.resources.gpus.is_none_or(|gpus| gpus == entry.count);
        if !same {
            let message = format!(
                "asks for {} GPUs, and another option for a different number",
                entry.count
            );
            found.refuse(name, value, &message, "keep one of them");
            continue;
        }
        spec.resources.gpus = Some(entry.count);
        if entry.kind.is_some() {
            spec.resources.gpu_type.clone_from(&entry.kind);
        }
    }
}

fn memory(given: &Options, spec: &mut JobSpec, found: &mut Findings<'_>) {
    let cpus = spec.resources.cpus.unwrap_or(1);
    let gpus = spec.resources.gpus.unwrap_or(0);
    for (name, times) in [("mem", 1), ("mem-per-cpu", cpus), ("mem-per-gpu", gpus)] {
        let Some(value) = given.get(name) else {
            continue;
        };
        let Some(mib) = amount(value) else {
            let message = format!("{} is no amount of memory", quoted(&value.value));
            found.refuse(name, value, &message, "write `--mem=32G`");
            continue;
        };
        if mib == 0 {
            let message = "0 asks for all memory of the node";
            found.refuse(name, value, message, "say how much it needs");
            continue;
        }
        if times == 0 {
            found.refuse(name, value, "the script asks for no GPUs", "use `--mem`");
            continue;
        }
        let bytes = Bytes(mib.saturating_mul(1 << 20).saturating_mul(times.into()));
        match validate::memory(bytes) {
            Ok(()) if spec.resources.memory.is_none() => spec.resources.memory = Some(bytes),
            Ok(()) => found.refuse(
                name,
                value,
                "another option asks for memory too",
                "keep one of them",
            ),
            Err(refusal) => found.refuse(name, value, &refusal.message, "ask for more"),
        }
    }
}

/// Slurm's sizes: MiB where there is no unit; `G` and `GB` are the same.
fn amount(given: &Given) -> Option<u64> {
    let text = given.value.trim().to_ascii_uppercase();
    let text = text.strip_suffix('B').unwrap_or(&text);
    text.starts_with(|c: char| c.is_ascii_digit())
        .then_some(())?;
    megabytes(text)
}
