//! What signals ask of a driver (the end of its job, a pause, going on), as one stream.

use std::io;

use herd_launch::Signal as Number;
use herd_launch::sys;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The end of the job; the signal's number.
    End(i32),
    /// A pause: Ctrl-Z.
    Pause,
    /// Going on after a pause.
    Resume,
}

/// SIGHUP, SIGINT, SIGQUIT and SIGTERM; SIGHUP only where nobody ignores it (nohup). SIGTSTP and
/// SIGCONT.
#[derive(Debug)]
pub struct Signals {
    hangup: Option<Signal>,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    stop: Signal,
    go_on: Signal,
}

impl Signals {
    /// Begins to watch. From here on these signals no longer end the process by themselves.
    pub fn watch() -> io::Result<Self> {
        // Before the runtime takes the signal over.
        let hangup_ignored = sys::is_ignored(nix::sys::signal::Signal::SIGHUP);
        Ok(Self {
            hangup: if hangup_ignored {
                None
            } else {
                Some(signal(SignalKind::hangup())?)
            },
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
            stop: signal(SignalKind::from_raw(Number::TSTP.as_raw()))?,
            go_on: signal(SignalKind::from_raw(Number::CONT.as_raw()))?,
        })
    }

    /// The number of the next signal that asks for the end, for one who waits and has nothing
    /// running: on Ctrl-Z the whole process stops. Cancel-safe.
    pub async fn next(&mut self) -> i32 {
        loop {
            match self.asked().await {
                Asked::End(signal) => return signal,
                Asked::Pause => {
                    // The guard sees it and stops as well.
                    let own = rustix::process::getpid();
                    let _stopped = rustix::process::kill_process(own, Number::STOP);
                }
                Asked::Resume => {}
            }
        }
    }

    /// What the next signal asks for. Cancel-safe.
    pub async fn asked(&mut self) -> Asked {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Of several that came together, a pause before its end.
            biased;
            _ = hangup => Asked::End(SignalKind::hangup().as_raw_value()),
            _ = self.interrupt.recv() => Asked::End(SignalKind::interrupt().as_raw_value()),
            _ = self.quit.recv() => Asked::End(SignalKind::quit().as_raw_value()),
            _ = self.terminate.recv() => Asked::End(SignalKind::terminate().as_raw_value()),
            _ = self.stop.recv() => Asked::Pause,
            _ = self.go_on.recv() => Asked::Resume,
        }
    }
}
