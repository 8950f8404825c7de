//! What a foreground run shows while it runs: each rank's stdout to ours, its stderr to ours.

use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use herd_jobdir::runlog::{Filter, Follow, Followed, Stream};

use super::shape::Shaper;

/// Longest wait for more before the job's result is looked for.
const IDLE: Duration = Duration::from_millis(250);

/// Shows a job's output until the job has its result and everything was shown, or until it is
/// `over` without one (a full disk) and there is no more. A reader of
/// standard output that leaves does not stop the job: one warning, and the log has it all.
pub(crate) fn show(job_dir: &Path, mut shaper: Shaper, over: &AtomicBool) {
    let mut follow = Follow::new(job_dir, Filter::default());
    let mut text = Vec::new();
    let mut closed = false;
    loop {
        // Before the look: what was written by then is certainly found.
        let was_over = over.load(Ordering::Acquire);
        match follow.next(IDLE) {
            Ok(Followed::Entry(entry)) => {
                text.clear();
                shaper.shape(&entry, &mut text);
                if entry.record.stream != Stream::Stdout {
                    // Nobody is left to tell when stderr is closed.
                    drop(io::stderr().write_all(&text));
                } else if !closed {
                    let mut out = io::stdout().lock();
                    if let Err(error) = out.write_all(&text).and_then(|()| out.flush()) {
                        closed = true;
                        warn(&error, job_dir);
                    }
                }
            }
            Ok(Followed::Idle) if was_over => return,
            Ok(Followed::Idle) => {}
            Ok(Followed::Ended) => return,
            Err(error) => {
                drop(writeln!(
                    io::stderr(),
                    "warning: cannot show the job's output: {error}"
                ));
                return;
            }
        }
    }
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
