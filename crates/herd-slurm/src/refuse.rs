//! What a cluster cannot honour, all at once and each with what to change (I13).

use herd_core::hostlist;
use herd_core::plan::Unsupported;
use herd_core::text::{nearest, quoted};
use herd_core::units::{Bytes, Span};
use herd_core::validate;

use crate::facts::{ClusterFacts, Images};
use crate::gres;
use crate::node::Node;
use crate::partition::{Availability, Partition};
use crate::script::{MIDDLE, Request};

fn refusal(key: &str, reason: String, hint: impl Into<String>) -> Unsupported {
    Unsupported {
        key: key.to_owned(),
        reason,
        hint: hint.into(),
    }
}

/// Everything that stands against a job on this cluster.
pub fn refusals(request: &Request<'_>, facts: &ClusterFacts) -> Vec<Unsupported> {
    let mut refused = extra(request, facts);
    let plan = request.plan;
    let named = request.options.partition.as_deref();
    let partition = facts.partition(named);
    match (partition, named) {
        _ if facts.partitions.is_empty() => {}
        (Some(partition), _) => refused.extend(partition_refusals(request, partition)),
        (None, Some(name)) => {
            let names = || facts.partitions.iter().map(|known| known.name.as_str());
            let hint = match nearest(name, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!(
                    "the partitions are {}",
                    names().collect::<Vec<_>>().join(", ")
                ),
            };
            let reason = format!("the cluster has no partition {}", quoted(name));
            refused.push(refusal("slurm.partition", reason, hint));
        }
        (None, None) => {
            let names: Vec<_> = facts.partitions.iter().map(|p| p.name.as_str()).collect();
            refused.push(refusal(
                "slurm.partition",
                "is not set, and the cluster has no default partition".to_owned(),
                format!("name one of {}", names.join(", ")),
            ));
        }
    }
    if partition.is_some() {
        refused.extend(node_refusals(request, facts, partition));
    }
    if plan.tasks_apart
        && let Some(array) = &plan.array
        && facts.chunks(array).is_empty()
    {
        refused.push(refusal(
            "array",
            "the cluster has no arrays (MaxArraySize)".to_owned(),
            "run the tasks in one allocation, `slurm: {allocation: job}`",
        ));
    }
    if plan.priority > MIDDLE {
        refused.push(refusal(
            "priority",
            "Slurm's users can only step back, not ahead".to_owned(),
            format!("use {MIDDLE} or less, or a QOS of higher priority (`slurm.qos`)"),
        ));
    }
    match (request.image, facts.images) {
        (Some(_), Images::No) => refused.push(refusal(
            "image",
            "the cluster runs no containers: it has neither Pyxis nor Slurm's OCI support (oci.conf)"
                .to_owned(),
            "remove `image`, and make the programs available with `module` or `setup`",
        )),
        (Some(image), Images::Bundles) if !image.starts_with('/') => refused.push(refusal(
            "image",
            "the cluster runs only OCI bundles that lie in a directory".to_owned(),
            "give the absolute path of a bundle on the nodes",
        )),
        _ => {}
    }
    refused
}

/// `slurm.extra`: the allow-list, and what herd says itself.
fn extra(request: &Request<'_>, facts: &ClusterFacts) -> Vec<Unsupported> {
    const KEY: &str = "slurm.extra";
    let mut refused = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    let mut named: Vec<(&str, Vec<String>)> = Vec::new();
    for text in &request.options.extra {
        if let Err(why) = validate::slurm_extra(text) {
            let hint = why.hint.unwrap_or_else(|| "remove it".to_owned());
            refused.push(refusal(
                KEY,
                format!("{}: {}", quoted(text), why.message),
                hint,
            ));
            continue;
        }
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        if seen.contains(&name) {
            let reason = format!("has `{name}` twice, of which Slurm would take the last");
            refused.push(refusal(KEY, reason, "keep one of them"));
        }
        seen.push(name);
        if name == "--comment" {
            let reason = "`--comment` holds the id by which herd knows its job".to_owned();
            refused.push(refusal(KEY, reason, "remove it"));
        }
        if matches!(name, "--exclude" | "--nodelist") {
            match hostlist::expand(value) {
                Ok(nodes) if nodes.is_empty() => {
                    let reason = format!("`{name}` names no node");
                    refused.push(refusal(KEY, reason, format!("write `{name}=node[1-3]`")));
                }
                Ok(nodes) => {
                    refused.extend(unknown_node(name, &nodes, facts));
                    named.push((name, nodes));
                }
                Err(error) => {
                    let reason = format!("`{name}`: {error}");
                    refused.push(refusal(KEY, reason, format!("write `{name}=node[1-3,7]`")));
                }
            }
        }
        if name == "--nice" && request.plan.priority < MIDDLE {
            let reason = "`--nice` and `priority` are the same for Slurm".to_owned();
            refused.push(refusal(KEY, reason, "keep one of them"));
        }
    }
    if let [(_, some), (_, others)] = named.as_slice()
        && let Some(node) = some.iter().find(|node| others.contains(node))
    {
        let reason = format!("`--nodelist` and `--exclude` both name {node}");
        refused.push(refusal(KEY, reason, "take it out of one of them"));
    }
    refused
}

