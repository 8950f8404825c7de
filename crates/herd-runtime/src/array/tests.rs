//! The decisions of [`ArrayQueue`], one story each.

use super::*;
use herd_core::spec::RetryOn;
use herd_core::units::Span;

fn queue(tasks: u32, limit: u32, retry: Option<Retry>, nodes: usize) -> ArrayQueue {
    let array = Array {
        indices: (0..tasks).collect(),
        limit: Some(limit),
    };
    ArrayQueue::new(&array, retry, 8, nodes)
}

fn ended(index: u32, attempt: u32, code: u8) -> TaskResult {
    TaskResult {
        index,
        attempt,
        node: 0,
        end: ProcessEnd::Exited(code),
        started_ms: 0,
        ended_ms: 0,
        start_error: None,
        log_offset: 0,
        log_bytes: Some(10),
        stopped: false,
        again: false,
        out_of_memory: false,
        failure: None,
    }
}

/// Attempts by task and node that a list of orders begins.
fn runs(orders: &[Order]) -> Vec<(usize, u32, u32)> {
    let mut all = Vec::new();
    for order in orders {
        if let Order::Run { node, tasks, .. } = order {
            all.extend(tasks.iter().map(|task| (*node, task.index, task.attempt)));
        }
    }
    all
}

fn retry(max: u32) -> Retry {
    Retry {
        max,
        on: vec![RetryOn::Exit(75)],
        backoff: Some(Span::from_secs(2)),
    }
}

#[test]
fn slots_of_all_nodes_add_up_to_the_limit_and_are_filled_first() {
    let mut queue = queue(4, 3, None, 2);
    let orders = queue.orders(|_| true);
    let slots: Vec<u32> = orders
        .iter()
        .filter_map(|order| match order {
            Order::Run { slots, .. } => Some(*slots),
            Order::Return { .. } => None,
        })
        .collect();
    assert_eq!(slots, [2, 1]);
    assert_eq!(runs(&orders), [(0, 0, 1), (0, 2, 1), (1, 1, 1), (1, 3, 1)]);
}

#[test]
fn a_node_has_few_tasks_beyond_its_slots_and_gets_several_at_once() {
    let mut queue = queue(1000, 2, None, 1);
    let first = runs(&queue.orders(|_| true));
    assert_eq!(first.len(), 2 + QUEUED);
    for index in 0..15 {
        assert_eq!(
            queue.ended(0, &mut ended(index, 1, 0), false, 0),
            Ended::Final
        );
        assert!(queue.orders(|_| true).is_empty(), "{index}");
    }
    queue.ended(0, &mut ended(15, 1, 0), false, 0);
    assert_eq!(runs(&queue.orders(|_| true)).len(), REFILL);
}

#[test]
fn an_idle_node_gets_what_waits_at_a_busy_one() {
    let mut queue = queue(6, 2, None, 2);
    assert_eq!(runs(&queue.orders(|_| true)).len(), 6);
    for index in [1, 3, 5] {
        queue.ended(1, &mut ended(index, 1, 0), false, 0);
    }
    let back = Order::Return { node: 0, count: 1 };
    assert_eq!(queue.orders(|_| true), [back]);
    // One question at a time.
    assert!(queue.orders(|_| true).is_empty());
    queue.returned(0, &[4], false);
    assert_eq!(runs(&queue.orders(|_| true)), [(1, 4, 1)]);
    // It had begun meanwhile: nothing came back, and it is asked no more than once for nothing.
    queue.ended(1, &mut ended(4, 1, 0), false, 0);
    assert_eq!(
        queue.orders(|_| true),
        [Order::Return { node: 0, count: 1 }]
    );
    queue.ended(0, &mut ended(0, 1, 0), false, 0);
    queue.returned(0, &[], false);
    assert!(queue.orders(|_| true).is_empty());
    queue.ended(0, &mut ended(2, 1, 0), false, 0);
    assert!(queue.is_done());
}

