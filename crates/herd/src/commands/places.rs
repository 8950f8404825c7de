//! The ranks, nodes and tasks that a job has, against which a person's choice is checked: one that
//! cannot exist is a fault, not an empty answer.

use herd_core::plan::Plan;
use herd_core::spec::Array;

use crate::error::ExpectedError;
use crate::jobs::Job;

/// Nodes named to a person.
const SHOWN: usize = 8;

/// What a job is made of, as far as it is known.
pub(super) struct Places {
    nodes: u32,
    ranks: Option<u32>,
    array: Option<Array>,
    has_tasks: bool,
    /// Index and name of each node that joined.
    names: Vec<(u32, String)>,
}

impl Places {
    /// Those of the latest attempt; without a plan that can be read, what else is known.
    pub(super) fn of(job: &Job) -> Self {
        let attempt = job.dir.latest_attempt().ok().flatten();
        let plan = attempt.and_then(|attempt| attempt.read_plan().ok().flatten());
        let summary = job
            .summary
            .as_ref()
            .map_or(u32::MAX, |summary| summary.nodes);
        let joined = job.status.nodes.iter();
        Self {
            nodes: plan.as_ref().map_or(summary, |plan| plan.nodes),
            ranks: plan.as_ref().map(Plan::world_size),
            array: plan.and_then(|plan| plan.array),
            has_tasks: job.status.tasks.is_some(),
            names: joined.map(|node| (node.index, node.name.clone())).collect(),
        }
    }

    /// Those of one task that has a driver of its own.
    pub(super) fn of_task(plan: &Plan) -> Self {
        Self {
            nodes: plan.nodes,
            ranks: Some(plan.world_size()),
            array: None,
            has_tasks: false,
            names: Vec::new(),
        }
    }

    /// Whether the job is an array.
    pub(super) fn is_array(&self) -> bool {
        self.has_tasks || self.array.is_some()
    }

    /// Refuses ranks that the job has not; `value` is what was given.
    pub(super) fn check_ranks(&self, ranks: &[u32], value: &str) -> Result<(), ExpectedError> {
        if self.is_array() {
            let problem = "the job is an array, whose tasks have no ranks; `--node` chooses a node";
            return Err(wrong("--rank", value, problem.to_owned()));
        }
        let absent = |number: u32| ranks.iter().any(|rank| *rank >= number);
        match self.ranks.filter(|number| absent(*number)) {
            Some(1) => Err(wrong("--rank", value, "the job has only rank 0".to_owned())),
            Some(number) => {
                let problem = format!("the job has ranks 0 to {}", number.saturating_sub(1));
                Err(wrong("--rank", value, problem))
            }
            None => Ok(()),
        }
    }

    /// The node that a person means by index or name.
    pub(super) fn node(&self, value: &str) -> Result<u32, ExpectedError> {
        if let Some((index, _)) = self.names.iter().find(|(_, name)| name == value) {
            return Ok(*index);
        }
        if let Some(index) = value.parse().ok().filter(|index| *index < self.nodes) {
            return Ok(index);
        }
        let names = self.names.iter().take(SHOWN).map(|(_, name)| name.as_str());
        let mut names: Vec<&str> = names.collect();
        if self.names.len() > SHOWN {
            names.push("…");
        }
        let has = match (self.nodes, names.is_empty()) {
            (_, false) => format!("it has {}", names.join(", ")),
            (1, true) => "it has node 0 alone".to_owned(),
            (number, true) => format!("it has nodes 0 to {}", number.saturating_sub(1)),
        };
        Err(wrong(
            "--node",
            value,
            format!("the job has no such node; {has}"),
        ))
    }

    /// Refuses a task that the job has not.
    pub(super) fn check_task(&self, index: u32) -> Result<(), ExpectedError> {
        let problem = match (&self.array, self.ranks) {
            (Some(array), _) if array.indices.binary_search(&index).is_ok() => return Ok(()),
            (Some(array), _) => {
                let all = Array {
                    indices: array.indices.clone(),
                    limit: None,
                };
                format!("the job has tasks {}", cut(&all.to_string()))
            }
            (None, Some(_)) => "the job is no array; `--rank` chooses among its ranks".to_owned(),
            (None, None) => return Ok(()),
        };
        Err(wrong("--task", &index.to_string(), problem))
    }
}

fn wrong(option: &'static str, value: &str, problem: String) -> ExpectedError {
    ExpectedError::BadOption {
        option,
        value: value.to_owned(),
        source: problem.into(),
    }
}

/// A list of indices that fits a line.
fn cut(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}