/// A node that the cluster does not have: sbatch refuses the whole script then.
fn unknown_node(option: &str, names: &[String], facts: &ClusterFacts) -> Option<Unsupported> {
    if facts.nodes.is_empty() {
        return None;
    }
    let unknown = names.iter().find(|name| !facts.has_node(name))?;
    let known = facts.nodes.iter().map(|node| node.name.as_str());
    let hint = match nearest(unknown, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`sinfo -N` lists the nodes".to_owned(),
    };
    let reason = format!(
        "`{option}` names {}, which the cluster does not have",
        quoted(unknown)
    );
    Some(refusal("slurm.extra", reason, hint))
}

/// What the settings of the partition forbid.
fn partition_refusals(request: &Request<'_>, partition: &Partition) -> Vec<Unsupported> {
    let mut refused = Vec::new();
    let (plan, options) = (request.plan, request.options);
    let name = &partition.name;
    let mut refuse = |key: &str, reason: String, hint: &str| {
        refused.push(refusal(key, reason, hint));
    };
    if matches!(
        partition.state,
        Availability::Drain | Availability::Inactive
    ) {
        let reason = format!("the partition {name} takes no jobs just now");
        refuse("slurm.partition", reason, "use another partition");
    }
    if let Some(most) = partition.max_nodes.filter(|most| plan.nodes > *most) {
        let reason = format!(
            "the partition {name} gives at most {most} nodes, not {}",
            plan.nodes
        );
        refuse("nodes", reason, "ask for fewer, or use another partition");
    }
    if plan.nodes < partition.min_nodes {
        let least = partition.min_nodes;
        let reason = format!(
            "the partition {name} gives at least {least} nodes, not {}",
            plan.nodes
        );
        refuse("nodes", reason, "ask for more, or use another partition");
    }
    if let (Some(walltime), Some(most)) = (plan.walltime, partition.max_time) {
        // Slurm counts whole minutes, upwards.
        let asked = Span {
            ms: walltime.ms.div_ceil(60_000).saturating_mul(60_000),
        };
        if asked > most {
            let reason = format!("the partition {name} allows {most}, not {asked}");
            refuse("walltime", reason, "ask for less, or use another partition");
        }
    }
    if let (Some(memory), Some(most)) = (plan.resources.memory, partition.max_memory) {
        let most = Bytes(most.saturating_mul(1 << 20));
        if memory > most {
            let reason = format!("the partition {name} allows {} a node", most.approximate());
            refuse("resources.memory", reason, "ask for less");
        }
    }
    if let Some(account) = &options.account {
        // Slurm keeps accounts in small letters.
        let account = account.to_ascii_lowercase();
        let allowed = partition.allow_accounts.as_ref();
        if allowed.is_some_and(|list| !list.contains(&account))
            || partition.deny_accounts.contains(&account)
        {
            let reason = format!("the partition {name} does not let in the account {account}");
            refuse("slurm.account", reason, "use another account or partition");
        }
    }
    if let (Some(qos), Some(allowed)) = (&options.qos, &partition.allow_qos) {
        if !allowed.contains(qos) {
            let reason = format!(
                "the partition {name} does not allow the QOS {}",
                quoted(qos)
            );
            refuse("slurm.qos", reason, "use another QOS or partition");
        }
    }
    refused
}

