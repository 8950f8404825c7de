//! Where the workers of one node stand among all, for one attempt.

/// What a rendezvous agrees on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_field_names,
    reason = "world_size is the name that the whole field uses"
)]
pub struct World {
    /// This node's number.
    pub node_rank: u32,
    /// How many nodes take part.
    pub nodes: u32,
    /// Global rank of this node's first worker.
    pub first_rank: u32,
    /// Workers of all nodes together.
    pub world_size: u32,
    /// Rank of this node's first worker among those of its role.
    pub first_role_rank: u32,
    /// Workers of its role.
    pub role_world_size: u32,
    /// Where workers meet.
    pub master_addr: String,
    /// Port at which they meet.
    pub master_port: u16,
    /// Whether a store of ours listens there, to which all workers connect as clients; else the
    /// worker of rank 0 opens one.
    pub has_store: bool,
}
