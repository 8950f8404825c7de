//! Which node of the cluster this is, and what its logs and lines are called (§3, §6). Pure.

/// What is known of this node and its step.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Position in the step (`SLURM_PROCID`).
    pub(super) rank: u32,
    /// Slurm's name of this node (`SLURMD_NODENAME`).
    pub(super) node_name: Option<String>,
    /// Position among the step's nodes (`SLURM_NODEID`).
    pub(super) step_node: Option<u32>,
    /// Which of the cluster's addresses are this node's.
    pub(super) own_ips: Vec<String>,
}

/// The cluster, as the driver tells it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cluster<'a> {
    pub(super) size: u32,
    pub(super) ips: &'a [String],
    pub(super) nodes: &'a [String],
}

/// Position among the cluster's nodes, the head being 0; with a warning where it is a guess. It is never
/// fatal: it only feeds names of logs and prefixes (row 4).
pub(super) fn index(known: &Known, cluster: Cluster<'_>) -> (u32, Option<String>) {
    let position = |list: &[String], wanted: &str| {
        let found = list.iter().position(|entry| entry == wanted)?;
        u32::try_from(found).ok()
    };
    if let Some(name) = &known.node_name
        && let Some(found) = position(cluster.nodes, name)
    {
        return (found, None);
    }
    // Of several, which is the node's is not known.
    if let [own] = &known.own_ips[..]
        && let Some(found) = position(cluster.ips, own)
    {
        return (found, None);
    }
    if cluster.size == 1 {
        return (0, None);
    }
    let (index, source) = match known.step_node {
        Some(node) => (node, "SLURM_NODEID"),
        None => (known.rank, "SLURM_PROCID"),
    };
    let warning = format!(
        "this node{} has none of the cluster's addresses ({}); its logs are named by {source}, {index}",
        known
            .node_name
            .as_ref()
            .map(|name| format!(", {name},"))
            .unwrap_or_default(),
        cluster.ips.join(", "),
    );
    (index, Some(warning))
}

/// What one script's output is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Naming {
    /// File in the directory of logs.
    pub(super) file: String,
    /// Words of the prefix around the process's number.
    before: String,
    after: String,
}

impl Naming {
    /// The size of the cluster, not that of the task, decides.
    pub(super) fn new(
        is_setup: bool,
        cluster_size: u32,
        task_name: &str,
        rank: u32,
        index: u32,
        ip: &str,
    ) -> Self {
        let node = match index {
            0 => "head".to_owned(),
            _ => format!("worker{index}"),
        };
        let after = match index {
            0 => String::new(),
            _ => format!(", ip={ip}"),
        };
        if is_setup {
            return Self {
                file: format!("setup-{node}.log"),
                before: "setup ".to_owned(),
                after,
            };
        }
        if cluster_size == 1 {
            return Self {
                file: "run.log".to_owned(),
                before: format!("{task_name}, "),
                after: String::new(),
            };
        }
        Self {
            file: format!("{rank}-{node}.log"),
            before: format!("{node}, rank={rank}, "),
            after,
        }
    }

    /// What stands before each line, for a shell with this number: cyan, and a blank after it.
    pub(super) fn prefix(&self, pid: u32) -> String {
        format!(
            "\u{1b}[36m({}pid={pid}{})\u{1b}[0m ",
            self.before, self.after
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn a_name_then_an_address_then_the_step_say_which_node_it_is() {
        let ips = words(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        let nodes = words(&["a", "b", "c"]);
        let cluster = Cluster {
            size: 3,
            ips: &ips,
            nodes: &nodes,
        };
        let known = Known {
            node_name: Some("c".to_owned()),
            step_node: Some(0),
            own_ips: words(&["10.0.0.2"]),
            ..Known::default()
        };
        assert_eq!(index(&known, cluster), (2, None));
        let unnamed = Cluster {
            nodes: &[],
            ..cluster
        };
        assert_eq!(index(&known, unnamed), (1, None));
        let foreign = Known {
            own_ips: Vec::new(),
            ..known
        };
        let (found, warning) = index(&foreign, unnamed);
        assert_eq!(found, 0);
        assert!(warning.unwrap().contains("10.0.0.1, 10.0.0.2"));
        let alone = Cluster { size: 1, ..unnamed };
        assert_eq!(index(&foreign, alone), (0, None));
    }

    #[test]
    fn row_2_and_5_logs_and_prefixes_have_skypilots_names() {
        let of =
            |setup, size, rank, index| Naming::new(setup, size, "task", rank, index, "10.0.0.2");
        assert_eq!(of(true, 2, 0, 0).file, "setup-head.log");
        assert_eq!(of(true, 2, 1, 1).file, "setup-worker1.log");
        assert_eq!(
            of(true, 2, 1, 1).prefix(7),
            "\x1b[36m(setup pid=7, ip=10.0.0.2)\x1b[0m "
        );
        assert_eq!(of(true, 2, 0, 0).prefix(7), "\x1b[36m(setup pid=7)\x1b[0m ");
        assert_eq!(of(false, 1, 0, 0).file, "run.log");
        assert_eq!(
            of(false, 1, 0, 0).prefix(7),
            "\x1b[36m(task, pid=7)\x1b[0m "
        );
        assert_eq!(of(false, 2, 0, 0).file, "0-head.log");
        assert_eq!(
            of(false, 2, 0, 0).prefix(7),
            "\x1b[36m(head, rank=0, pid=7)\x1b[0m "
        );
        // Rank is not index where a task uses a part of the cluster (row 3).
        assert_eq!(of(false, 2, 0, 1).file, "0-worker1.log");
        assert_eq!(
            of(false, 2, 0, 1).prefix(7),
            "\x1b[36m(worker1, rank=0, pid=7, ip=10.0.0.2)\x1b[0m "
        );
    }
}
