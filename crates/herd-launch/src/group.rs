//! The processes of one phase on one node: started together or not at all (D1), ended together,
//! each with all of its process group (D10). It decides nothing about success or failure.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, Sleep, sleep_until};

use std::future::Future as _;
use std::pin::Pin;

use crate::child::{Child, ExitInfo};
use crate::spawn::{ProcessSpec, SpawnError, spawn};

/// How long a process may take to die of SIGKILL before it is given up (uninterruptible sleep).
const ABANDON: Duration = Duration::from_secs(5);

/// Several processes could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start process {index} of {count}; those started before it were killed")]
pub struct SpawnAllError {
    /// Which one failed, from 0.
    pub index: usize,
    /// How many there were to be.
    pub count: usize,
    /// Why.
    #[source]
    pub source: SpawnError,
}

#[derive(Debug)]
enum Stopping {
    No,
    /// Asked; killed when the time has come.
    Asked {
        timer: Pin<Box<Sleep>>,
    },
    /// Killed; given up when the time has come.
    Killed {
        timer: Pin<Box<Sleep>>,
    },
}

/// The processes of one phase. Dropped, it kills those that still run.
#[derive(Debug)]
pub struct Group {
    children: Vec<Child>,
    reported: Vec<bool>,
    stopping: Stopping,
    abandoned_groups: usize,
}

impl Group {
    /// Starts all, or none: where one cannot be started, those before it are killed (D1).
    pub fn spawn_all(specs: Vec<ProcessSpec>) -> Result<Self, SpawnAllError> {
        let count = specs.len();
        let mut children = Vec::with_capacity(count);
        for (index, spec) in specs.into_iter().enumerate() {
            match spawn(spec) {
                Ok(child) => children.push(child),
                Err(source) => {
                    // All get the signal before the first is waited for.
                    for child in &children {
                        let _gone = Child::signal_group(child, Signal::KILL);
                    }
                    return Err(SpawnAllError {
                        index,
                        count,
                        source,
                    });
                }
            }
        }
        Ok(Self::from_children(children))
    }

    /// Takes over processes that were started one by one.
    pub fn from_children(children: Vec<Child>) -> Self {
        let reported = vec![false; children.len()];
        Self {
            children,
            reported,
            stopping: Stopping::No,
            abandoned_groups: 0,
        }
    }

    /// Process ids, in the order of the specifications.
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::pid).collect()
    }

    /// One of the processes.
    pub fn child(&self, index: usize) -> Option<&Child> {
        self.children.get(index)
    }

    /// How many still run, as far as has been observed.
    pub fn running(&self) -> usize {
        self.children
            .iter()
            .filter(|child| child.exit().is_none())
            .count()
    }

    /// How many process groups had members that could not be killed.
    pub fn abandoned_groups(&self) -> usize {
        self.abandoned_groups
    }

    /// Whether [`Group::stop`] has been called.
    pub fn is_stopping(&self) -> bool {
        !matches!(self.stopping, Stopping::No)
    }

    /// The next process that ended, in the order of their ends as far as can be seen; `None` when
    /// all have been reported and nothing is left of their process groups. Everything the group
    /// does over time (grace, leftovers) happens while this is awaited. Cancel-safe.
    pub async fn next_exit(&mut self) -> Option<(usize, ExitInfo)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, ExitInfo)>> {
        loop {
            let mut pending = false;
            let mut left = false;
            let mut ended: Option<(usize, ExitInfo)> = None;
            for (index, child) in self.children.iter_mut().enumerate() {
                if self.reported.get(index).copied().unwrap_or(true) {
                    // The timers of leftovers are only looked at where there are any.
                    if child.has_leftovers() {
                        match child.poll_leftovers(cx) {
                            Poll::Pending => left = true,
                            Poll::Ready(true) => {}
                            Poll::Ready(false) => self.abandoned_groups += 1,
                        }
                    }
                    continue;
                }
                match child.poll_exit(cx) {
                    Poll::Pending => pending = true,
                    // Several may have ended since the last look: the earliest comes first.
                    Poll::Ready(info) => {
                        if ended.is_none_or(|(_, earlier)| info.at < earlier.at) {
                            ended = Some((index, info));
                        }
                    }
                }
            }
            if let Some((index, info)) = ended {
                if let Some(reported) = self.reported.get_mut(index) {
                    *reported = true;
                }
                return Poll::Ready(Some((index, info)));
            }
            if !pending && !left {
                return Poll::Ready(None);
            }
            if !pending {
                return Poll::Pending;
            }
            match &mut self.stopping {
                Stopping::No => return Poll::Pending,
                Stopping::Asked { timer } => {
                    if timer.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    self.kill();
                }
                Stopping::Killed { timer } => {
                    if timer.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    for child in self
                        .children
                        .iter_mut()
                        .filter(|child| child.exit().is_none())
                    {
                        child.abandon();
                    }
                }
            }
        }
    }

    /// Asks all processes and their groups to end, and kills those that still run after the grace.
    /// Called again it kills at once (D14). Within a tokio runtime; it does not wait.
    pub fn stop(&mut self, signal: Signal, grace: Duration) {
        self.ask(signal, grace);
        if matches!(self.stopping, Stopping::Asked { .. }) {
            // A stopped process acts on nothing but SIGKILL.
            self.signal_all(Signal::CONT);
        }
    }

    /// As [`Self::stop`] for processes that nobody has stopped, and that would pass a SIGCONT on.
    pub fn ask(&mut self, signal: Signal, grace: Duration) {
        if self.is_stopping() || grace.is_zero() || signal == Signal::KILL {
            self.kill();
            return;
        }
        self.stopping = Stopping::Asked {
            timer: Box::pin(sleep_until(Instant::now() + grace)),
        };
        for child in &mut self.children {
            child.mark_stopped();
            let _gone = child.signal_group(signal);
        }
    }

    /// Kills all processes and their groups at once.
    pub fn kill(&mut self) {
        for child in &mut self.children {
            child.mark_stopped();
            let _gone = child.signal_group(Signal::KILL);
            child.kill_leftovers();
        }
        if !matches!(self.stopping, Stopping::Killed { .. }) {
            self.stopping = Stopping::Killed {
                timer: Box::pin(sleep_until(Instant::now() + ABANDON)),
            };
        }
    }

    /// Passes a signal on to all process groups; nothing is asked to end.
    pub fn signal_all(&self, signal: Signal) {
        for child in &self.children {
            let _gone = child.signal_group(signal);
        }
    }

    /// Passes a signal on to the processes alone, not to what they have started: one that a program
    /// handles would kill its helpers.
    pub fn signal_each(&self, signal: Signal) {
        for child in &self.children {
            let _gone = child.signal(signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // All get the signal before the first is waited for.
        for child in self.children.iter().filter(|child| child.exit().is_none()) {
            let _gone = child.signal_group(Signal::KILL);
        }
    }
}
