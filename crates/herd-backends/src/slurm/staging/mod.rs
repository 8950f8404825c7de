//! Jobs on clusters whose nodes share no directory with the submitting side.
//!
//! There, a process of the job (`herd stage`) waits for Slurm to start it, and brings what the nodes need
//! with `sbcast` and steps of its own. It then keeps the job's directory here equal to the one on the
//! first node, over the streams of one more step: so every other command reads and waits as it does
//! elsewhere. All of it goes through Slurm, which knows whose job it is; the job's key and its secrets
//! stand in no script and no command line, and leave this side only when Slurm has led it to the node.

pub mod bundle;
mod files;
pub mod here;
pub mod left;
mod link;
mod node;
mod on_nodes;
mod wire;

pub use node::entry;
pub use on_nodes::NodeSide;
pub(super) use on_nodes::kept_here;