/// Amounts that too few nodes have, each alone, and together where each alone would do.
fn node_refusals(
    request: &Request<'_>,
    facts: &ClusterFacts,
    partition: Option<&Partition>,
) -> Vec<Unsupported> {
    let mut refused = Vec::new();
    let resources = &request.plan.resources;
    let wanted = request.plan.nodes as usize;
    let nodes: Vec<&Node> = facts.nodes_of(partition).collect();
    if nodes.is_empty() {
        return refused;
    }
    let types = facts.gpu_types(partition);
    let kind = resources
        .gpu_type
        .as_deref()
        .filter(|_| resources.gpus.is_some_and(|g| g > 0));
    if let Some(kind) = kind.filter(|kind| !types.iter().any(|t| t.eq_ignore_ascii_case(kind))) {
        let list: Vec<_> = types.iter().copied().collect();
        let hint = if list.is_empty() {
            "remove it: the cluster does not tell types of GPUs apart".to_owned()
        } else {
            format!("its GPUs are {}", list.join(", "))
        };
        let reason = format!("no node there has GPUs of the type {}", quoted(kind));
        refused.push(refusal("resources.gpu_type", reason, hint));
        return refused;
    }
    let gpus_of = |node: &Node| gres::gpus_of(&node.gres, kind);
    let memory = resources
        .memory
        .map_or(0, |memory| memory.0.div_ceil(1 << 20));
    let has_cpus = |node: &Node| node.cpus >= resources.cpus.unwrap_or(0);
    let has_memory = |node: &Node| node.memory >= memory;
    let has_gpus = |node: &Node| gpus_of(node) >= resources.gpus.unwrap_or(0);
    let fit = |has: &dyn Fn(&Node) -> bool| nodes.iter().filter(|node| has(node)).count();
    let checks = [
        (
            "resources.cpus",
            fit(&has_cpus),
            most_of(&nodes, |node| node.cpus.into(), "CPUs"),
        ),
        (
            "resources.memory",
            fit(&has_memory),
            most_of(&nodes, |node| node.memory, "MiB"),
        ),
        (
            "resources.gpus",
            fit(&has_gpus),
            most_of(&nodes, |node| gpus_of(node).into(), "GPUs"),
        ),
    ];
    let all = nodes.len();
    for (key, fit, most) in checks {
        if fit < wanted && wanted <= all {
            let reason =
                format!("{fit} of the {all} nodes there have so much; the largest has {most}");
            refused.push(refusal(
                key,
                reason,
                "ask for less, or use another partition",
            ));
        }
    }
    if wanted > all {
        let reason = format!("there are {all} nodes there, not {wanted}");
        refused.push(refusal(
            "nodes",
            reason,
            "ask for fewer, or use another partition",
        ));
    } else if refused.is_empty() {
        let together = |node: &&&Node| has_cpus(node) && has_memory(node) && has_gpus(node);
        let fit = nodes.iter().filter(together).count();
        if fit < wanted {
            let reason = format!(
                "{fit} of the {all} nodes there have so many CPUs, so much memory and so many GPUs \
                 together"
            );
            refused.push(refusal("resources", reason, "ask for less of one of them"));
        }
    }
    refused
}

fn most_of(nodes: &[&Node], of: impl Fn(&Node) -> u64, unit: &str) -> String {
    let most = nodes.iter().map(|node| of(node)).max().unwrap_or(0);
    format!("{most} {unit}")
}

/// What a person should know of a job that is accepted.
pub fn notes(request: &Request<'_>, facts: &ClusterFacts) -> Vec<String> {
    let mut notes = Vec::new();
    let plan = request.plan;
    let partition = facts.partition(request.options.partition.as_deref());
    if plan.resources.memory.is_some() && !facts.config.divides_memory() {
        notes.push(
            "resources.memory is not enforced: the cluster does not divide the memory of a node"
                .to_owned(),
        );
    }
    if plan.walltime.is_none() {
        if let Some(limit) = partition.and_then(|p| p.default_time.or(p.max_time)) {
            notes.push(format!(
                "walltime is not set, so Slurm ends the job after {limit}, the partition's limit"
            ));
        }
    }
    let kill_wait = facts.config.kill_wait();
    if plan.checkpoint.is_some() && plan.grace > kill_wait {
        notes.push(format!(
            "checkpoint.grace of {} holds for `herd cancel`; `scancel` leaves {kill_wait} (KillWait)",
            plan.grace
        ));
    }
    if plan.checkpoint.is_some() && facts.config.preempts() {
        if !facts.config.sends_user_signal(facts.version) {
            notes.push(
                "the cluster preempts jobs without a signal ahead (send_user_signal is not set), \
                 so a checkpoint is asked for only when SIGTERM comes"
                    .to_owned(),
            );
        } else if let Some(partition) =
            partition.filter(|partition| partition.grace.ms > 0 && partition.grace < plan.grace)
        {
            notes.push(format!(
                "a preemption in the partition {} leaves {}, less than checkpoint.grace of {}",
                partition.name, partition.grace, plan.grace
            ));
        }
    }
    notes
}
