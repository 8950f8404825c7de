//! What a cluster has and can do, put together from its answers.

use std::collections::BTreeSet;

use herd_core::plan::{BackendFacts, BackendKind};
use herd_core::spec::{Array, SetupOn};
use herd_core::units::Bytes;

use crate::array::{Chunk, chunks};
use crate::call::Call;
use crate::config::Config;
use crate::gres;
use crate::node::Node;
use crate::partition::Partition;
use crate::version::{Feature, Version};

/// Containers that a cluster can run a step in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Images {
    /// None.
    No,
    /// Images by name, with the plug-in Pyxis.
    Pyxis,
    /// Bundles that lie in a directory, with Slurm's own OCI support.
    Bundles,
}

impl Images {
    /// What to ask.
    pub fn call() -> Call {
        Call::new("srun", ["--help"])
    }

    /// Reads `srun --help`: a plug-in's options stand in it, and Slurm's own only where it has them.
    pub fn parse(help: &str, version: Version) -> Self {
        if help.contains("--container-image") {
            Self::Pyxis
        } else if version.has(Feature::Container) && help.contains("--container") {
            Self::Bundles
        } else {
            Self::No
        }
    }
}

/// One cluster.
#[derive(Clone, Debug)]
pub struct ClusterFacts {
    /// Version of the commands.
    pub version: Version,
    /// Settings.
    pub config: Config,
    /// Partitions that the user may see.
    pub partitions: Vec<Partition>,
    /// Nodes that the user may see.
    pub nodes: Vec<Node>,
    /// MPI plug-ins of `srun`.
    pub mpi: Vec<String>,
    /// Containers.
    pub images: Images,
}

impl ClusterFacts {
    /// The partition of that name, or the default one.
    pub fn partition(&self, name: Option<&str>) -> Option<&Partition> {
        self.partitions.iter().find(|partition| match name {
            Some(name) => partition.name == name,
            None => partition.default,
        })
    }

    /// The nodes of a partition; all where there is no such partition.
    pub fn nodes_of<'a>(
        &'a self,
        partition: Option<&'a Partition>,
    ) -> impl Iterator<Item = &'a Node> {
        self.nodes.iter().filter(move |node| {
            partition.is_none_or(|partition| node.partitions.contains(&partition.name))
        })
    }

    /// Whether there is a node of that name.
    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.iter().any(|node| node.name == name)
    }

    /// The types of GPUs in a partition, as the cluster spells them.
    pub fn gpu_types<'a>(&'a self, partition: Option<&'a Partition>) -> BTreeSet<&'a str> {
        self.nodes_of(partition)
            .flat_map(|node| &node.gres)
            .filter(|gres| gres.name == "gpu")
            .filter_map(|gres| gres.kind.as_deref())
            .collect()
    }

    /// The value of `--gres` for so many GPUs on each node. A type is named where the job asks for
    /// one, and where the cluster has but one: some releases refuse GPUs without their type.
    pub fn gres_request(
        &self,
        partition: Option<&Partition>,
        gpus: u32,
        wanted: Option<&str>,
    ) -> String {
        let types = self.gpu_types(partition);
        let same = |kind: &&&str| wanted.is_some_and(|wanted| kind.eq_ignore_ascii_case(wanted));
        let only = (types.len() == 1).then(|| types.first()).flatten();
        let all_typed = self
            .nodes_of(partition)
            .flat_map(|node| &node.gres)
            .all(|gres| gres.name != "gpu" || gres.kind.is_some());
        let kind = types
            .iter()
            .find(same)
            .or_else(|| only.filter(|_| all_typed && wanted.is_none()));
        match (kind, wanted) {
            (Some(kind), _) => format!("gpu:{kind}:{gpus}"),
            (None, Some(wanted)) => format!("gpu:{wanted}:{gpus}"),
            (None, None) => format!("gpu:{gpus}"),
        }
    }

    /// The arrays of Slurm that these tasks make; none where the cluster has no arrays.
    pub fn chunks(&self, array: &Array) -> Vec<Chunk> {
        let config = &self.config;
        chunks(array, config.max_array_size(), config.max_array_tasks())
    }

    /// What planning needs to know of the backend, for jobs of one partition. Amounts are those of
    /// the largest node.
    pub fn backend(&self, name: &str, partition: Option<&str>, shared_home: bool) -> BackendFacts {
        let partition = self.partition(partition);
        let nodes = || self.nodes_of(partition);
        let known = nodes().next().is_some();
        let most = |of: fn(&Node) -> u32| known.then(|| nodes().map(of).max().unwrap_or(0));
        let memory = nodes().map(|node| node.memory).max().unwrap_or(0);
        let count = u32::try_from(nodes().count()).unwrap_or(u32::MAX);
        let limits = [
            partition.and_then(|partition| partition.max_nodes),
            self.config.max_nodes(),
            known.then_some(count),
        ];
        BackendFacts {
            name: name.to_owned(),
            kind: BackendKind::Slurm,
            inherit_env: false,
            login_shell: true,
            shared_home,
            setup_on: SetupOn::Each,
            gpus_per_node: most(|node| gres::gpus(&node.gres)),
            cpus_per_node: most(|node| node.cpus),
            memory_per_node: known.then(|| Bytes(memory.saturating_mul(1 << 20))),
            memory_enforced: self.config.divides_memory(),
            max_nodes: limits.into_iter().flatten().min(),
            // What a cluster cannot is refused with more to say ([`crate::refuse`]).
            images: true,
            datasets: false,
            checkpoints: false,
            tenants: false,
        }
    }
}
