//! What a foreground run shows while it runs: each rank's stdout to ours, its stderr to ours.
//!
//! The driver says when the merged log has grown; a thread of the console reads the log and writes,
//! so that a terminal that takes nothing delays no heartbeat. Without output there is no thread.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use herd_jobdir::JobDirError;
use herd_jobdir::runlog::{Filter, RunLogReader, Stream};

use super::shape::Shaper;

/// Longest wait of the thread before it looks at the log without having been called.
const IDLE: Duration = Duration::from_secs(1);

/// Shows a job's output. A reader of standard output that leaves does not stop the job: one
/// warning, and the log has it all.
pub(crate) struct Console {
    screen: Mutex<Screen>,
    calls: Mutex<Calls>,
    called: Condvar,
}

/// What the thread is to do.
#[derive(Default)]
struct Calls {
    started: bool,
    grown: bool,
    over: bool,
}

/// What has been shown so far.
struct Screen {
    job_dir: PathBuf,
    reader: Option<RunLogReader>,
    shaper: Shaper,
    text: Vec<u8>,
    /// Standard output is closed.
    closed: bool,
    /// The log cannot be read.
    failed: bool,
}

impl Console {
    /// Shows nothing yet.
    pub(crate) fn new(job_dir: PathBuf, shaper: Shaper) -> Arc<Self> {
        Arc::new(Self {
            screen: Mutex::new(Screen {
                job_dir,
                reader: None,
                shaper,
                text: Vec::new(),
                closed: false,
                failed: false,
            }),
            calls: Mutex::default(),
            called: Condvar::new(),
        })
    }

    /// The log has grown: it is shown soon, by the console's thread. Does not block.
    pub(crate) fn log_grew(self: &Arc<Self>) {
        let mut calls = lock(&self.calls);
        calls.grown = true;
        if !calls.started {
            let console = Arc::clone(self);
            let thread = std::thread::Builder::new().name("console".to_owned());
            // Without a thread, for now, all is shown by the next call that gets one or at the end.
            calls.started = thread.spawn(move || console.run()).is_ok();
        }
        self.called.notify_one();
    }

    /// Shows what is left, on the calling thread. The other one, which is done or asleep, ends when
    /// it wakes; waiting for that would cost more than many a job. Whether all of it was shown.
    pub(crate) fn finish(&self) -> bool {
        lock(&self.calls).over = true;
        self.called.notify_one();
        let mut screen = lock(&self.screen);
        screen.show();
        !screen.failed
    }

    fn run(&self) {
        loop {
            let mut calls = lock(&self.calls);
            if !calls.grown && !calls.over {
                let waited = self.called.wait_timeout(calls, IDLE);
                calls = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if calls.over {
                return;
            }
            calls.grown = false;
            drop(calls);
            lock(&self.screen).show();
        }
    }
}

impl Screen {
    /// Shows all that the log has and that was not shown yet.
    fn show(&mut self) {
        if self.failed {
            return;
        }
        if let Err(error) = self.show_new() {
            self.failed = true;
            drop(writeln!(
                io::stderr(),
                "warning: cannot show the job's output: {error}"
            ));
        }
    }

    fn show_new(&mut self) -> Result<(), JobDirError> {
        if self.reader.is_none() {
            self.reader = RunLogReader::open(&self.job_dir, Filter::default())?;
        }
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        while let Some(entry) = reader.read()? {
            let shown = self.shaper.shown(&entry, &mut self.text);
            if entry.record.stream != Stream::Stdout {
                // Nobody is left to tell when stderr is closed.
                drop(io::stderr().write_all(shown));
            } else if !self.closed {
                let mut out = io::stdout().lock();
                if let Err(error) = out.write_all(shown).and_then(|()| out.flush()) {
                    self.closed = true;
                    warn(&error, &self.job_dir);
                }
            }
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn warn(error: &io::Error, job_dir: &Path) {
    let why = if error.kind() == ErrorKind::BrokenPipe {
        "closed"
    } else {
        "not writable"
    };
    drop(writeln!(
        io::stderr(),
        "warning: standard output is {why}; the job goes on, its output is in {}",
        job_dir.join("run.log").display()
    ));
}