#[test]
fn a_failed_task_is_run_again_after_its_pause_while_others_go_on() {
    let mut queue = queue(3, 1, Some(retry(2)), 1);
    queue.orders(|_| true);
    let mut failed = ended(0, 1, 75);
    let again = Ended::Again { after_ms: 2000 };
    assert_eq!(queue.ended(0, &mut failed, false, 100), again);
    assert!(failed.again);
    assert_eq!(
        queue.ended(0, &mut ended(1, 1, 0), false, 100),
        Ended::Final
    );
    assert_eq!(queue.next_due_ms(), Some(2100));
    assert!(!queue.release_due(2099));
    assert!(queue.release_due(2100));
    assert_eq!(runs(&queue.orders(|_| true)), [(0, 0, 2)]);
    // The first attempt's end told again is not the second's.
    let late = queue.ended(0, &mut ended(0, 1, 75), false, 2200);
    assert_eq!(late, Ended::Unknown);
    // The pause doubles, then the retries are used up.
    let again = Ended::Again { after_ms: 4000 };
    assert_eq!(queue.ended(0, &mut ended(0, 2, 75), false, 2200), again);
    assert!(queue.release_due(6200));
    assert_eq!(runs(&queue.orders(|_| true)), [(0, 0, 3)]);
    assert_eq!(queue.first_failure(), None);
    assert_eq!(
        queue.ended(0, &mut ended(0, 3, 75), false, 6300),
        Ended::Final
    );
    assert_eq!(queue.first_failure().map(|task| task.attempt), Some(3));
    assert!(!queue.is_done());
    queue.ended(0, &mut ended(2, 1, 0), false, 6300);
    assert!(queue.is_done());
}

#[test]
fn a_failure_that_is_not_listed_is_final_and_the_first_one_counts() {
    let mut queue = queue(2, 2, Some(retry(5)), 1);
    queue.orders(|_| true);
    assert_eq!(queue.ended(0, &mut ended(1, 1, 4), false, 0), Ended::Final);
    assert_eq!(queue.ended(0, &mut ended(0, 1, 3), false, 0), Ended::Final);
    assert_eq!(queue.first_failure().map(|task| task.index), Some(1));
}

#[test]
fn stopping_ends_pauses_at_once_and_counts_no_failure() {
    let mut queue = queue(3, 2, Some(retry(2)), 1);
    queue.orders(|_| true);
    queue.ended(0, &mut ended(0, 1, 75), false, 0);
    queue.close();
    assert_eq!(queue.next_due_ms(), None);
    let mut stopped = ended(1, 1, 75);
    assert_eq!(queue.ended(0, &mut stopped, true, 0), Ended::Final);
    assert!(stopped.stopped && !stopped.again);
    queue.returned(0, &[2], true);
    assert!(queue.is_done());
    assert_eq!(queue.first_failure(), None);
}

#[test]
fn a_lost_node_ends_what_ran_there_and_gives_back_what_had_not_begun() {
    let mut queue = queue(3, 2, None, 2);
    queue.orders(|_| true);
    let lost = queue.lost(0, 50);
    assert_eq!(lost.iter().map(|task| task.index).collect::<Vec<_>>(), [0]);
    assert!(lost.iter().all(|task| task.stopped && !task.is_final()));
    assert_eq!(runs(&queue.orders(|node| node == 1)), [(1, 2, 1)]);
    assert_eq!(
        queue.ended(0, &mut ended(0, 1, 0), false, 60),
        Ended::Unknown
    );
}

#[test]
fn the_next_attempt_of_the_job_runs_what_is_not_done() {
    let mut queue = queue(5, 5, Some(retry(2)), 1);
    let stopped = TaskResult {
        stopped: true,
        ..ended(2, 2, 143)
    };
    let failed = TaskResult {
        again: true,
        ..ended(2, 1, 75)
    };
    let history = [ended(0, 1, 0), ended(1, 1, 4), failed, stopped];
    queue.resume(&history);
    assert_eq!(queue.first_failure().map(|task| task.index), Some(1));
    let tasks = runs(&queue.orders(|_| true));
    assert_eq!(tasks, [(0, 2, 3), (0, 3, 1), (0, 4, 1)]);
    // One of two retries was used before.
    let again = Ended::Again { after_ms: 4000 };
    assert_eq!(queue.ended(0, &mut ended(2, 3, 75), false, 0), again);
    let lost = queue.lost(0, 9);
    assert!(lost.iter().all(|task| task.index != 2));
}
