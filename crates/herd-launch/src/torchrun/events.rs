//! The first and the last event of a launch, and where events go by the flags.

use std::time::Instant;

use super::command;
use super::flags::{EventLog, Flags};
use crate::agent::events::{CannotOpen, Event, Events};

/// Opens the log that `--event-log-handler` names, for a run whose id is not known yet.
pub fn open(flags: &Flags) -> Result<Events, CannotOpen> {
    match &flags.event_log {
        EventLog::Null => Ok(Events::none()),
        EventLog::Console => Ok(Events::console(&flags.rdzv_id)),
        EventLog::File(path) => Events::file(&flags.rdzv_id, path),
    }
}

/// The launch begins.
pub fn started(events: &Events, flags: &Flags, workers: u32, host: String) {
    events.record(&Event::LaunchStarted {
        pid: std::process::id(),
        host,
        version: env!("CARGO_PKG_VERSION"),
        script: command::title(flags),
        workers,
        min_nodes: flags.nnodes.min,
        max_nodes: flags.nnodes.max,
        max_restarts: flags.max_restarts,
    });
}

/// The launch ends with this code.
pub fn ended(events: &Events, began: Instant, code: u8) {
    events.record(&Event::LaunchEnded {
        code,
        wall_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
}
