//! The signals that ask a driver for the end of its job, as one stream.

use std::io;

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
        let hangup_ignored = hangup_is_ignored();
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

/// Whether SIGHUP was ignored when this process began (nohup), by the kernel's own account.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    mask & 1 == 1
}
