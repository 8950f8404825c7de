//! Ctrl-C while a job is followed: it ends the command and not the job, which is said.

use std::io::Write as _;

use nix::sys::signal::{SigSet, Signal, raise};

use crate::jobs::Job;

/// From here on Ctrl-C says that the job goes on before it ends this process. Called before any other
/// thread is started; the thread that waits for it ends with the process.
pub(super) fn tell_that_it_goes_on(job: &Job) {
    if job.is_ended() {
        return;
    }
    let short = job.short();
    tell(format!(
        "herd: {short} goes on; `herd logs -f {short}` follows it, `herd cancel {short}` ends it"
    ));
}

/// The same with another text.
pub(super) fn tell(text: String) {
    let mut interrupt = SigSet::empty();
    interrupt.add(Signal::SIGINT);
    if interrupt.thread_block().is_err() {
        return;
    }
    let waiter = std::thread::Builder::new().name("interrupt".to_owned());
    let started = waiter.spawn(move || {
        if interrupt.wait().is_ok() {
            // A closed standard error leaves nobody to tell. The terminal has shown `^C`.
            drop(writeln!(std::io::stderr(), "\n{text}"));
        }
        // The shell is to see that a signal ended this process.
        let _ended = interrupt
            .thread_unblock()
            .and_then(|()| raise(Signal::SIGINT));
    });
    if started.is_err() {
        let _as_before = interrupt.thread_unblock();
    }
}
