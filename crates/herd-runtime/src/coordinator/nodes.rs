//! Who is there: nodes that come, are heard of, break and are lost, and where a command inside the job runs.

use herd_core::event::EventKind;
use herd_core::result::Failure;
use herd_link::message::{Hello, Phase, VERSION};
use herd_link::session::Place;

use super::{Action, Coordinator, SIGTERM, Stage, Stop, as_u32, other_version};

impl Coordinator {
    /// The node where a command inside the job is to run, or why it cannot.
    pub fn place(&self, place: &Place) -> Result<usize, String> {
        if matches!(self.stage, Stage::Gathering | Stage::Finished) {
            return Err("the job's nodes are not there yet, or no longer".to_owned());
        }
        let ranks = self.plan.ranks_per_node.max(1);
        let node = match place {
            Place::Rank(rank) => (rank / ranks) as usize,
            Place::Node(node) => *node as usize,
            Place::Named(name) => self.named(name)?,
        };
        match (self.nodes.get(node), place) {
            (Some(node), _) if node.lost => Err(format!("{} was lost", node.name)),
            (Some(_), _) => Ok(node),
            (None, Place::Rank(rank)) => Err(format!(
                "there is no rank {rank}: the job has {}",
                self.plan.world_size()
            )),
            (None, _) => Err(format!(
                "there is no node {node}: the job has {}",
                self.nodes.len()
            )),
        }
    }

    /// The node with this name; host files may have it with or without its domain.
    pub(super) fn named(&self, name: &str) -> Result<usize, String> {
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let exact = self.nodes.iter().position(|node| node.name == name);
        exact
            .or_else(|| {
                let wanted = short(name);
                self.nodes.iter().position(|n| short(&n.name) == wanted)
            })
            .ok_or_else(|| format!("`{name}` is not a node of this job"))
    }

    /// A node says Hello. Returns its index, or why it is refused: a name belongs to its first
    /// connection, and only names of the allocation are let in.
    pub fn hello(&mut self, hello: Hello, now_ms: u64) -> Result<usize, String> {
        let Some(index) = self.nodes.iter().position(|node| node.name == hello.node) else {
            return Err(format!("`{}` is not a node of this attempt", hello.node));
        };
        if self.nodes[index].hello.is_some() || self.nodes[index].lost {
            return Err(format!(
                "`{}` is connected already or was given up",
                hello.node
            ));
        }
        if hello.version.abs_diff(VERSION) > 1 {
            let reason = other_version(hello.version);
            self.lost(index, &reason, now_ms);
            return Err(reason);
        }
        self.event(EventKind::NodeJoined {
            node: as_u32(index),
            name: hello.node.clone(),
            pid: hello.pid,
        });
        self.nodes[index].hello = Some(hello);
        self.nodes[index].last_heard_ms = now_ms;
        if self.stop.is_some() {
            self.nodes[index].done = true;
        } else if self.nodes.iter().all(|node| node.hello.is_some()) {
            for node in 0..self.nodes.len() {
                self.actions.push(Action::Assign { node });
            }
            self.begin(if self.plan.setup.is_some() {
                Phase::Setup
            } else {
                Phase::Run
            });
        }
        self.pause_late(index);
        Ok(index)
    }

    /// A node is alive.
    pub fn heard(&mut self, node: usize, now_ms: u64) {
        self.nodes[node].last_heard_ms = now_ms;
        self.nodes[node].broken = None;
    }

    /// A node's connection broke. It may come back as long as its silence is not too long.
    pub fn broken(&mut self, node: usize, how: &str) {
        self.nodes[node].broken = Some(how.to_owned());
    }

    /// A node's process died, it took its leave, or it was silent for too long.
    pub fn lost(&mut self, node: usize, detail: &str, now_ms: u64) {
        if self.nodes[node].lost || self.stage == Stage::Finished {
            return;
        }
        self.nodes[node].lost = true;
        self.nodes[node].done = true;
        self.actions.push(Action::GiveUp { node });
        if let Some(array) = &mut self.array {
            let ended = array.lost(node, now_ms);
            self.actions.extend(ended.into_iter().map(Action::Task));
        }
        let name = self.nodes[node].name.clone();
        self.event(EventKind::NodeLost {
            name: name.clone(),
            detail: detail.to_owned(),
        });
        let failure = Failure::NodeLost {
            node: name,
            detail: detail.to_owned(),
            last_lines: Vec::new(),
        };
        self.begin_stop(
            Stop::Failed(Some(failure)),
            SIGTERM,
            self.plan.grace.ms,
            now_ms,
        );
        self.start_tasks();
        self.advance(now_ms);
    }
}
