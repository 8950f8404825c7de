//! Which task of an array runs where and when. Pure.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use herd_core::result::TaskResult;
use herd_core::spec::Array;

/// The tasks of one attempt.
#[derive(Debug)]
pub(crate) struct ArrayQueue {
    waiting: VecDeque<u32>,
    /// Node of each running task.
    running: BTreeMap<u32, usize>,
    /// Tasks at once.
    slots: usize,
    first_failure: Option<TaskResult>,
}

impl ArrayQueue {
    /// All tasks wait; at most the array's own limit, else `slots`, run at once.
    pub(crate) fn new(array: &Array, slots: u32) -> Self {
        let slots = array.limit.unwrap_or(slots).max(1) as usize;
        Self {
            waiting: array.indices.iter().copied().collect(),
            running: BTreeMap::new(),
            slots,
            first_failure: None,
        }
    }

    /// The next task to start and its node: the one with the fewest tasks among those that live.
    pub(crate) fn next(&mut self, living: &[usize]) -> Option<(u32, usize)> {
        if self.running.len() >= self.slots {
            return None;
        }
        let load = |node: usize| self.running.values().filter(|&&on| on == node).count();
        let node = living
            .iter()
            .copied()
            .min_by_key(|&node| (load(node), node))?;
        let index = self.waiting.pop_front()?;
        self.running.insert(index, node);
        Some((index, node))
    }

    /// A task ended. One that was not running is told twice or late: false, and nothing changes.
    pub(crate) fn ended(&mut self, result: &TaskResult, stopping: bool) -> bool {
        if self.running.remove(&result.index).is_none() {
            return false;
        }
        if !stopping && !result.end.is_success() && self.first_failure.is_none() {
            self.first_failure = Some(result.clone());
        }
        true
    }

    /// A node was lost, and its tasks with it.
    pub(crate) fn lost(&mut self, node: usize) {
        self.running.retain(|_, on| *on != node);
    }

    /// No task that waits will start any more.
    pub(crate) fn close(&mut self) {
        self.waiting.clear();
    }

    /// Whether nothing runs or waits.
    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// The task that failed first, where one did.
    pub(crate) fn first_failure(&self) -> Option<&TaskResult> {
        self.first_failure.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use herd_core::exit::ProcessEnd;

    fn ended(index: u32, code: u8) -> TaskResult {
        TaskResult {
            index,
            attempt: 1,
            node: 0,
            end: ProcessEnd::Exited(code),
            started_ms: 0,
            ended_ms: 0,
            start_error: None,
        }
    }

    #[test]
    fn tasks_spread_over_nodes_within_the_limit_and_the_first_failure_is_kept() {
        let array = Array {
            indices: vec![3, 4, 5],
            limit: Some(2),
        };
        let mut queue = ArrayQueue::new(&array, 8);
        assert_eq!(queue.next(&[0, 1]), Some((3, 0)));
        assert_eq!(queue.next(&[0, 1]), Some((4, 1)));
        assert_eq!(queue.next(&[0, 1]), None);
        assert!(queue.ended(&ended(4, 7), false));
        assert!(!queue.ended(&ended(4, 9), false));
        assert_eq!(queue.next(&[0, 1]), Some((5, 1)));
        assert!(queue.ended(&ended(5, 2), false));
        queue.lost(0);
        assert!(queue.is_done());
        assert_eq!(queue.first_failure().map(|task| task.index), Some(4));
    }
}
