//! One attempt while it runs: ends, signals, silence, and what is shown of the workers' output.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::sync::mpsc;

use super::events::{EndOfWorker, Event};
use super::layout::WorkerFiles;
use super::outcome::{Outcome, WorkerEnd};
use super::settings::{Settings, Told};
use super::silence::{Silence, SilentWorker, report};
use super::tee::{Room, Screen, Tee};
use crate::child::ExitInfo;
use crate::clock::until;
use crate::follow::{FileId, Followed, Follower};
use crate::group::Group;
use crate::world::World;

/// What workers get between TERM and KILL when nobody would end them after the agent.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);
/// What silent workers get at least to write their stacks.
const DUMP_GRACE: Duration = Duration::from_secs(1);

/// One attempt while it runs.
pub(super) struct Watch<'a> {
    pub(super) settings: &'a Settings,
    pub(super) world: &'a World,
    pub(super) attempt: u32,
    pub(super) pids: Vec<u32>,
    pub(super) files: Vec<WorkerFiles>,
    pub(super) group: Group,
    pub(super) follower: Follower,
    pub(super) tee: Tee,
    /// Whether workers are silent is watched until they are.
    pub(super) silence: Option<Silence>,
    /// Those that were.
    pub(super) silent: Vec<SilentWorker>,
    /// What is still to be said about that.
    pub(super) words: Option<String>,
    /// The signal that asked for the end.
    pub(super) stopping: Option<i32>,
    pub(super) failed: bool,
    pub(super) ends: BTreeMap<usize, WorkerEnd>,
}

