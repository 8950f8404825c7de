//! `herd launch` on several nodes from outside, by the rows of the launcher specification §18: nodes
//! meet, leave together, begin again and are missed. Nodes are launchers on this machine, some of
//! them with a network of their own.

mod changes;
mod ends;
mod meeting;
#[path = "../nodes/mod.rs"]
mod nodes;
mod strangers;
mod surroundings;
mod waiting;

use std::net::TcpStream;

use herd_testing::{alive, eventually, within};
use nodes::{DEADLINE, Node, Nodes};

/// A key for all nodes of a job.
const KEY: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

/// Says where a worker stands.
const PLACE: &str =
    "echo $RANK/$WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT";

const FOUR: [&str; 4] = ["0/4 0/2 0", "1/4 0/2 0", "2/4 1/2 0", "3/4 1/2 0"];

fn all_end(nodes: &mut [Node], code: i32) {
    for node in nodes {
        node.ends(code);
    }
}

/// Waits until some launcher serves the endpoint.
#[track_caller]
fn is_served(test: &Nodes) {
    within(DEADLINE, "the endpoint is served", || {
        TcpStream::connect((test.host.as_str(), test.port)).is_ok()
    });
}

/// Waits until the workers are gone that have written their numbers into `pids`.
#[track_caller]
fn all_gone(test: &Nodes) {
    eventually("all workers are gone", || {
        !test.pids("pids").iter().any(|&pid| alive(pid))
    });
}
