//! Waiting for a moment that may not be set.

use tokio::time::{Instant, sleep_until};

/// Waits until then; for ever without a time. Cancel-safe.
pub async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
