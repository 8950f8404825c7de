//! From the nodes of a round to the ranks of their workers. Pure.

use std::collections::BTreeMap;

/// Where one node's workers stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranks {
    pub(super) first_rank: u32,
    pub(super) first_role_rank: u32,
    pub(super) world_size: u32,
    pub(super) role_world_size: u32,
}

/// The ranks of each node's workers, nodes in the order of their ranks: those of a node follow those
/// of the node before, and the same within each role. Nodes are given as workers and role; settings
/// bound both numbers so that no sum exceeds 32 bits.
pub(super) fn ranks(nodes: &[(u32, &str)]) -> Vec<Ranks> {
    let mut world_size = 0_u32;
    let mut roles: BTreeMap<&str, u32> = BTreeMap::new();
    let mut found = Vec::with_capacity(nodes.len());
    for &(workers, role) in nodes {
        let of_role = roles.entry(role).or_default();
        found.push(Ranks {
            first_rank: world_size,
            first_role_rank: *of_role,
            world_size: 0,
            role_world_size: 0,
        });
        world_size = world_size.saturating_add(workers);
        *of_role = of_role.saturating_add(workers);
    }
    for (ranks, (_workers, role)) in found.iter_mut().zip(nodes) {
        ranks.world_size = world_size;
        ranks.role_world_size = roles.get(role).copied().unwrap_or_default();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_41_ranks_follow_the_nodes_also_where_sizes_and_roles_differ() {
        let ranks = ranks(&[(2, "train"), (3, "eval"), (4, "train")]);
        let rows: Vec<_> = ranks
            .iter()
            .map(|ranks| {
                (
                    ranks.first_rank,
                    ranks.world_size,
                    ranks.first_role_rank,
                    ranks.role_world_size,
                )
            })
            .collect();
        assert_eq!(rows, [(0, 9, 0, 6), (2, 9, 0, 3), (5, 9, 2, 6)]);
    }
}
