//! Which task of an array runs where and when, and which is run again. Pure.
//!
//! Every node has slots, whose sum is the array's limit, and a short queue behind them, so that a
//! slot that becomes free is filled without asking the coordinator. A node takes its tasks in the
//! order in which they were given: those that run there are the first of them, as many as it has
//! slots.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use herd_core::exit::ProcessEnd;
use herd_core::result::TaskResult;
use herd_core::retry::{self, Decision};
use herd_core::spec::{Array, Retry};
use herd_link::message::Task;

/// Tasks that a node has beyond those that run: enough for as long as an answer takes to come when
/// tasks end every millisecond.
const QUEUED: usize = 64;
/// A queue is filled again when this many are missing, so that one message brings several.
const REFILL: usize = 16;

/// SIGKILL's number: how a task of a lost node ends.
const SIGKILL: u8 = 9;

/// The tasks of one attempt.
#[derive(Debug)]
pub(crate) struct ArrayQueue {
    /// Tasks that were not given to a node, in order.
    waiting: VecDeque<u32>,
    /// Failed tasks by the time at which they are run again.
    pausing: BTreeSet<(u64, u32)>,
    nodes: Vec<NodeTasks>,
    /// Tasks that have run before and are not done.
    tries: BTreeMap<u32, Tries>,
    retry: Option<Retry>,
    first_failure: Option<TaskResult>,
}

/// What one node was given.
#[derive(Debug, Default)]
struct NodeTasks {
    /// Tasks at once.
    slots: usize,
    /// Those that have not ended, in the order in which they were given.
    given: VecDeque<u32>,
    /// It was asked to give some back and has not answered.
    asked: bool,
}

impl NodeTasks {
    fn idle(&self) -> usize {
        self.slots.saturating_sub(self.given.len())
    }

    fn queued(&self) -> usize {
        self.given.len().saturating_sub(self.slots)
    }

    /// A slot is idle, or its queue has run down.
    fn has_room(&self) -> bool {
        self.slots > 0 && (self.idle() > 0 || self.queued() + REFILL <= QUEUED)
    }

    /// Where it stands in the order of those that get the next task: idle slots come first.
    fn place(&self, node: usize) -> (bool, usize, usize) {
        (self.idle() == 0, self.given.len(), node)
    }
}

#[derive(Clone, Copy, Debug)]
struct Tries {
    /// The number of the next attempt.
    next: u32,
    /// Retries that were made.
    used: u32,
    /// Where the output of the next attempt begins in the task's log.
    log_offset: u64,
}

const FIRST: Tries = Tries {
    next: 1,
    used: 0,
    log_offset: 0,
};

impl Tries {
    /// What stands after one more attempt.
    fn after(self, result: &TaskResult) -> Self {
        Self {
            next: result.attempt.saturating_add(1),
            used: self.used + u32::from(result.again),
            log_offset: result.log_offset + result.log_bytes.unwrap_or(0),
        }
    }
}

/// What a node is to be told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Run these, so many at once.
    Run {
        node: usize,
        slots: u32,
        tasks: Vec<Task>,
    },
    /// Give back so many that have not begun.
    Return { node: usize, count: u32 },
}

/// What follows from the end of a task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was not running there: told twice, or late.
    Unknown,
    /// The task is done.
    Final,
    /// It is run again after a pause.
    Again { after_ms: u64 },
}

impl ArrayQueue {
    /// All tasks wait; at most the array's own limit, else `slots`, run at once over all nodes.
    pub(crate) fn new(array: &Array, retry: Option<Retry>, slots: u32, nodes: usize) -> Self {
        let slots = array.limit.unwrap_or(slots).max(1) as usize;
        let count = nodes.max(1);
        let of_node = |node| NodeTasks {
            slots: slots / count + usize::from(node < slots % count),
            ..NodeTasks::default()
        };
        Self {
            waiting: array.indices.iter().copied().collect(),
            pausing: BTreeSet::new(),
            nodes: (0..nodes).map(of_node).collect(),
            tries: BTreeMap::new(),
            retry,
            first_failure: None,
        }
    }

    /// Takes up what earlier attempts of the job have done: tasks that are done stay so.
    pub(crate) fn resume(&mut self, history: &[TaskResult]) {
        let mut done = BTreeSet::new();
        for result in history {
            if result.is_final() {
                done.insert(result.index);
                self.tries.remove(&result.index);
                self.note_failure(result);
            } else {
                let tries = self.tries.entry(result.index).or_insert(FIRST);
                *tries = tries.after(result);
            }
        }
        self.waiting.retain(|index| !done.contains(index));
    }

    /// What the nodes are to be told now; `lives` says which of them are there.
    pub(crate) fn orders(&mut self, lives: impl Fn(usize) -> bool) -> Vec<Order> {
        let mut runs: BTreeMap<usize, Vec<Task>> = BTreeMap::new();
        let mut room: BTreeSet<(bool, usize, usize)> = self
            .nodes
            .iter()
            .enumerate()
            .filter(|&(node, tasks)| tasks.has_room() && lives(node))
            .map(|(node, tasks)| tasks.place(node))
            .collect();
        while !self.waiting.is_empty()
            && let Some((_, _, node)) = room.pop_first()
            && let Some(tasks) = self.nodes.get_mut(node)
            && let Some(index) = self.waiting.pop_front()
        {
            tasks.given.push_back(index);
            if tasks.queued() < QUEUED {
                room.insert(tasks.place(node));
            }
            let attempt = self.tries.get(&index).unwrap_or(&FIRST).next;
            runs.entry(node).or_default().push(Task { index, attempt });
        }
        let mut orders = Vec::new();
        for (node, tasks) in runs {
            let slots = self.nodes.get(node).map_or(0, |tasks| tasks.slots);
            orders.push(Order::Run {
                node,
                slots: u32::try_from(slots).unwrap_or(u32::MAX),
                tasks,
            });
        }
        orders.extend(self.take_back(lives));
        orders
    }

