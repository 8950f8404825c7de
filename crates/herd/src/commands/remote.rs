//! `herd run` on a cluster: hand the job over, show its output until it ends, end with its code. What
//! would end a local job ends this one: Ctrl-C asks for the end, Ctrl-C again kills.

use std::io::Write as _;

use herd_backends::slurm::cancel::Taken;
use herd_jobdir::Home;
use herd_launch::sys;
use nix::sys::signal::{SigSet, Signal};

use super::cancel::later;
use super::logs::shape::Shaper;
use super::{Outcome, logs, submit};
use crate::backend_login;
use crate::error::ExpectedError;
use crate::job_input::JobInput;
use crate::jobs::{self, Job};
use crate::printer::Printer;

/// Runs the job to its end.
pub(super) fn run(
    home: &Home,
    input: JobInput,
    mut shaper: Shaper,
    printer: &mut Printer,
) -> Outcome {
    // Before any other thread is there, so that none of them is ended by these.
    let signals = ending_signals();
    let blocked = signals.thread_block();
    let id = submit::hand_over(home, input, None, printer)?;
    printer.flush();
    let job = jobs::open(home, &id.to_string())?;
    if blocked.is_ok() {
        cancel_when_asked(home, &job, signals);
    }
    backend_login::follow(&[&job], true);
    logs::follow_to_end(&job, &mut shaper, printer)?;
    let ended = jobs::open(home, &id.to_string())?;
    let result = ended.dir.read_result();
    let result = result.map_err(|error| ExpectedError::failed("read how the job ended", error))?;
    if let Some(result) = result {
        return Ok(super::run::report(&ended, &result, true, printer));
    }
    printer.warn(&format!(
        "standard output is closed; {0} goes on, `herd wait {0}` waits for it",
        ended.short()
    ));
    Ok(0)
}

/// Those by which users end what runs in front of them; not a hang-up that nohup ignores.
fn ending_signals() -> SigSet {
    let mut signals = SigSet::empty();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGQUIT,
        Signal::SIGHUP,
    ] {
        if !sys::is_ignored(signal) {
            signals.add(signal);
        }
    }
    signals
}

/// Starts a thread that passes requests for the end on to the job. It ends with the process.
fn cancel_when_asked(home: &Home, job: &Job, signals: SigSet) {
    let (home, id, short) = (home.clone(), job.dir.id().to_string(), job.short());
    let waiter = std::thread::Builder::new().name("cancel".to_owned());
    let started = waiter.spawn(move || {
        let mut again = false;
        while let Ok(signal) = signals.wait() {
            let grace = again.then(|| herd_core::units::Span::from_secs(0));
            let number = u8::try_from(signal as i32).unwrap_or(15);
            let asked = jobs::open(&home, &id).and_then(|job| job.cancel(number, grace));
            let text = match asked {
                Ok(Taken::Now) if again => format!("herd: asked {short} to end at once"),
                Ok(Taken::Now) => format!("herd: asked {short} to end; once more kills it"),
                Ok(Taken::Later) => format!("herd: {}", later(&short)),
                Err(error) => error.render(false),
            };
            // A closed standard error leaves nobody to tell.
            drop(writeln!(std::io::stderr(), "{}", text.trim_end()));
            again = true;
        }
    });
    if started.is_err() {
        // Then a signal ends this process, and the job goes on.
        let _as_before = signals.thread_unblock();
    }
}
