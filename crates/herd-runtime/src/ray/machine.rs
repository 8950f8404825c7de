//! What Ray's sizes are reckoned from.

use std::fs;
use std::thread::available_parallelism;

/// What this machine has for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// CPUs by affinity and cgroup.
    pub(crate) cpus: u64,
    /// Bytes of memory; 0 where unknown.
    pub(crate) memory: u64,
    /// Bytes free in `/dev/shm`; 0 where it is absent.
    pub(crate) shared_memory: u64,
}

impl Machine {
    /// Looks.
    pub(crate) fn of_this_process() -> Self {
        let shared = rustix::fs::statvfs("/dev/shm").ok();
        Self {
            cpus: available_parallelism().map_or(1, |cpus| cpus.get() as u64),
            memory: total_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            shared_memory: shared.map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize)),
        }
    }
}

fn total_memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_kernels_table() {
        assert_eq!(total_memory("MemTotal:  2 kB\nMemFree: 1 kB\n"), 2048);
        assert_eq!(total_memory("Mem"), 0);
        assert!(Machine::of_this_process().cpus >= 1);
    }
}
