//! What this machine has of CPUs and memory. Facts only: nothing is reserved here. The places of
//! kernel files are parameters.

use std::fs;
use std::path::Path;

/// Directories looked into above a process's own control group.
const DEEPEST_CGROUP: usize = 32;

/// CPUs by affinity and by the control group's quota, versions 1 and 2.
pub fn cpus() -> u32 {
    // The standard library takes the lesser of the two, rounded down.
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// Memory by `proc/meminfo` and by the limits of the process's control groups.
pub fn memory(proc_root: &Path, cgroup_root: &Path) -> Option<u64> {
    let total = fs::read_to_string(proc_root.join("meminfo"))
        .ok()
        .and_then(|t| meminfo(&t));
    let groups = fs::read_to_string(proc_root.join("self/cgroup")).unwrap_or_default();
    total
        .into_iter()
        .chain(cgroup_limits(&groups, cgroup_root))
        .min()
}

fn meminfo(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Limits of each control group above the process; absent and `max` ones left out.
fn cgroup_limits(groups: &str, root: &Path) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (base, file) = if controllers.is_empty() {
            (root.to_path_buf(), "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            (root.join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        let inside = Path::new(path.trim_start_matches('/'));
        // A path that leaves the namespace's root starts with `..` and is not to be found here.
        for group in inside.ancestors().take(DEEPEST_CGROUP) {
            let text = fs::read_to_string(base.join(group).join(file)).unwrap_or_default();
            limits.extend(text.trim().parse::<u64>().ok());
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_least_of_machine_and_groups() {
        let dir = tempfile::tempdir().unwrap();
        let (proc_root, groups) = (dir.path().join("proc"), dir.path().join("cgroup"));
        fs::create_dir_all(proc_root.join("self")).unwrap();
        fs::create_dir_all(groups.join("a/b")).unwrap();
        fs::write(
            proc_root.join("meminfo"),
            "MemTotal:       1000 kB\nMemFree: 1 kB\n",
        )
        .unwrap();
        assert_eq!(memory(&proc_root, &groups), Some(1_024_000));
        fs::write(proc_root.join("self/cgroup"), "0::/a/b\n").unwrap();
        fs::write(groups.join("a/b/memory.max"), "max\n").unwrap();
        fs::write(groups.join("a/memory.max"), "4096\n").unwrap();
        assert_eq!(memory(&proc_root, &groups), Some(4096));
        fs::create_dir_all(groups.join("memory/c")).unwrap();
        fs::write(groups.join("memory/c/memory.limit_in_bytes"), "2048\n").unwrap();
        fs::write(
            proc_root.join("self/cgroup"),
            "5:cpu,memory:/c\n1:name=systemd:/\n",
        )
        .unwrap();
        assert_eq!(memory(&proc_root, &groups), Some(2048));
        assert_eq!(memory(Path::new("/absent"), Path::new("/absent")), None);
        assert!(cpus() >= 1);
    }
}