    /// Where slots are idle and nothing waits, tasks that wait at a busy node are asked back.
    fn take_back(&mut self, lives: impl Fn(usize) -> bool) -> Option<Order> {
        if !self.waiting.is_empty() || self.nodes.iter().any(|tasks| tasks.asked) {
            return None;
        }
        let mut idle = 0;
        let mut longest: Option<(usize, &mut NodeTasks)> = None;
        for (node, tasks) in self.nodes.iter_mut().enumerate() {
            if !lives(node) {
                continue;
            }
            idle += tasks.idle();
            if longest
                .as_ref()
                .is_none_or(|(_, most)| tasks.queued() > most.queued())
            {
                longest = Some((node, tasks));
            }
        }
        let (node, tasks) = longest?;
        let count = idle.min(tasks.queued());
        if count == 0 {
            return None;
        }
        tasks.asked = true;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Some(Order::Return { node, count })
    }

    /// A node gave tasks back: they wait again, before all others.
    pub(crate) fn returned(&mut self, node: usize, indices: &[u32], stopping: bool) {
        let Some(tasks) = self.nodes.get_mut(node) else {
            return;
        };
        tasks.asked = false;
        for &index in indices.iter().rev() {
            if let Some(place) = tasks.given.iter().rposition(|&given| given == index) {
                tasks.given.remove(place);
                if !stopping {
                    self.waiting.push_front(index);
                }
            }
        }
    }

    /// A task ended on a node. `result` is completed with what was decided about it.
    pub(crate) fn ended(
        &mut self,
        node: usize,
        result: &mut TaskResult,
        stopping: bool,
        now_ms: u64,
    ) -> Ended {
        let tries = *self.tries.get(&result.index).unwrap_or(&FIRST);
        let Some(tasks) = self.nodes.get_mut(node) else {
            return Ended::Unknown;
        };
        let place = tasks.given.iter().position(|&given| given == result.index);
        let Some(place) = place.filter(|_| result.attempt == tries.next) else {
            return Ended::Unknown;
        };
        tasks.given.remove(place);
        if stopping && !result.is_success() {
            // Whatever ended it, another attempt of the job has to run it.
            result.stopped = true;
        }
        result.again = false;
        if result.is_success() || result.stopped {
            self.tries.remove(&result.index);
            return Ended::Final;
        }
        match retry::decide(self.retry.as_ref(), &result.failure(), tries.used) {
            Decision::Again { after } => {
                result.again = true;
                self.tries.insert(result.index, tries.after(result));
                let due_ms = now_ms.saturating_add(after.ms);
                self.pausing.insert((due_ms, result.index));
                Ended::Again { after_ms: after.ms }
            }
            Decision::Stop(_) => {
                self.tries.remove(&result.index);
                self.note_failure(result);
                Ended::Final
            }
        }
    }

    fn note_failure(&mut self, result: &TaskResult) {
        if !result.is_success() && self.first_failure.is_none() {
            self.first_failure = Some(result.clone());
        }
    }

    /// A node was lost: what ran there ended with it, what it had not begun waits again.
    pub(crate) fn lost(&mut self, node: usize, now_ms: u64) -> Vec<TaskResult> {
        let Some(tasks) = self.nodes.get_mut(node) else {
            return Vec::new();
        };
        let slots = tasks.slots.min(tasks.given.len());
        let queued = tasks.given.split_off(slots);
        let ran = std::mem::take(&mut tasks.given);
        tasks.slots = 0;
        tasks.asked = false;
        for index in queued.into_iter().rev() {
            self.waiting.push_front(index);
        }
        let end_of = |index| {
            let tries = self.tries.remove(&index).unwrap_or(FIRST);
            TaskResult {
                index,
                attempt: tries.next,
                node: u32::try_from(node).unwrap_or(u32::MAX),
                end: ProcessEnd::Signaled(SIGKILL),
                started_ms: now_ms,
                ended_ms: now_ms,
                start_error: None,
                log_offset: tries.log_offset,
                log_bytes: None,
                stopped: true,
                again: false,
                out_of_memory: false,
                failure: None,
            }
        };
        ran.into_iter().map(end_of).collect()
    }

    /// When the next failed task is to be run again.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.pausing.first().map(|&(due_ms, _)| due_ms)
    }

    /// Puts the tasks whose pause is over before those that have not run yet. Whether there are any.
    pub(crate) fn release_due(&mut self, now_ms: u64) -> bool {
        let mut due = Vec::new();
        while let Some(&(due_ms, index)) = self.pausing.first().filter(|&&(ms, _)| ms <= now_ms) {
            self.pausing.remove(&(due_ms, index));
            due.push(index);
        }
        for &index in due.iter().rev() {
            self.waiting.push_front(index);
        }
        !due.is_empty()
    }

    /// No task that waits will start any more.
    pub(crate) fn close(&mut self) {
        self.waiting.clear();
        self.pausing.clear();
    }

    /// Whether nothing runs or waits.
    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty()
            && self.pausing.is_empty()
            && self.nodes.iter().all(|tasks| tasks.given.is_empty())
    }

    /// The task that failed first and was not run again, where one did.
    pub(crate) fn first_failure(&self) -> Option<&TaskResult> {
        self.first_failure.as_ref()
    }
}

#[cfg(test)]
mod tests;
