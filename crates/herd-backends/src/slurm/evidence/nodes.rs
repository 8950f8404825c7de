//! Which nodes would do for a job now, and what keeps it off the others.

use std::collections::BTreeMap;

use herd_core::hostlist;
use herd_core::spec::Resources;
use herd_slurm::charge::Charge;
use herd_slurm::fit::{Obstacle, obstacle};
use herd_slurm::node::Node;
use serde::Serialize;

/// The nodes of a job's partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nodes {
    /// How many the job asks for.
    pub wanted: u32,
    /// How many there are.
    pub total: u32,
    /// How many would fit now.
    pub fit: u32,
    /// Those, in Slurm's short form.
    pub fitting: String,
    /// What keeps the job off the others.
    pub obstacles: Vec<Blocked>,
}

/// Nodes that one thing keeps the job off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// Their names, in Slurm's short form.
    pub nodes: String,
    /// How many they are.
    pub count: u32,
    /// What it is.
    pub obstacle: Obstacle,
}

/// Which nodes would do now, and what keeps the job off the others.
pub(super) fn fit(all: &[Node], charge: Option<&Charge>, wanted: &Resources, nodes: u32) -> Nodes {
    let ours = all.iter().filter(|node| {
        let of = |partition: &String| charge.is_none_or(|charge| charge.is_in(partition));
        node.partitions.iter().any(of)
    });
    let mut total = 0;
    let mut fitting = Vec::new();
    let mut blocked: BTreeMap<Obstacle, Vec<&str>> = BTreeMap::new();
    for node in ours {
        total += 1;
        match obstacle(node, wanted) {
            None => fitting.push(node.name.as_str()),
            Some(obstacle) => blocked.entry(obstacle).or_default().push(&node.name),
        }
    }
    let count = |names: &[&str]| u32::try_from(names.len()).unwrap_or(u32::MAX);
    Nodes {
        wanted: nodes,
        total,
        fit: count(&fitting),
        fitting: hostlist::fold(&fitting),
        obstacles: blocked
            .into_iter()
            .map(|(obstacle, names)| Blocked {
                count: count(&names),
                nodes: hostlist::fold(&names),
                obstacle,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use herd_slurm::node;

    use super::*;

    #[test]
    fn nodes_of_the_partition_are_put_together_by_what_keeps_the_job_off_them() {
        let line = |name: &str, partition: &str, used: u32| {
            format!(
                "NodeName={name} CPUAlloc={used} CPUTot=8 RealMemory=4000 AllocMem=0 State=MIXED \
                 Partitions={partition}\n"
            )
        };
        let text = line("n1", "gpu", 8)
            + &line("n2", "gpu", 8)
            + &line("n3", "gpu", 1)
            + &line("m1", "cpu", 0);
        let wanted = Resources {
            cpus: Some(4),
            ..Resources::default()
        };
        let found = fit(
            &node::parse_show(&text),
            Some(&super::super::charge()),
            &wanted,
            2,
        );
        assert_eq!((found.total, found.fit, found.wanted), (3, 1, 2));
        assert_eq!(found.fitting, "n3");
        let blocked = &found.obstacles[0];
        assert_eq!((blocked.nodes.as_str(), blocked.count), ("n[1-2]", 2));
        assert_eq!(blocked.obstacle, Obstacle::Cpus(0));
    }
}
