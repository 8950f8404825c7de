//! The workers of [`super::death`]: one dies when all are ready, the others say when they were asked
//! to end. Times are those of the system's clock, which is one for all processes; what lies between
//! two is milliseconds, so a clock that is being set at that moment shows.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{SigSet, Signal};

/// How long workers wait for each other.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long all is quiet before the death.
const QUIET: Duration = Duration::from_millis(100);

/// Now, microseconds.
pub(super) fn now() -> Result<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.context("read the clock")?;
    u64::try_from(since.as_micros()).context("read the clock")
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
    let write = |name: &str, time: u64| {
        let path = directory.join(format!("{name}-{rank}"));
        fs::write(&path, time.to_string()).with_context(|| format!("write {}", path.display()))
    };
    // The file is there before the moment, whose time is written into it, so that making it does not count.
    let said = if rank == 0 { "died" } else { "asked" };
    let path = directory.join(format!("{said}-{rank}"));
    let mut file = File::create(&path).with_context(|| format!("make {}", path.display()))?;
    let mut say =
        |time: u64| write!(file, "{time}").with_context(|| format!("write {}", path.display()));
    write("ready", now()?)?;
    if rank == 0 {
        let began = Instant::now();
        while fs::read_dir(directory)?.count() < 2 * size as usize {
            ensure!(began.elapsed() < PATIENCE, "not all workers came");
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let quiet = Instant::now();
        while quiet.elapsed() < QUIET {
            std::thread::park_timeout(QUIET);
        }
        say(now()?)?;
        return Ok(1);
    }
    term.wait().context("wait for SIGTERM")?;
    say(now()?)?;
    Ok(1)
}
