//! Which node this is, as whatever started the launcher says it in the environment. Pure.

/// A value and the variable it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// The value.
    pub value: T,
    /// The variable's name.
    pub from: &'static str,
}

/// What the environment says of this node's place among others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// This node's rank.
    pub node_rank: Option<Found<u32>>,
    /// How many nodes there are; an indexed Job of Kubernetes does not say it.
    pub nodes: Option<Found<u32>>,
    /// Name or address of node 0.
    pub first_node: Option<Found<String>>,
}

impl Surroundings {
    /// Reads them through `variable`. All values come from one source, the innermost that says which
    /// node this is: Herdsman's own variables, SkyPilot, Slurm, Open MPI (one process per node), an
    /// indexed Job of Kubernetes. A source that starts several launchers on a node says nothing of
    /// use: its nodes are not the launchers.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &'static str| {
            let value = variable(name)?.trim().parse().ok()?;
            Some(Found { value, from: name })
        };
        let first_line = |name: &'static str| {
            let text = variable(name)?;
            let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
            let value = line.to_owned();
            Some(Found { value, from: name })
        };
        let of = |rank: &'static str, nodes: &[&'static str], first: Option<Found<String>>| {
            let node_rank: Found<u32> = number(rank)?;
            let nodes: Option<Found<u32>> = nodes.iter().find_map(|name| number(name));
            let fits = |nodes: &Found<u32>| node_rank.value < nodes.value;
            nodes.as_ref().is_none_or(fits).then_some(Self {
                node_rank: Some(node_rank),
                nodes,
                first_node: first,
            })
        };
        let herd = || {
            let first = first_line("HERD_NODE_IPS");
            let ranks: Option<Found<u32>> = number("HERD_WORLD_SIZE");
            let found = of("HERD_NODE_RANK", &["HERD_NUM_NODES"], first)?;
            let nodes = found.nodes.as_ref().map(|nodes| nodes.value);
            (ranks.is_none() || ranks.map(|ranks| ranks.value) == nodes).then_some(found)
        };
        let skypilot = || {
            let first = first_line("SKYPILOT_NODE_IPS");
            of("SKYPILOT_NODE_RANK", &["SKYPILOT_NUM_NODES"], first)
        };
        let slurm = || {
            let tasks = number("SLURM_STEP_NUM_TASKS").map(|tasks: Found<u32>| tasks.value);
            // A batch script runs on the first node alone, whatever it was given.
            let nodes = ["SLURM_STEP_NUM_NODES"];
            let found = of("SLURM_NODEID", &nodes, first_of_slurm(&variable))?;
            let count = found.nodes.as_ref().map(|nodes| nodes.value);
            (tasks.is_some() && tasks == count).then_some(found)
        };
        let open_mpi = || {
            let per_node: Found<u32> = number("OMPI_COMM_WORLD_LOCAL_SIZE")?;
            let found = of("OMPI_COMM_WORLD_RANK", &["OMPI_COMM_WORLD_SIZE"], None);
            found.filter(|_| per_node.value == 1)
        };
        let kubernetes = || of("JOB_COMPLETION_INDEX", &[], None);
        if variable("HERD_NODE_RANK").is_some() {
            // The others were set around it, or by it for programs that know no other.
            return herd().unwrap_or_default();
        }
        skypilot()
            .or_else(slurm)
            .or_else(open_mpi)
            .or_else(kubernetes)
            .unwrap_or_default()
    }
}

