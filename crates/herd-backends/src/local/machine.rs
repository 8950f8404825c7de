//! What this machine has, GPUs, CPUs and memory, and its division among emulated nodes.
//!
//! Facts only: nothing is reserved here. The environment and the places of devices and kernel
//! files are parameters. NVML is not asked; what the environment or `/dev` shows is believed.

use std::fs;
use std::path::Path;

use herd_launch::accelerators;

/// What one emulated node gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// CPUs, at least 1: nodes may share one.
    pub cpus: u32,
    /// GPUs; none belongs to two nodes.
    pub gpus: Vec<String>,
}

/// Directories looked into above a process's own control group.
const DEEPEST_CGROUP: usize = 32;

/// What the caller may use of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// GPUs as `CUDA_VISIBLE_DEVICES` names them: an index, a UUID or a MIG instance.
    pub gpus: Vec<String>,
    /// CPUs: affinity and control group's quota, whichever is less; at least 1.
    pub cpus: u32,
    /// Memory in bytes: the machine's or the control group's, whichever is less.
    pub memory: Option<u64>,
}

impl Machine {
    /// Looks at this machine as the calling process sees it.
    pub fn of_this_process() -> Self {
        Self {
            gpus: accelerators::of_this_process(),
            cpus: cpus(),
            memory: memory(Path::new("/proc"), Path::new("/sys/fs/cgroup")),
        }
    }
}

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

/// Divides CPUs and GPUs among `nodes`, as evenly as whole ones allow, the first nodes getting
/// what is left over.
pub fn divide(cpus: u32, gpus: &[String], nodes: u32) -> Vec<Share> {
    let nodes = nodes.max(1);
    let gpu_count = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
    let mut rest = gpus.iter();
    (0..nodes)
        .map(|node| Share {
            cpus: part(cpus, nodes, node).max(1),
            gpus: rest
                .by_ref()
                .take(part(gpu_count, nodes, node) as usize)
                .cloned()
                .collect(),
        })
        .collect()
}

fn part(total: u32, nodes: u32, node: u32) -> u32 {
    total / nodes + u32::from(node < total % nodes)
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
    }

    #[test]
    fn division_gives_all_away_once_and_no_node_is_without_a_cpu() {
        let gpus: Vec<String> = (0..5).map(|n| n.to_string()).collect();
        let shares = divide(7, &gpus, 3);
        assert_eq!(shares.iter().map(|s| s.cpus).collect::<Vec<_>>(), [3, 2, 2]);
        let given: Vec<String> = shares.iter().flat_map(|s| s.gpus.clone()).collect();
        assert_eq!(given, gpus);
        assert_eq!(shares[2].gpus, ["4"]);
        assert!(
            divide(2, &[], 4)
                .iter()
                .all(|share| share.cpus == 1 && share.gpus.is_empty())
        );
        assert_eq!(divide(4, &gpus, 0).len(), 1);
    }

    #[test]
    fn this_machine_has_a_cpu_and_memory() {
        let machine = Machine::of_this_process();
        assert!(machine.cpus >= 1);
        assert!(machine.memory.is_some_and(|bytes| bytes > 1 << 20));
    }
}