impl Watch<'_> {
    /// Sees the workers to their end.
    pub(super) async fn run(mut self, told: &mut mpsc::Receiver<Told>) -> Outcome {
        loop {
            let due = self.tee.due();
            let look = self.silence.as_ref().map(Silence::due);
            tokio::select! {
                // Ends first: a failing worker stops its peers however much they write.
                biased;
                exit = self.group.next_exit() => match exit {
                    Some((index, exit)) => self.ended(index, exit),
                    None => break,
                },
                Some(told) = told.recv() => self.hear(told),
                () = until(look.map(Into::into)) => self.look_for_silence(),
                room = self.tee.room(), if self.words.is_some() => self.say(room),
                shown = next_shown(&self.tee, &mut self.follower) => self.show(shown),
                room = held(&self.tee, due) => self.tee.show_held(room),
            }
        }
        if self.words.is_some() {
            let room = self.tee.room().await;
            self.say(room);
        }
        // Nobody writes any more: what the files still have is shown.
        self.follower.finish_all();
        while !self.follower.is_empty() {
            let shown = next_shown(&self.tee, &mut self.follower).await;
            self.show(shown);
        }
        self.tee.finish();
        let workers = self.ends.into_values().collect();
        match (self.stopping, self.failed) {
            (Some(signal), _) => Outcome::Signalled { signal, workers },
            (None, true) => Outcome::Failed(workers),
            (None, false) => Outcome::Succeeded(workers),
        }
    }

    fn ended(&mut self, index: usize, exit: ExitInfo) {
        let local_rank = u32::try_from(index).unwrap_or(u32::MAX);
        let mut end = WorkerEnd {
            local_rank,
            pid: self.pids.get(index).copied().unwrap_or_default(),
            exit,
            error_file: self
                .files
                .get(index)
                .map(|files| files.error.clone())
                .unwrap_or_default(),
            note: None,
        };
        self.note_silence(&mut end);
        if let Some(silence) = &mut self.silence {
            silence.ended(local_rank);
        }
        self.settings.events.record(&Event::WorkerEnded {
            attempt: self.attempt,
            end: EndOfWorker::of(self.world, &end),
        });
        if !exit.end.is_success() && !exit.stopped {
            if !std::mem::replace(&mut self.failed, true) {
                (self.settings.first_failure)(local_rank, exit.end.to_string());
            }
            // Their ends are asked for: nobody is expected to write now.
            self.silence = None;
            if !self.group.is_stopping() {
                self.group
                    .stop(Signal::TERM, self.settings.shutdown_timeout);
            }
        }
        self.ends.insert(index, end);
    }

    /// Where nobody failed but all were silent, the blame goes to whoever was so for the longest.
    fn note_silence(&self, end: &mut WorkerEnd) {
        let own = self
            .silent
            .iter()
            .find(|silent| silent.local_rank == end.local_rank);
        let Some(own) = own else { return };
        let is_first = self
            .longest()
            .is_some_and(|first| first.local_rank == own.local_rank);
        let others = self
            .silent
            .iter()
            .filter(|other| other.local_rank != own.local_rank);
        let is_longest = others.clone().next().is_some()
            && others.clone().all(|other| other.silent_ms < own.silent_ms);
        let seconds = Duration::from_millis(own.silent_ms).as_secs_f64();
        end.exit.stopped &= !is_first;
        end.note = Some(format!(
            "silent for {seconds:.1} s{} (--hang-timeout)",
            if is_longest {
                ", the longest of all: it may be the one that the others waited for"
            } else {
                ""
            }
        ));
    }

    fn longest(&self) -> Option<&SilentWorker> {
        // The lowest rank of several.
        self.silent
            .iter()
            .rev()
            .max_by_key(|silent| silent.silent_ms)
    }

    fn look_for_silence(&mut self) {
        let Some(silence) = &mut self.silence else {
            return;
        };
        let Some(silent) = silence.look(Instant::now()) else {
            return;
        };
        self.silence = None;
        let timeout = self.settings.hang_timeout.unwrap_or_default();
        self.words = Some(report(timeout, &silent));
        self.settings.events.record(&Event::HangDetected {
            attempt: self.attempt,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            workers: silent.clone(),
        });
        self.silent = silent;
        self.failed = true;
        if let Some(longest) = self.longest() {
            let seconds = Duration::from_millis(longest.silent_ms).as_secs_f64();
            let what = format!("was silent for {seconds:.1} s (--hang-timeout)");
            (self.settings.first_failure)(longest.local_rank, what);
        }
        let grace = self.settings.shutdown_timeout.max(DUMP_GRACE);
        self.group.stop(Signal::ABORT, grace);
    }

    fn say(&mut self, room: Room) {
        if let Some(words) = self.words.take() {
            Tee::say(room, Screen::Err, words);
        }
    }

    fn hear(&mut self, told: Told) {
        if !matches!(told, Told::Forward(_)) {
            self.silence = None;
        }
        match told {
            Told::End(number) => {
                self.stopping.get_or_insert(number);
                let signal = Signal::from_named_raw(number).unwrap_or(Signal::TERM);
                // Asked again, the group kills (D14).
                self.group.stop(signal, self.settings.shutdown_timeout);
            }
            Told::Orphaned => {
                self.stopping.get_or_insert(Signal::TERM.as_raw());
                self.group.stop(Signal::TERM, ORPHAN_GRACE);
            }
            Told::Forward(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.group.signal_each(signal);
                }
            }
        }
    }

    fn show(&mut self, (room, followed): (Room, Followed)) {
        match followed {
            Followed::Chunk { id, bytes, .. } => {
                let (screen, rank) = of_file(id);
                self.tee.feed(room, screen, rank, &bytes);
            }
            Followed::Finished { id, .. } => {
                let (screen, rank) = of_file(id);
                self.tee.end(room, screen, rank);
            }
            Followed::Failed { id, error, .. } => {
                let (screen, rank) = of_file(id);
                self.tee.end(room, screen, rank);
                let name = match screen {
                    Screen::Out => "standard output",
                    Screen::Err => "standard error",
                };
                let words = format!(
                    "herd launch: warning: local rank {rank}: cannot show the rest of its {name}: {error}; hint: with --log-dir all of it stays in a file\n"
                );
                self.words.get_or_insert_default().push_str(&words);
            }
            // What comes after a truncation is shown like everything else.
            Followed::Grown { .. } | Followed::Truncated { .. } => {}
        }
    }
}

/// The next piece of a worker's output, once there is room for it.
async fn next_shown(tee: &Tee, follower: &mut Follower) -> (Room, Followed) {
    if follower.is_empty() {
        std::future::pending::<()>().await;
    }
    let room = tee.room().await;
    (room, follower.next().await)
}

/// Room for the line that is held, once it has waited long enough.
async fn held(tee: &Tee, due: Option<Instant>) -> Room {
    until(due.map(Into::into)).await;
    tee.room().await
}

fn of_file(id: FileId) -> (Screen, u32) {
    let screen = if id.0 & 1 == 1 {
        Screen::Err
    } else {
        Screen::Out
    };
    (screen, u32::try_from(id.0 >> 1).unwrap_or(u32::MAX))
}
