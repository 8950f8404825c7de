//! The signals that ask a driver for the end of its job, as one stream.

use std::io;

use herd_launch::sys;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGHUP, SIGINT, SIGQUIT and SIGTERM; SIGHUP only where nobody ignores it (nohup).
#[derive(Debug)]
pub struct Signals {
    hangup: Option<Signal>,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
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
        })
    }

    /// The number of the next signal. Cancel-safe.
    pub async fn next(&mut self) -> i32 {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = hangup => SignalKind::hangup().as_raw_value(),
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = self.quit.recv() => SignalKind::quit().as_raw_value(),
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
        }
    }
}
