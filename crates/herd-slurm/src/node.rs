//! Nodes: `sinfo -N` for what they are, `scontrol -o show node` for what is in use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::gres::{self, Gres};
use crate::text::{self, fields, given, records, value};

/// The cheap question: every node with its partitions.
pub fn list_call() -> Call {
    // %E, an administrator's words, stands last.
    let letters = ["%N", "%R", "%T", "%c", "%m", "%G", "%f", "%C", "%E"];
    let format = text::record_format(&letters);
    Call::new("sinfo", ["-h", "-a", "-N", "-o", &format])
}

/// The dear question: everything about nodes, about a kilobyte each.
pub fn show_call(nodes: Option<&str>) -> Call {
    let show = ["-a", "-o", "show", "node"];
    Call::new("scontrol", show.into_iter().chain(nodes))
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name in Slurm.
    pub name: String,
    /// Partitions it is in.
    pub partitions: Vec<String>,
    /// What it is doing.
    pub state: NodeState,
    /// CPUs, and how many of them are allocated.
    pub cpus: u32,
    /// CPUs that jobs have.
    pub cpus_used: u32,
    /// Memory, MiB.
    pub memory: u64,
    /// Memory that jobs have, MiB; only from [`parse_show`].
    pub memory_used: Option<u64>,
    /// Generic resources.
    pub gres: Vec<Gres>,
    /// GPUs that jobs have; only from [`parse_show`].
    pub gpus_used: Option<u32>,
    /// Features that `--constraint` may name.
    pub features: Vec<String>,
    /// Why it is down or drained, in an administrator's words.
    pub reason: Option<String>,
}

/// State of a node: a word and marks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// `idle`, `mixed`, `allocated`, `down`, `drained`, …, in small letters.
    pub word: String,
    /// `*`: it does not answer.
    pub silent: bool,
    /// `~`, `#`, `%` or `!`: it is powered down, up, or about to be.
    pub power: bool,
    /// Further flags, as `scontrol` names them (`drain`, `maintenance`, `reserved`), small letters.
    pub flags: Vec<String>,
}

impl NodeState {
    /// Reads `idle`, `mixed-`, `down*`, `IDLE+DRAIN`, `idle~`.
    pub fn parse(text: &str) -> Self {
        const MARKS: &[char] = &['*', '~', '#', '%', '$', '@', '^', '!', '-', '+'];
        let text = text.trim();
        let bare = text.trim_end_matches(MARKS);
        let marks = &text[bare.len()..];
        let mut words = bare.split('+').map(|word| {
            let word = word.trim_end_matches(MARKS);
            word.to_ascii_lowercase()
        });
        let word = words.next().unwrap_or_default();
        let flags: Vec<String> = words.collect();
        let flagged = |name: &str| flags.iter().any(|flag| flag == name);
        Self {
            silent: marks.contains('*') || flagged("not_responding"),
            power: marks.contains(['~', '#', '%', '!'])
                || flags.iter().any(|flag| flag.starts_with("power")),
            word,
            flags,
        }
    }

    /// What it is for jobs, in a word: of a node that is drained `scontrol` says `IDLE+DRAIN`, `sinfo`
    /// what is said here.
    pub fn shown(&self) -> &str {
        let flagged = |name: &str| self.flags.iter().any(|flag| flag == name);
        match self.word.as_str() {
            "idle" if flagged("drain") => "drained",
            "mixed" | "mix" | "allocated" | "alloc" | "completing" if flagged("drain") => {
                "draining"
            }
            "idle" if flagged("fail") => "failing",
            word if flagged("maintenance") || flagged("maint") => match word {
                "down" => word,
                _ => "maintenance",
            },
            "idle" if flagged("reserved") => "reserved",
            "idle" | "mixed" | "allocated" if self.silent => "silent",
            word => word,
        }
    }

    /// Whether it can run jobs, now or after others have ended.
    pub fn is_usable(&self) -> bool {
        const OUT: &[&str] = &["drain", "fail", "maint", "maintenance", "reserved"];
        let runs = [
            "idle",
            "mixed",
            "allocated",
            "completing",
            "planned",
            "alloc",
            "comp",
            "mix",
        ];
        runs.contains(&self.word.as_str())
            && !self.silent
            && !self.flags.iter().any(|flag| OUT.contains(&flag.as_str()))
    }
}

