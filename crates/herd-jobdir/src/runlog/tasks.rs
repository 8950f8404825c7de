//! The output of all tasks of a job whose tasks are driven apart: each task has a merged log of its own,
//! and they are read side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::poll::{PollTimeout, poll};

use super::filter::Filter;
use super::follow::{Followed, POLL};
use super::reader::{Entry, RunLogReader};
use super::record::{HERD, Record};
use crate::apart;
use crate::error::JobDirError;
use crate::job::JobDir;

/// Logs that are open at once, two files each; those of further tasks are opened anew for each look.
const MAX_OPEN: usize = 128;

/// Where a reader is in a task's log.
#[derive(Debug)]
enum Place {
    Open(Box<RunLogReader>),
    /// Closed; the number of the next record.
    Parked(u64),
}

/// A reader of all tasks' output.
#[derive(Debug)]
pub struct TaskLogs {
    job: JobDir,
    filter: Filter,
    /// Whether a task is one rank, which then goes by the task's index.
    single: bool,
    places: BTreeMap<u32, Place>,
    open: usize,
    /// Tasks that have ended and were read to their end.
    done: BTreeSet<u32>,
    /// Whether a task's output may come after its end.
    mirror: bool,
    /// Tasks still to be looked at in this round, those that had ended before it, and whether the job had.
    round: Vec<u32>,
    settled: bool,
    /// Whether the round has found anything.
    found: bool,
    current: Option<u32>,
}

impl TaskLogs {
    /// Of a job whose tasks have so many ranks. A tail counts for each task.
    pub fn new(job: &JobDir, ranks: u32, filter: Filter) -> Self {
        Self {
            job: job.clone(),
            filter,
            single: ranks == 1,
            places: BTreeMap::new(),
            open: 0,
            done: BTreeSet::new(),
            mirror: false,
            round: Vec::new(),
            settled: false,
            found: false,
            current: None,
        }
    }

    /// The same of a mirror, where the end of a task may come before what the task has printed: then all
    /// tasks are looked at until the caller has enough.
    #[must_use]
    pub fn of_mirror(self, mirror: bool) -> Self {
        Self { mirror, ..self }
    }

    /// The next piece that is there; nothing where all was read. Tasks one after the other.
    pub fn read(&mut self) -> Result<Option<Entry<'_>>, JobDirError> {
        Ok(if self.advance()? { self.entry() } else { None })
    }

    /// The next piece, waiting at most `timeout` (a quarter of a second where longer: call again).
    pub fn next(&mut self, timeout: Duration) -> Result<Followed<'_>, JobDirError> {
        if self.advance()? {
            return Ok(self.entry().map_or(Followed::Idle, Followed::Entry));
        }
        if self.settled {
            return Ok(Followed::Ended);
        }
        // Nothing announces what is written on other machines.
        let bound = PollTimeout::try_from(timeout.min(POLL)).unwrap_or(PollTimeout::ZERO);
        // An interrupted wait is a short one.
        let _woken = poll(&mut [], bound);
        Ok(Followed::Idle)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        let index = self.current?;
        let Some(Place::Open(reader)) = self.places.get(&index) else {
            return None;
        };
        let entry = reader.entry()?;
        let rank = match entry.record.rank {
            rank if rank == HERD || !self.single => rank,
            _ => index,
        };
        Some(Entry {
            record: Record {
                rank,
                ..entry.record
            },
            ..entry
        })
    }

    /// Moves to the next piece; false after a round over all tasks that found nothing.
    fn advance(&mut self) -> Result<bool, JobDirError> {
        loop {
            if self.round.is_empty() {
                self.begin_round();
            }
            while let Some(&index) = self.round.last() {
                // What was written before the end is there when the end is seen, and not always before.
                let ended = self.settled || self.job.task(index).read_result()?.is_some();
                if self.read_on(index)? {
                    self.current = Some(index);
                    self.found = true;
                    return Ok(true);
                }
                self.leave(index, ended);
                self.round.pop();
            }
            if !std::mem::take(&mut self.found) {
                return Ok(false);
            }
        }
    }

    fn begin_round(&mut self) {
        self.settled = self.job.path().join("result.json").exists();
        let begun = apart::begun(&self.job);
        let left = begun
            .iter()
            .rev()
            .filter(|index| !self.done.contains(index));
        self.round = left.copied().collect();
    }

    fn read_on(&mut self, index: u32) -> Result<bool, JobDirError> {
        let task = self.job.task(index);
        let from = match self.places.get_mut(&index) {
            Some(Place::Open(reader)) => return reader.advance(),
            Some(Place::Parked(from)) => Some(*from),
            None => None,
        };
        let opened = match from {
            Some(from) => RunLogReader::open_at(task.path(), self.filter.clone(), from)?,
            None => RunLogReader::open(task.path(), self.filter.clone())?,
        };
        let Some(mut reader) = opened else {
            return Ok(false);
        };
        let any = reader.advance()?;
        self.places.insert(index, Place::Open(Box::new(reader)));
        self.open += 1;
        Ok(any)
    }

    /// Nothing more is there of a task for now.
    fn leave(&mut self, index: u32, ended: bool) {
        if let Some(Place::Open(reader)) = self.places.get(&index)
            && (ended || self.open > MAX_OPEN)
        {
            let place = Place::Parked(reader.position());
            self.places.insert(index, place);
            self.open -= 1;
        }
        if ended && !self.mirror {
            self.places.remove(&index);
            self.done.insert(index);
        }
    }
}
