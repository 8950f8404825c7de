//! The tasks of an array: what [`ArrayQueue`] decides becomes messages, results and the end.

use herd_core::event::EventKind;
use herd_core::result::{Failure, TaskResult};
use herd_link::message::{FromCoordinator, Phase};

use super::{Action, Coordinator, Stage};
use crate::array::{ArrayQueue, Ended, Order};

impl Coordinator {
    /// What earlier attempts of the job did of its array.
    pub fn resume_tasks(&mut self, history: &[TaskResult]) {
        if let Some(array) = &mut self.array {
            array.resume(history);
        }
    }

    /// Tasks of an array ended on a node; the others go on whatever these ended with.
    pub fn tasks_ended(&mut self, node: usize, results: Vec<TaskResult>, now_ms: u64) {
        let stopping = self.stop.is_some();
        for mut result in results {
            let Some(array) = &mut self.array else { return };
            match array.ended(node, &mut result, stopping, now_ms) {
                Ended::Unknown => continue,
                Ended::Final => {}
                Ended::Again { after_ms } => self.event(EventKind::TaskRetried {
                    task: result.index,
                    attempt: result.attempt,
                    end: result.end,
                    after_ms,
                }),
            }
            self.actions.push(Action::Task(result));
        }
        self.start_tasks();
        self.advance(now_ms);
    }

    /// A node gave back tasks that it had not begun.
    pub fn tasks_returned(&mut self, node: usize, indices: &[u32], now_ms: u64) {
        let stopping = self.stop.is_some();
        let Some(array) = &mut self.array else { return };
        array.returned(node, indices, stopping);
        self.start_tasks();
        self.advance(now_ms);
    }

    /// When a failed task is to be run again or the time limit is reached, so that somebody calls
    /// [`Coordinator::tick`] then.
    pub fn next_due_ms(&self) -> Option<u64> {
        let task = self.array.as_ref().and_then(ArrayQueue::next_due_ms);
        task.into_iter().chain(self.limit_due_ms()).min()
    }

    /// Starts tasks while there is room, and sees when none is left.
    pub(super) fn start_tasks(&mut self) {
        if self.stage != Stage::In(Phase::Run) {
            return;
        }
        let Some(array) = &mut self.array else { return };
        if self.stop.is_some() {
            array.close();
        }
        for order in array.orders(|node| !self.nodes[node].lost) {
            let (node, message) = match order {
                Order::Run { node, slots, tasks } => {
                    (node, FromCoordinator::RunTasks { slots, tasks })
                }
                Order::Return { node, count } => (node, FromCoordinator::ReturnTasks { count }),
            };
            self.actions.push(Action::Send { node, message });
        }
        if array.is_done() {
            for node in &mut self.nodes {
                node.done = true;
            }
        }
    }

    /// The failure of the task that failed first.
    pub(super) fn failed_task(&self) -> Option<Failure> {
        Some(self.array.as_ref()?.first_failure()?.failure())
    }
}
