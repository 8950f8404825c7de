//! What has started the executors of all nodes is started again where it ended before any of them came, and
//! only because those it has to ask were not there: a batch system's controller that restarts. `srun` that
//! asks it in its first seconds may wait for ever for an answer, so one that was started again and brings
//! nobody makes way for another.

use std::time::Duration;

use herd_launch::SpawnError;
use tokio::time::Instant;

use super::attempt::{Attempt, ExecutorStart, all_executors};
use crate::clock::until;
use crate::executors::{Executors, Launch};

/// How long after its first end it is started again.
const BOUND: Duration = Duration::from_mins(5);
/// Pause before it is started again.
const PAUSE: Duration = Duration::from_secs(2);
/// How long one that was started again may bring nobody.
const STALE: Duration = Duration::from_secs(20);

/// Whether what a starter said last is a reason to start it again.
type Judge = fn(&str) -> bool;

pub(super) struct Starter {
    /// How it is started, where it is one for all.
    again: Option<(Box<dyn Fn() -> Launch + Send>, Judge)>,
    first_end: Option<Instant>,
    due: Option<Instant>,
    stale: Option<Instant>,
}

impl Starter {
    /// Of an attempt whose executors have been started.
    pub(super) fn of(attempt: &Attempt) -> Self {
        let again = match &attempt.executors {
            ExecutorStart::All {
                argv,
                env,
                try_again,
                ..
            } => {
                let (argv, env, dir) = (argv.clone(), env.clone(), attempt.dir.clone());
                let launch = move || all_executors(&argv, &env, &dir);
                Some((
                    Box::new(launch) as Box<dyn Fn() -> Launch + Send>,
                    *try_again,
                ))
            }
            ExecutorStart::Each(_) => None,
        };
        Self {
            again,
            first_end: None,
            due: None,
            stale: None,
        }
    }

    /// It has ended with these words; whether it will be started again.
    pub(super) fn ended(&mut self, words: &str) -> bool {
        let since = self.first_end.get_or_insert_with(Instant::now).elapsed();
        let wanted = since < BOUND && self.again.as_ref().is_some_and(|(_, judge)| judge(words));
        self.due = wanted.then(|| Instant::now() + PAUSE);
        self.stale = None;
        wanted
    }

    /// When it is to be started again. Cancel-safe.
    pub(super) async fn due(&self) {
        until(self.due.or(self.stale)).await;
    }

    /// Starts it again, where nobody has come by now; nothing where that has no sense any more.
    pub(super) fn start(
        &mut self,
        wanted: bool,
    ) -> Option<Result<Executors, (String, SpawnError)>> {
        self.due = None;
        let in_time = self.first_end.is_some_and(|end| end.elapsed() < BOUND);
        self.stale = (wanted && in_time).then(|| Instant::now() + STALE);
        let (launch, _) = self.again.as_ref().filter(|_| wanted)?;
        Some(Executors::start_all(launch()))
    }
}
