//! How an attempt comes to its end: cancelled, failed or done, and told once (I1).

use herd_core::event::EventKind;
use herd_core::exit;
use herd_core::result::{AttemptEnd, Failure, RankResult};
use herd_core::rootcause;
use herd_core::spec::JobType;
use herd_core::state::AttemptState;
use herd_link::message::{FromCoordinator, Phase};

use super::{Action, Coordinator, ENDING_MARGIN_MS, SIGTERM, Stage, Stop};

/// Most time that a preemption's notice leaves.
const MAX_NOTICE_MS: u64 = 24 * 3600 * 1000;

/// Why a backend has asked a driver for the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// Somebody wished it.
    Asked(Cause),
    /// It takes its resources back and will start the job again.
    Requeued(Cause),
    /// Nobody: it goes on with the job, and a signal was somebody else's.
    Nobody,
    /// It does not answer.
    Unknown,
    /// Its own limit on time has passed.
    TimeLimit {
        /// The limit.
        seconds: u64,
    },
}

/// What made a backend ask for the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Who or what: `herd requeue`, `Slurm`.
    pub by: String,
    /// The same as a sentence: `requeued by herd requeue`.
    pub why: String,
}

impl Coordinator {
    /// Somebody asks for the end; asked again, it comes at once. `code` is what herd ends with.
    pub fn cancel(&mut self, signal: i32, grace_ms: Option<u64>, code: u8, by: &str, now_ms: u64) {
        self.event(EventKind::CancelRequested { by: by.to_owned() });
        self.ask_for_end(signal, grace_ms, code, now_ms);
    }

    /// The backend asks for the end, and [`Self::decide`] will tell why: who it was is told then.
    pub fn withdraw(
        &mut self,
        signal: i32,
        grace_ms: Option<u64>,
        code: u8,
        by: &str,
        now_ms: u64,
    ) {
        self.withdrawn_by = Some(by.to_owned());
        self.undecided = true;
        if self.noticed && grace_ms.is_none() {
            // The ranks know that, and their last grace begins.
            self.kill_by_ms.get_or_insert(now_ms + self.plan.grace.ms);
            return self.advance(now_ms);
        }
        self.ask_for_end(signal, grace_ms, code, now_ms);
    }

    fn ask_for_end(&mut self, signal: i32, grace_ms: Option<u64>, code: u8, now_ms: u64) {
        let again = self.stop.is_some();
        let grace = if again {
            0
        } else {
            grace_ms.unwrap_or(self.plan.grace.ms)
        };
        if again {
            if self.noticed && self.kill_by_ms.is_none() {
                // Not started again, whatever the backend will do.
                self.stop = Some(Stop::Cancelled { code });
            }
            self.end_at_once(signal, now_ms);
        } else {
            self.begin_stop(Stop::Cancelled { code }, signal, grace, now_ms);
        }
        self.advance(now_ms);
    }

    pub(super) fn end_at_once(&mut self, signal: i32, now_ms: u64) {
        self.ending_by_ms = Some(now_ms + ENDING_MARGIN_MS);
        self.send_all(&FromCoordinator::Cancel {
            signal,
            grace_ms: 0,
            told: false,
        });
    }

    /// The backend announces that it takes its resources back: the ranks are asked to end, and have all the
    /// time until it does so, which ends with [`Self::withdraw`] or after `grace_ms`, and the plan's grace
    /// then.
    pub fn preempt(&mut self, grace_ms: Option<u64>, by: &str, now_ms: u64) {
        if self.is_ending() {
            return;
        }
        self.event(EventKind::PreemptionNotice { by: by.to_owned() });
        self.noticed = true;
        self.why = Some(by.to_owned());
        let grace = grace_ms.unwrap_or(MAX_NOTICE_MS) + self.plan.grace.ms;
        let code = exit::CANCELLED;
        self.begin_stop(Stop::Preempted { code }, SIGTERM, grace, now_ms);
        self.advance(now_ms);
    }

    /// From here on the attempt does not end before [`Self::decide`]: whether its end was wished for, or
    /// has another cause, is being found out.
    pub fn leave_undecided(&mut self) {
        self.undecided = true;
    }

    /// Whether the end was asked for, or has another cause already.
    pub fn is_ending(&self) -> bool {
        self.stop.is_some() || self.stage == Stage::Finished
    }