/// Reads the output of [`list_call`]: one record for each node and partition, put together.
pub fn parse_list(text: &str) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records(text) {
        let Some(
            [
                name,
                partition,
                state,
                cpus,
                memory,
                gres,
                features,
                use_,
                reason,
            ],
        ) = fields::<9>(record)
        else {
            continue;
        };
        if let Some(node) = places.get(name).and_then(|at| nodes.get_mut(*at)) {
            node.partitions.push(partition.to_owned());
            continue;
        }
        places.insert(name, nodes.len());
        nodes.push(Node {
            name: name.to_owned(),
            partitions: vec![partition.to_owned()],
            state: NodeState::parse(state),
            // A `+` follows where several nodes were put together.
            cpus: leading(cpus),
            cpus_used: leading(use_),
            memory: u64::from(leading(memory)),
            memory_used: None,
            gres: gres::parse(gres),
            gpus_used: None,
            features: list(features),
            reason: given(reason)
                .filter(|text| *text != "none")
                .map(str::to_owned),
        });
    }
    nodes
}

/// Reads the output of [`show_call`], one node a line.
pub fn parse_show(text: &str) -> Vec<Node> {
    text.lines().filter_map(shown).collect()
}

fn shown(line: &str) -> Option<Node> {
    let get = |key: &str| value(line, key).and_then(given);
    let used = get("AllocTRES").unwrap_or("");
    // The reason is free text at the end of the line, with who wrote it in brackets.
    let reason = line.split_once(" Reason=").map(|(_, reason)| reason.trim());
    Some(Node {
        name: get("NodeName")?.to_owned(),
        partitions: get("Partitions").map(list).unwrap_or_default(),
        state: NodeState::parse(get("State").unwrap_or("unknown")),
        cpus: get("CPUTot").map_or(0, leading),
        cpus_used: get("CPUAlloc").map_or(0, leading),
        memory: get("RealMemory").map_or(0, |text| u64::from(leading(text))),
        memory_used: Some(get("AllocMem").map_or_else(
            || gres::tres_memory(used).unwrap_or(0),
            |text| u64::from(leading(text)),
        )),
        gres: get("Gres").map(gres::parse).unwrap_or_default(),
        gpus_used: Some(
            gres::tres(used, "gres/gpu").map_or(0, |gpus| u32::try_from(gpus).unwrap_or(u32::MAX)),
        ),
        features: get("ActiveFeatures")
            .or_else(|| get("AvailableFeatures"))
            .map(list)
            .unwrap_or_default(),
        reason: reason.and_then(given).map(str::to_owned),
    })
}

fn list(text: &str) -> Vec<String> {
    given(text).map_or_else(Vec::new, |text| {
        text.split(',').map(str::to_owned).collect()
    })
}

/// The number a text begins with: `8`, `8+`, `4/4/0/8`.
fn leading(text: &str) -> u32 {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text[..end].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn states_and_their_marks_are_read() {
        let read = |text| {
            let state = NodeState::parse(text);
            (
                state.word.clone(),
                state.silent,
                state.power,
                state.is_usable(),
            )
        };
        for (text, word, silent, power, usable) in [
            ("idle", "idle", false, false, true),
            ("mixed-", "mixed", false, false, true),
            ("idle*", "idle", true, false, false),
            ("idle~", "idle", false, true, true),
            ("down*", "down", true, false, false),
            ("drained", "drained", false, false, false),
            ("IDLE+DRAIN", "idle", false, false, false),
            ("DOWN*+DRAIN+NOT_RESPONDING", "down", true, false, false),
            ("IDLE+CLOUD+POWERED_DOWN", "idle", false, true, true),
            ("inval", "inval", false, false, false),
            ("", "", false, false, false),
        ] {
            assert_eq!(
                read(text),
                (word.to_owned(), silent, power, usable),
                "{text}"
            );
        }
    }

    #[test]
    fn a_node_of_two_partitions_is_one_node() {
        let record = |partition: &str| {
            format!(
                "n1\u{1f}{partition}\u{1f}idle\u{1f}8\u{1f}4000\u{1f}gpu:2\u{1f}ib,nvme\u{1f}0/8/0/8\u{1f}a\u{1f}b\u{1e}\n"
            )
        };
        let nodes = parse_list(&(record("all") + &record("gpu") + "n2\u{1f}cut"));
        assert_eq!(nodes.len(), 1);
        assert_eq!(nodes[0].partitions, ["all", "gpu"]);
        assert_eq!(nodes[0].features, ["ib", "nvme"]);
        assert_eq!(nodes[0].reason.as_deref(), Some("a\u{1f}b"));
    }

    #[test]
    fn a_drained_node_is_not_shown_as_idle() {
        for (text, shown) in [
            ("IDLE+DRAIN", "drained"),
            ("MIXED+DRAIN", "draining"),
            ("IDLE+MAINTENANCE+RESERVED", "maintenance"),
            ("IDLE*+NOT_RESPONDING", "silent"),
            ("DOWN+DRAIN", "down"),
            ("drained*", "drained"),
            ("IDLE", "idle"),
        ] {
            assert_eq!(NodeState::parse(text).shown(), shown, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-zA-Z0-9 =+*\u{1f}\u{1e}\n/]{0,80}") {
            drop((parse_list(&text), parse_show(&text)));
        }
    }
}
