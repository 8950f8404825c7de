//! Prints merged output: what is there, or until its end, from a job's log or those of its tasks.

use std::time::{Duration, Instant};

use herd_backends::local::Announcer;
use herd_jobdir::JobDirError;
use herd_jobdir::runlog::{Entry, Follow, Followed, RunLogReader, TaskLogs};

use super::shape::Shaper;
use super::{IDLE, tell_what_it_waits_for, unreadable};
use crate::backend_login;
use crate::error::ExpectedError;
use crate::jobs::Job;
use crate::printer::Printer;

/// Between two looks at output that comes after the job's end.
const LATE: Duration = Duration::from_millis(20);

/// What gives what is there.
pub(super) trait Read {
    fn read(&mut self) -> Result<Option<Entry<'_>>, JobDirError>;
}

impl Read for RunLogReader {
    fn read(&mut self) -> Result<Option<Entry<'_>>, JobDirError> {
        self.read()
    }
}

impl Read for TaskLogs {
    fn read(&mut self) -> Result<Option<Entry<'_>>, JobDirError> {
        self.read()
    }
}

/// What gives more as it is written.
pub(super) trait Grow {
    fn next(&mut self, timeout: Duration) -> Result<Followed<'_>, JobDirError>;
}

impl Grow for Follow {
    fn next(&mut self, timeout: Duration) -> Result<Followed<'_>, JobDirError> {
        self.next(timeout)
    }
}

impl Grow for TaskLogs {
    fn next(&mut self, timeout: Duration) -> Result<Followed<'_>, JobDirError> {
        self.next(timeout)
    }
}

/// How long output is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// Until whoever writes it has ended.
    LogEnds,
    /// Or until the job has: a task that never began has no end of its own.
    LogOrJobEnds,
}

/// Prints what is there, or until nobody reads.
pub(super) fn show(
    log: &mut impl Read,
    shaper: &mut Shaper,
    printer: &mut Printer,
) -> Result<(), ExpectedError> {
    let mut text = Vec::new();
    while let Some(entry) = log.read().map_err(unreadable)? {
        printer.data(shaper.shown(&entry, &mut text));
        if printer.is_closed() {
            break;
        }
    }
    Ok(())
}

/// Prints what comes, and says what the job waits for, until the end, or until nobody reads.
pub(super) fn follow(
    job: &Job,
    log: &mut impl Grow,
    until: Until,
    shaper: &mut Shaper,
    printer: &mut Printer,
) -> Result<(), ExpectedError> {
    let mut text = Vec::new();
    let mut announcer = Announcer::new(Instant::now());
    let mut over = false;
    while !printer.is_closed() {
        // Asked before the look, which then sees all that has come.
        let may_come = backend_login::may_come(job);
        match log.next(IDLE).map_err(unreadable)? {
            Followed::Entry(entry) => printer.data(shaper.shown(&entry, &mut text)),
            Followed::Idle if over => break,
            Followed::Idle => {
                printer.flush();
                let ended = tell_what_it_waits_for(job, &mut announcer, printer)?;
                over = ended && until == Until::LogOrJobEnds;
            }
            Followed::Ended if may_come => std::thread::park_timeout(LATE),
            Followed::Ended => break,
        }
    }
    Ok(())
}
