//! Checks of partitions, nodes and GPUs.

use std::collections::BTreeMap;

use herd_core::hostlist;
use herd_core::text::nearest;
use herd_slurm::facts::ClusterFacts;
use herd_slurm::gres;
use herd_slurm::partition::{Availability, Partition};

use crate::commands::doctor::{Finding, Verdict};
use crate::config::SlurmBackend;
use crate::error::count;
use crate::text;

/// Partitions, and reasons of nodes that are out, which are named to a person.
const SHOWN: usize = 8;

/// Partitions, and the one that jobs get.
pub(super) fn partitions(facts: &ClusterFacts, backend: &SlurmBackend) -> Vec<Finding> {
    let all = &facts.partitions;
    let shown: Vec<String> = all
        .iter()
        .take(SHOWN)
        .map(|one| in_words(one, facts))
        .collect();
    let more = match all.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let detail = format!("{}{more}", shown.join("; "));
    if all.is_empty() {
        return vec![
            Finding::new("partitions", Verdict::Fail, "none that you may see")
                .remedy("ask the site for access to a partition"),
        ];
    }
    let names = || all.iter().map(|one| one.name.as_str());
    let chosen = match &backend.partition {
        Some(name) if !names().any(|known| known == name) => {
            let near = nearest(name, names()).unwrap_or_default();
            return vec![
                Finding::new(
                    "partitions",
                    Verdict::Fail,
                    format!("the configuration names `{name}`, which is none of them: {detail}"),
                )
                .remedy(format!("change `partition` in the configuration {near}")),
            ];
        }
        Some(name) => facts.partition(Some(name)),
        None => facts.partition(None),
    };
    let mut found = match chosen {
        Some(_) => Finding::ok("partitions", detail),
        None => Finding::new(
            "partitions",
            Verdict::Warn,
            format!("none is the default: {detail}"),
        )
        .remedy("give `-p NAME`, or name `partition` in the configuration"),
    };
    if let Some(down) = chosen.filter(|one| one.state != Availability::Up) {
        found.verdict = Verdict::Warn;
        found.remedy = Some(format!(
            "{} starts no jobs or takes none just now: `scontrol show partition {}` says why",
            down.name, down.name
        ));
    }
    vec![found]
}

fn in_words(partition: &Partition, facts: &ClusterFacts) -> String {
    let mut words = vec![count(facts.nodes_of(Some(partition)).count(), "node")];
    words.push(match partition.max_time {
        Some(limit) => format!("at most {}", text::span(limit.ms)),
        None => "no time limit".to_owned(),
    });
    if partition.default {
        words.insert(0, "default".to_owned());
    }
    if partition.state != Availability::Up {
        words.push(format!("{:?}", partition.state).to_lowercase());
    }
    format!("{} ({})", partition.name, words.join(", "))
}

/// Nodes, and those that are out of service.
pub(super) fn nodes(facts: &ClusterFacts) -> Finding {
    let mut out: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for node in facts.nodes.iter().filter(|node| !node.state.is_usable()) {
        let why = node.reason.clone().unwrap_or_default();
        let state = node.state.word.clone();
        out.entry((state, why)).or_default().push(&node.name);
    }
    let most = |of: fn(&herd_slurm::node::Node) -> u64| facts.nodes.iter().map(of).max();
    let cpus = most(|node| node.cpus.into()).unwrap_or(0);
    let memory = most(|node| node.memory).unwrap_or(0);
    let size = format!(
        "{}, the largest with {cpus} CPUs and {}",
        count(facts.nodes.len(), "node"),
        text::size(memory.saturating_mul(1 << 20))
    );
    if out.is_empty() {
        return Finding::ok("nodes", size);
    }
    let shown: Vec<String> = out
        .iter()
        .take(SHOWN)
        .map(|((state, why), names)| {
            let why = if why.is_empty() {
                String::new()
            } else {
                format!(": {why}")
            };
            format!("{} {state}{why}", hostlist::fold(names))
        })
        .collect();
    Finding::new(
        "nodes",
        Verdict::Warn,
        format!("{size}; out of service: {}", shown.join("; ")),
    )
    .remedy("they come back when the site resumes them; jobs that need them wait")
}

/// GPUs by type.
pub(super) fn gpus(facts: &ClusterFacts) -> Finding {
    let mut by_kind: BTreeMap<(String, u32), Vec<&str>> = BTreeMap::new();
    for node in &facts.nodes {
        for gres in node.gres.iter().filter(|gres| gres.name == "gpu") {
            let kind = gres
                .kind
                .clone()
                .unwrap_or_else(|| "without a type".to_owned());
            let number = gres::gpus_of(&node.gres, gres.kind.as_deref());
            by_kind.entry((kind, number)).or_default().push(&node.name);
        }
    }
    if by_kind.is_empty() {
        return Finding::ok("gpus", "none");
    }
    let shown: Vec<String> = by_kind
        .iter()
        .map(|((kind, number), names)| format!("{number} {kind} on {}", hostlist::fold(names)))
        .collect();
    Finding::ok("gpus", shown.join("; "))
}
