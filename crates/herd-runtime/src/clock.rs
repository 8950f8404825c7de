//! Time for one process: wall-clock milliseconds that never run backwards.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Waits until then; for ever without a time. Cancel-safe.
pub(crate) async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Wall-clock time at the start plus what has passed since on the monotonic clock, so that a clock
/// that jumps neither ends a job nor reorders its events.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall_ms: u64,
    started: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(0),
            started: Instant::now(),
        }
    }

    /// Milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        let passed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.wall_ms.saturating_add(passed)
    }

    /// Waits until this time, milliseconds since the Unix epoch; for ever without one. Cancel-safe.
    pub(crate) async fn at(&self, time_ms: Option<u64>) {
        match time_ms {
            Some(time_ms) => {
                let pause = time_ms.saturating_sub(self.now_ms());
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            None => std::future::pending().await,
        }
    }
}