    /// It is known now why the backend asked for the end. What was cancelled there ends with the code of a
    /// cancelled job, whichever signal said so.
    pub fn decide(&mut self, why: Withdrawal, now_ms: u64) {
        self.undecided = false;
        let signal = self.withdrawn_by.take();
        let (code, cancelled) = match self.stop {
            Some(Stop::Cancelled { code }) => (code, true),
            // Meanwhile somebody may have wished it.
            Some(Stop::Preempted { code }) if self.noticed => (code, true),
            Some(Stop::Failed(None | Some(Failure::SetupFailed { .. }))) => {
                (exit::CANCELLED, false)
            }
            _ => return self.advance(now_ms),
        };
        let (by, stop) = match (why, cancelled) {
            (Withdrawal::Asked(cause), _) => {
                self.why = Some(cause.why);
                let code = exit::CANCELLED;
                (Some(cause.by), Some(Stop::Cancelled { code }))
            }
            (Withdrawal::Requeued(cause), _) => {
                self.why = Some(cause.why);
                (Some(cause.by), Some(Stop::Preempted { code }))
            }
            (Withdrawal::Unknown, true) => (signal, Some(Stop::Preempted { code })),
            (Withdrawal::TimeLimit { seconds }, _) => {
                let early_ms = 0;
                let failure = Failure::TimeLimit { seconds, early_ms };
                let by = "the time limit".to_owned();
                (Some(by), Some(Stop::Failed(Some(failure))))
            }
            (Withdrawal::Nobody, _) | (Withdrawal::Unknown, false) => (signal, None),
        };
        if let Some(by) = by {
            self.event(EventKind::CancelRequested { by });
        }
        if stop.is_some() {
            self.stop = stop;
        }
        self.advance(now_ms);
    }

    /// Whether a node runs work of its own. The others serve node 0: MPI's daemons and Ray's workers
    /// are there as long as what node 0 runs.
    pub(super) fn leads(&self, node: usize) -> bool {
        node == 0 || !matches!(self.plan.job_type, JobType::Mpi | JobType::Ray)
    }

    /// Tells the nodes that only serve when the nodes that lead are done.
    pub(super) fn finish_serving(&mut self, now_ms: u64) {
        if self.finishing || self.stage != Stage::In(Phase::Run) {
            return;
        }
        let (leading, serving): (Vec<usize>, Vec<usize>) =
            (0..self.nodes.len()).partition(|&node| self.leads(node));
        let entry_ended = self.plan.job_type == JobType::Ray && self.results.contains_key(&0);
        if !entry_ended && leading.iter().any(|&node| !self.nodes[node].done) {
            return;
        }
        self.finishing = true;
        for node in serving {
            if !self.nodes[node].done {
                self.ending_by_ms
                    .get_or_insert(now_ms + self.plan.grace.ms + ENDING_MARGIN_MS);
                self.actions.push(Action::Send {
                    node,
                    message: FromCoordinator::Finish,
                });
            }
        }
    }

    /// When the ranks are asked to end for the time limit; nobody knows while the job is paused.
    pub(super) fn limit_due_ms(&self) -> Option<u64> {
        if self.stop.is_some() || self.stage == Stage::Finished {
            return None;
        }
        let (limit, margin) = (self.plan.walltime?, self.plan.time_limit_margin()?);
        let running_ms = limit.ms.saturating_sub(margin.ms);
        self.paused.when_ms(self.began_ms, running_ms)
    }

    pub(super) fn reach_limit(&mut self, now_ms: u64) {
        let limit = self.plan.walltime.unwrap_or_default();
        let margin = self.plan.time_limit_margin().unwrap_or_default();
        self.event(EventKind::CancelRequested {
            by: "walltime".to_owned(),
        });
        let failure = Failure::TimeLimit {
            seconds: limit.ms.div_ceil(1000),
            early_ms: margin.ms,
        };
        self.begin_stop(Stop::Failed(Some(failure)), SIGTERM, margin.ms, now_ms);
        self.advance(now_ms);
    }

    pub(super) fn begin_stop(&mut self, stop: Stop, signal: i32, grace_ms: u64, now_ms: u64) {
        if self.stop.is_some() {
            return;
        }
        self.stop = Some(stop);
        // To be ended, executors let go on what they had stopped.
        self.paused.end(now_ms);
        self.start_tasks();
        self.ending_by_ms = Some(now_ms + grace_ms + ENDING_MARGIN_MS);
        self.send_all(&FromCoordinator::Cancel {
            signal,
            grace_ms,
            told: self.undecided && self.tells_ranks,
        });
    }

    pub(super) fn finish(&mut self, now_ms: u64) {
        let ranks: Vec<RankResult> = self.results.values().cloned().collect();
        let (state, failure, exit_code) = match self.stop.take() {
            None => match self.failed_task() {
                None => (AttemptState::Succeeded, None, exit::SUCCESS),
                Some(failure) => {
                    let code = failure.exit_code();
                    (AttemptState::Failed, Some(failure), code)
                }
            },
            Some(Stop::Cancelled { code }) => (AttemptState::Cancelled, None, code),
            Some(Stop::Preempted { code }) => (AttemptState::Preempted, None, code),
            Some(Stop::Failed(given)) => {
                let failure = given.or_else(|| {
                    rootcause::first_cause(&ranks).map(|first| {
                        let rank = Box::new(first.clone());
                        if rank.out_of_memory {
                            Failure::OutOfMemory(rank)
                        } else {
                            Failure::RankFailed(rank)
                        }
                    })
                });
                let code = failure
                    .as_ref()
                    .map_or(exit::HERD_FAILED, Failure::exit_code);
                (AttemptState::Failed, failure, code)
            }
        };
        self.enter_with(state, failure.clone());
        self.stage = Stage::Finished;
        self.send_all(&FromCoordinator::Release);
        self.actions.push(Action::Finish(Box::new(AttemptEnd {
            state,
            failure,
            why: self.why.take(),
            exit_code,
            ended_ms: now_ms,
            ranks,
        })));
    }
}
