//! This node's place among others, where the command line does not say it and whatever started the
//! launcher does. Pure.

use super::flags::{Flags, NodeCount, RdzvBackend};
use crate::rendezvous::{Endpoint, Surroundings};

/// Several nodes, and nowhere to meet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{nodes} nodes ({from}), and nothing says where they meet\nhint: give --master-addr or --rdzv-endpoint, the same on all nodes, or --nnodes=1 for a run of its own on each"
)]
pub struct NoPlace {
    nodes: u32,
    from: &'static str,
}

/// Sets the number of nodes, this node's rank, and the address of node 0 where the flags leave them
/// open. Returns a sentence for each, with where it is from.
pub fn fill(flags: &mut Flags, found: &Surroundings) -> Result<Vec<String>, NoPlace> {
    let mut said = Vec::new();
    if flags.standalone {
        return Ok(said);
    }
    let given = |flags: &Flags, name: &str| flags.given.contains(name);
    let mut needs_place = None;
    if let Some(nodes) = found.nodes.as_ref().filter(|nodes| nodes.value > 1) {
        if !given(flags, "nnodes") && !stays_here(flags) {
            flags.nnodes = NodeCount {
                min: nodes.value,
                max: nodes.value,
            };
            said.push(format!("{} nodes, from {}", nodes.value, nodes.from));
            needs_place = Some(NoPlace {
                nodes: nodes.value,
                from: nodes.from,
            });
        }
    }
    let most = flags.nnodes.max;
    let is_ours = found.nodes.as_ref().is_none_or(|nodes| nodes.value == most);
    // A run on some of the nodes, or on each by itself, is numbered by who asked for it.
    if most == 1 || !is_ours {
        return Ok(said);
    }
    let is_static = flags.rdzv_backend == RdzvBackend::Static;
    if let Some(rank) = found.node_rank.as_ref().filter(|rank| rank.value < most) {
        if is_static && !given(flags, "node-rank") {
            flags.node_rank = Some(rank.value);
            said.push(format!("node rank {}, from {}", rank.value, rank.from));
        }
    }
    let names_place = flags.rdzv_endpoint.is_some() || (is_static && flags.master_addr.is_some());
    if names_place {
        return Ok(said);
    }
    match &found.first_node {
        Some(first) => {
            if is_static {
                flags.master_addr = Some(first.value.clone());
            } else {
                flags.rdzv_endpoint = Some(Endpoint {
                    host: first.value.clone(),
                    port: None,
                });
            }
            said.push(format!(
                "nodes meet at {}, from {}",
                first.value, first.from
            ));
        }
        None => {
            if let Some(nowhere) = needs_place {
                return Err(nowhere);
            }
        }
    }
    Ok(said)
}

/// Whether the flags name a place that no other node can reach: this machine itself, or any free
/// port. Whoever does so wants a run of its own on each node.
fn stays_here(flags: &Flags) -> bool {
    let endpoint = flags.rdzv_endpoint.as_ref();
    let host = endpoint.map(|endpoint| endpoint.host.as_str());
    let host = host.or(flags.master_addr.as_deref());
    // Other addresses of loopback are told apart by whoever emulates nodes.
    let is_local = |host: &str| matches!(host, "localhost" | "127.0.0.1" | "::1");
    endpoint.is_some_and(|endpoint| endpoint.port == Some(0)) || host.is_some_and(is_local)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::torchrun::flags::{Command, Rendezvous, parse};

    const STEP: &[(&str, &str)] = &[
        ("SLURM_NODEID", "1"),
        ("SLURM_STEP_NUM_NODES", "2"),
        ("SLURM_STEP_NUM_TASKS", "2"),
        ("SLURM_STEP_NODELIST", "n[03-04]"),
    ];

    fn filled(
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<(Flags, Vec<String>), NoPlace> {
        let arguments = arguments.iter().chain(&["t.py"]).map(OsString::from);
        let Command::Launch(mut flags) = parse(&arguments.collect::<Vec<_>>(), &|_| None).unwrap()
        else {
            panic!("no launch");
        };
        let found = Surroundings::read(|name| {
            let same = variables.iter().find(|(key, _)| *key == name);
            same.map(|(_, value)| (*value).to_owned())
        });
        let said = fill(&mut flags, &found)?;
        Ok((*flags, said))
    }

    fn place(arguments: &[&str], variables: &[(&str, &str)]) -> Rendezvous {
        let (flags, _) = filled(arguments, variables).unwrap();
        flags.rendezvous().unwrap()
    }

    #[test]
    fn a_step_of_slurm_says_everything_that_is_open() {
        let (flags, said) = filled(&[], STEP).unwrap();
        let expected = Rendezvous::Static {
            host: "n03".into(),
            port: 29_500,
            node_rank: 1,
        };
        assert_eq!(flags.rendezvous().unwrap(), expected);
        assert_eq!(
            said,
            [
                "2 nodes, from SLURM_STEP_NUM_NODES",
                "node rank 1, from SLURM_NODEID",
                "nodes meet at n03, from SLURM_STEP_NODELIST"
            ]
        );
        let c10d = place(&["--rdzv-backend=c10d"], STEP);
        let expected = Rendezvous::C10d {
            host: "n03".into(),
            port: 29_400,
        };
        assert_eq!(c10d, expected);
    }

    #[test]
    fn what_the_command_line_says_stays() {
        let flags = ["--nnodes=2", "--node-rank=0", "--master-addr=h9"];
        let expected = Rendezvous::Static {
            host: "h9".into(),
            port: 29_500,
            node_rank: 0,
        };
        assert_eq!(place(&flags, STEP), expected);
        // A run of its own on each node.
        for alone in [
            &["--standalone"][..],
            &["--nnodes=1"],
            &["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"],
            &["--master-addr=127.0.0.1", "--master-port=1"],
        ] {
            let (flags, said) = filled(alone, STEP).unwrap();
            assert_eq!(flags.nnodes.max, 1);
            assert_eq!(said, [""; 0]);
        }
        // Some other number of nodes: not those of the step.
        let (flags, said) = filled(&["--nnodes=3", "--master-addr=h9"], STEP).unwrap();
        assert_eq!((flags.node_rank, said.len()), (None, 0));
    }

    #[test]
    fn an_index_alone_is_a_rank_where_there_are_several_nodes() {
        let job = [("JOB_COMPLETION_INDEX", "1")];
        let (flags, _) = filled(&["--nnodes=2", "--master-addr=h0"], &job).unwrap();
        assert_eq!(flags.node_rank, Some(1));
        assert_eq!(place(&[], &job), Rendezvous::Standalone);
    }

    #[test]
    fn nodes_without_a_place_to_meet_are_refused() {
        let mpi = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
        ];
        let error = filled(&[], &mpi).unwrap_err().to_string();
        assert!(error.contains("2 nodes (OMPI_COMM_WORLD_SIZE)"), "{error}");
        let (flags, _) = filled(&["--master-addr=h0"], &mpi).unwrap();
        assert_eq!((flags.nnodes.max, flags.node_rank), (2, Some(1)));
    }
}
