//! The workers of [`super::death`]: one dies when all are ready, the others say when they were asked
//! to end. Times are those of the monotonic clock, which is one for all processes.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{SigSet, Signal};
use nix::time::{ClockId, clock_gettime};

/// How long workers wait for each other.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long all is quiet before the death.
const QUIET: Duration = Duration::from_millis(100);

/// Now, nanoseconds.
pub(super) fn now() -> Result<i128> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).context("read the clock")?;
    Ok(i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec()))
}

/// A worker that uses `directory` to speak to the others.
pub(crate) fn run(directory: &Path) -> Result<u8> {
    let number = |name: &str| -> Result<u32> {
        let text = std::env::var(name).with_context(|| format!("read {name}"))?;
        text.parse().with_context(|| format!("read {name}"))
    };
    let (rank, size) = (number("RANK")?, number("WORLD_SIZE")?);
    let mut term = SigSet::empty();
    term.add(Signal::SIGTERM);
    term.thread_block().context("block SIGTERM")?;
    let write = |name: &str, time: i128| {
        let path = directory.join(format!("{name}-{rank}"));
        fs::write(&path, time.to_string()).with_context(|| format!("write {}", path.display()))
    };
    write("ready", now()?)?;
    if rank == 0 {
        let began = Instant::now();
        while fs::read_dir(directory)?.count() < size as usize {
            ensure!(began.elapsed() < PATIENCE, "not all workers came");
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let quiet = Instant::now();
        while quiet.elapsed() < QUIET {
            std::thread::park_timeout(QUIET);
        }
        write("died", now()?)?;
        return Ok(1);
    }
    term.wait().context("wait for SIGTERM")?;
    write("asked", now()?)?;
    Ok(1)
}