fn first_of_slurm(variable: impl Fn(&str) -> Option<String>) -> Option<Found<String>> {
    ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"]
        .into_iter()
        .find_map(|from| {
            let list = variable(from)?;
            let value = herd_core::hostlist::expand(&list)
                .ok()?
                .into_iter()
                .next()?;
            Some(Found { value, from })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row = (
        Option<(u32, &'static str)>,
        Option<(u32, &'static str)>,
        Option<String>,
    );

    fn read(variables: &[(&str, &str)]) -> Row {
        let found = Surroundings::read(|name| {
            let same = variables.iter().find(|(key, _)| *key == name);
            same.map(|(_, value)| (*value).to_owned())
        });
        let pair = |found: Option<Found<u32>>| found.map(|found| (found.value, found.from));
        (
            pair(found.node_rank),
            pair(found.nodes),
            found.first_node.map(|found| found.value),
        )
    }

    #[test]
    fn slurm_says_which_node_of_a_step_this_is() {
        let step = [
            ("SLURM_NODEID", "1"),
            ("SLURM_NNODES", "4"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_NODELIST", "n[03-04]"),
            ("SLURM_JOB_NODELIST", "n[01-04]"),
        ];
        let expected = (
            Some((1, "SLURM_NODEID")),
            Some((2, "SLURM_STEP_NUM_NODES")),
            Some("n03".to_owned()),
        );
        assert_eq!(read(&step), expected);
        let batch = [("SLURM_NODEID", "0"), ("SLURM_NNODES", "2")];
        assert_eq!(read(&batch), (None, None, None), "a script of one node");
    }

    #[test]
    fn several_launchers_on_a_node_are_left_to_the_command_line() {
        let slurm = [
            ("SLURM_NODEID", "1"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURM_STEP_NUM_TASKS", "8"),
        ];
        assert_eq!(read(&slurm), (None, None, None));
        let mpi = |per_node| {
            read(&[
                ("OMPI_COMM_WORLD_RANK", "1"),
                ("OMPI_COMM_WORLD_SIZE", "2"),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", per_node),
            ])
        };
        assert_eq!(mpi("2"), (None, None, None));
        let ranks = [
            ("HERD_NODE_RANK", "1"),
            ("HERD_NUM_NODES", "2"),
            ("HERD_WORLD_SIZE", "8"),
            ("SKYPILOT_NODE_RANK", "1"),
            ("SKYPILOT_NUM_NODES", "2"),
        ];
        assert_eq!(read(&ranks), (None, None, None));
        let expected = (
            Some((1, "OMPI_COMM_WORLD_RANK")),
            Some((2, "OMPI_COMM_WORLD_SIZE")),
            None,
        );
        assert_eq!(mpi("1"), expected);
    }

    #[test]
    fn skypilot_kubernetes_and_herdsman_say_it_in_variables_of_their_own() {
        let skypilot = [
            ("SKYPILOT_NODE_RANK", "1"),
            ("SKYPILOT_NUM_NODES", "2"),
            ("SKYPILOT_NODE_IPS", "10.0.0.1\n10.0.0.2\n"),
            ("SLURM_NODEID", "0"),
            ("SLURM_NNODES", "1"),
        ];
        let expected = (
            Some((1, "SKYPILOT_NODE_RANK")),
            Some((2, "SKYPILOT_NUM_NODES")),
            Some("10.0.0.1".to_owned()),
        );
        assert_eq!(read(&skypilot), expected);
        let job = [("JOB_COMPLETION_INDEX", "3")];
        assert_eq!(read(&job), (Some((3, "JOB_COMPLETION_INDEX")), None, None));
        let herd = [
            ("HERD_NODE_RANK", "0"),
            ("HERD_NUM_NODES", "2"),
            ("HERD_NODE_IPS", "127.0.0.1\n127.0.0.2"),
            ("JOB_COMPLETION_INDEX", "3"),
        ];
        let found = read(&herd);
        assert_eq!(found.0, Some((0, "HERD_NODE_RANK")));
    }

    #[test]
    fn what_is_no_rank_is_none() {
        for (rank, nodes) in [("x", "2"), ("", "2"), ("-1", "2"), ("2", "2")] {
            let slurm = [("SLURM_NODEID", rank), ("SLURM_NNODES", nodes)];
            assert_eq!(read(&slurm), (None, None, None), "{rank} of {nodes}");
        }
        assert_eq!(read(&[]), (None, None, None));
    }
}
