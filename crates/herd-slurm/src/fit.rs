//! Which nodes a waiting job could use, and what keeps it off the others: evidence for `herd why`.

use herd_core::spec::Resources;
use serde::{Deserialize, Serialize};

use crate::gres;
use crate::node::Node;

/// What keeps a job off a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// The node has less than the job asks for, even when it is empty.
    TooSmall,
    /// It is down, drained, reserved or does not answer: its state, and the administrator's words.
    OutOfService(String, Option<String>),
    /// Other jobs have its CPUs: so many are free.
    Cpus(u32),
    /// Other jobs have its memory: so many MiB are free.
    Memory(u64),
    /// Other jobs have its GPUs: so many are free.
    Gpus(u32),
}

/// The first thing that keeps the job off this node; none where it would fit now. The node has to
/// come from [`crate::node::parse_show`], which knows what is in use. GPUs in use are not told
/// apart by type, so on nodes with several types the answer is a guess.
pub fn obstacle(node: &Node, wanted: &Resources) -> Option<Obstacle> {
    let cpus = wanted.cpus.unwrap_or(1);
    let memory = wanted.memory.map_or(0, |memory| memory.0.div_ceil(1 << 20));
    let gpus = wanted.gpus.unwrap_or(0);
    let kind = wanted.gpu_type.as_deref().filter(|_| gpus > 0);
    let has_gpus = gres::gpus_of(&node.gres, kind);
    if node.cpus < cpus || node.memory < memory || has_gpus < gpus {
        return Some(Obstacle::TooSmall);
    }
    if !node.state.is_usable() {
        let state = node.state.shown().to_owned();
        return Some(Obstacle::OutOfService(state, node.reason.clone()));
    }
    let free_cpus = node.cpus.saturating_sub(node.cpus_used);
    let free_memory = node.memory.saturating_sub(node.memory_used.unwrap_or(0));
    let free_gpus = has_gpus.saturating_sub(node.gpus_used.unwrap_or(0));
    if free_cpus < cpus {
        Some(Obstacle::Cpus(free_cpus))
    } else if free_memory < memory {
        Some(Obstacle::Memory(free_memory))
    } else if free_gpus < gpus {
        Some(Obstacle::Gpus(free_gpus))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node;
    use herd_core::units::Bytes;

    fn wanted(cpus: u32, gib: u64, gpus: u32) -> Resources {
        Resources {
            cpus: Some(cpus),
            memory: Some(Bytes(gib << 30)),
            gpus: Some(gpus),
            gpu_type: None,
        }
    }

    #[test]
    fn the_first_obstacle_is_named() {
        let line = "NodeName=n1 CPUAlloc=6 CPUTot=8 Gres=gpu:h800:4 RealMemory=8192 AllocMem=4096 \
                    State=MIXED AllocTRES=cpu=6,mem=4G,gres/gpu=3";
        let node = node::parse_show(line).remove(0);
        let of = |cpus, gib, gpus| obstacle(&node, &wanted(cpus, gib, gpus));
        assert_eq!(of(2, 4, 1), None);
        assert_eq!(of(4, 1, 1), Some(Obstacle::Cpus(2)));
        assert_eq!(of(1, 6, 1), Some(Obstacle::Memory(4096)));
        assert_eq!(of(1, 1, 2), Some(Obstacle::Gpus(1)));
        assert_eq!(of(9, 1, 0), Some(Obstacle::TooSmall));
        let drained = line.replace("MIXED", "MIXED+DRAIN") + " Reason=bad fan [root@now]";
        let node = node::parse_show(&drained).remove(0);
        assert_eq!(
            obstacle(&node, &wanted(1, 1, 0)),
            Some(Obstacle::OutOfService(
                "draining".to_owned(),
                Some("bad fan [root@now]".to_owned())
            ))
        );
        let other = Resources {
            gpu_type: Some("a100".to_owned()),
            ..wanted(1, 1, 1)
        };
        assert_eq!(obstacle(&node, &other), Some(Obstacle::TooSmall));
    }
}
