//! Control groups: a memory limit for all processes of a node, and what the kernel has killed for it.
//!
//! Version 1 lets a process divide its own group. Version 2 does not divide a group that holds
//! processes, so there a group is made beside the process's own, which is permitted where the group
//! above is writable and hands the memory controller on (a delegated slice). Kernel documentation:
//! admin-guide/cgroup-v1/memory.rst, admin-guide/cgroup-v2.rst.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Access;

use crate::Pid;

/// Begins the names of all groups that herd makes.
const PREFIX: &str = "herd-";
/// The groups of this process.
const OWN: &str = "/proc/self/cgroup";
/// Where hierarchies of groups are mounted.
const MOUNTS: &str = "/proc/self/mountinfo";
/// An empty group older than this is somebody's who was killed before removing it.
const STALE: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A group in which this process may make others with a memory limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    directory: PathBuf,
    version: Version,
}

/// A group of herd's; removed when dropped, if no process is left in it.
#[derive(Debug)]
pub struct Cgroup {
    directory: PathBuf,
    version: Version,
}

impl Parent {
    /// Where this process may make groups, if anywhere.
    pub fn find() -> Option<Self> {
        Self::find_in(Path::new(OWN), Path::new(MOUNTS))
    }

    fn find_in(own: &Path, mounts: &Path) -> Option<Self> {
        let found = match memory_group(own, mounts)? {
            (directory, Version::One, _) => Self {
                directory,
                version: Version::One,
            },
            (directory, Version::Two, top) => {
                let above = directory.parent().filter(|above| above.starts_with(top))?;
                let handed_on = fs::read_to_string(above.join("cgroup.subtree_control")).ok()?;
                handed_on
                    .split_whitespace()
                    .find(|&name| name == "memory")?;
                Self {
                    directory: above.to_owned(),
                    version: Version::Two,
                }
            }
        };
        let writable = |path: &Path| rustix::fs::access(path, Access::WRITE_OK).is_ok();
        let usable = writable(&found.directory) && writable(&found.directory.join("cgroup.procs"));
        usable.then_some(found)
    }

    /// The directory in which groups are made.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes a group whose processes may use so many bytes of memory together.
    pub fn create(&self, name: &str, memory: u64) -> io::Result<Cgroup> {
        self.remove_stale();
        let directory = self.directory.join(format!("{PREFIX}{name}"));
        fs::create_dir(&directory)?;
        let group = Cgroup {
            directory,
            version: self.version,
        };
        let limit = memory.to_string();
        match self.version {
            Version::One => fs::write(group.directory.join("memory.limit_in_bytes"), limit)?,
            Version::Two => {
                fs::write(group.directory.join("memory.max"), limit)?;
                // Killing one process of a rank leaves the others waiting for it.
                drop(fs::write(group.directory.join("memory.oom.group"), "0"));
            }
        }
        Ok(group)
    }

    /// Groups of those who were killed; one that holds processes is not removed by the kernel.
    fn remove_stale(&self) {
        for entry in fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
            let age = entry.metadata().and_then(|data| data.modified()).ok();
            let old = age
                .and_then(|made| made.elapsed().ok())
                .is_some_and(|age| age > STALE);
            if ours && old {
                drop(fs::remove_dir(entry.path()));
            }
        }
    }
}

impl Cgroup {
    /// Moves a process, with all its threads, into the group; what it starts is in it, too.
    pub fn add(&self, pid: Pid) -> io::Result<()> {
        let pid = pid.as_raw_nonzero().to_string();
        fs::write(self.directory.join("cgroup.procs"), pid)
    }

    /// Kills all that is in the group, as far as the kernel does it at once (version 2, 5.14).
    pub fn kill(&self) {
        if self.version == Version::Two {
            drop(fs::write(self.directory.join("cgroup.kill"), "1"));
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // With processes left in it the kernel keeps it; it is removed as stale later.
        drop(fs::remove_dir(&self.directory));
    }
}

/// How many processes of this process's group the kernel has killed for want of memory; `None` where
/// it does not say.
pub fn out_of_memory_kills() -> Option<u64> {
    kills_in(Path::new(OWN), Path::new(MOUNTS))
}

/// Tells failures for want of memory from others, by what the kernel has killed since the last look.
#[derive(Clone, Copy, Debug)]
pub struct MemoryWatch {
    kills: Option<u64>,
}

impl MemoryWatch {
    /// Begins to look.
    pub fn start() -> Self {
        Self {
            kills: out_of_memory_kills(),
        }
    }

    /// Whether the kernel has killed a process of the group of which no call has told yet: each kill is
    /// told once, for groups in which several may be killed between two looks.
    pub fn has_killed_one(&mut self) -> bool {
        let more = out_of_memory_kills() > self.kills;
        if more {
            self.kills = self.kills.map(|kills| kills.saturating_add(1));
        }
        more
    }

    /// Whether the kernel has killed a process of the group since the last call that said so.
    pub fn has_killed(&mut self) -> bool {
        let now = out_of_memory_kills();
        let more = now > self.kills;
        if more {
            self.kills = now;
        }
        more
    }
}

fn kills_in(own: &Path, mounts: &Path) -> Option<u64> {
    let (directory, version, _) = memory_group(own, mounts)?;
    let file = match version {
        Version::One => "memory.oom_control",
        Version::Two => "memory.events",
    };
    let text = fs::read_to_string(directory.join(file)).ok()?;
    let mut counts = text
        .lines()
        .filter_map(|line| line.strip_prefix("oom_kill "));
    counts.next()?.trim().parse().ok()
}

/// The group that counts this process's memory, and the top of its hierarchy as it is seen here.
fn memory_group(own: &Path, mounts: &Path) -> Option<(PathBuf, Version, PathBuf)> {
    let own = fs::read_to_string(own).ok()?;
    let mounts = fs::read_to_string(mounts).ok()?;
    // `4:memory:/user`: only version 1 names its controllers.
    let first = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let memory = controllers.split(',').any(|name| name == "memory");
        memory.then_some(path)
    });
    if let Some(path) = first {
        let (directory, top) = seen(path, Version::One, &mounts)?;
        return Some((directory, Version::One, top));
    }
    let second = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (directory, top) = seen(second, Version::Two, &mounts)?;
    Some((directory, Version::Two, top))
}

/// Where a group is seen, from the text of `/proc/self/mountinfo`. A mount may show a part of the hierarchy
/// only (a container's); the one that shows the least and has the group is the nearest.
fn seen(group: &str, version: Version, mounts: &str) -> Option<(PathBuf, PathBuf)> {
    let shown = mounts.lines().filter_map(|line| {
        let (place, system) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, top) = (place.next()?, place.next()?);
        let mut system = system.split(' ');
        let kind = system.next()?;
        let wanted = match version {
            Version::One => kind == "cgroup" && system.nth(1)?.split(',').any(|o| o == "memory"),
            Version::Two => kind == "cgroup2",
        };
        let below = Path::new(group).strip_prefix(root).ok()?;
        let directory = Path::new(top).join(below);
        (wanted && directory.is_dir()).then(|| (root.len(), directory, PathBuf::from(top)))
    });
    let (_, directory, top) = shown.max_by_key(|(length, ..)| *length)?;
    Some((directory, top))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        /// `mounts` are the lines of mounts, in which `ROOT` is the tree's directory.
        fn new(own: &str, mounts: &str, files: &[(&str, &str)]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            fs::write(tree.own(), own).unwrap();
            let root = tree.root().display().to_string();
            fs::write(tree.mounts(), mounts.replace("ROOT", &root)).unwrap();
            for (path, text) in files {
                let path = tree.root().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            tree
        }

        fn own(&self) -> PathBuf {
            self.0.path().join("own")
        }

        fn mounts(&self) -> PathBuf {
            self.0.path().join("mounts")
        }

        fn root(&self) -> PathBuf {
            self.0.path().join("root")
        }

        fn parent(&self) -> Option<PathBuf> {
            Parent::find_in(&self.own(), &self.mounts()).map(|found| found.directory)
        }

        fn kills(&self) -> Option<u64> {
            kills_in(&self.own(), &self.mounts())
        }
    }

    const FIRST: &str = "30 24 0:28 / ROOT/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                         31 24 0:27 / ROOT/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n\
                         32 24 0:29 / ROOT/unified rw - cgroup2 cgroup2 rw\n";
    const SECOND: &str = "30 24 0:26 / ROOT rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn version_1_divides_the_own_group() {
        let tree = Tree::new(
            "5:devices:/\n4:memory:/a/b\n0::/\n",
            FIRST,
            &[
                ("memory/a/b/cgroup.procs", ""),
                (
                    "memory/a/b/memory.oom_control",
                    "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
                ),
            ],
        );
        assert_eq!(tree.parent(), Some(tree.root().join("memory/a/b")));
        assert_eq!(tree.kills(), Some(3));
    }

    #[test]
    fn version_2_makes_groups_beside_the_own_where_that_was_delegated() {
        let files = [
            ("user/app/cgroup.procs", ""),
            ("user/app/cgroup.subtree_control", "cpu memory pids\n"),
            ("user/app/shell/memory.events", "low 0\noom 2\noom_kill 1\n"),
        ];
        let tree = Tree::new("0::/user/app/shell\n", SECOND, &files);
        assert_eq!(tree.parent(), Some(tree.root().join("user/app")));
        assert_eq!(tree.kills(), Some(1));
        let not_handed_on = Tree::new("0::/user/app/shell\n", SECOND, &files[..1]);
        assert_eq!(not_handed_on.parent(), None);
        let at_the_top = Tree::new("0::/\n", SECOND, &[("cgroup.subtree_control", "memory\n")]);
        assert_eq!(at_the_top.parent(), None);
    }

    #[test]
    fn a_mount_that_shows_a_part_of_the_hierarchy_has_the_group() {
        let kills = |count: &str| format!("oom_kill_disable 0\noom_kill {count}\n");
        let mounts =
            format!("{FIRST}40 31 0:27 /s/lab ROOT/memory/s rw - cgroup cgroup rw,memory\n");
        let tree = Tree::new(
            "4:memory:/s/lab/job\n",
            &mounts,
            &[("memory/s/job/memory.oom_control", &kills("2"))],
        );
        assert_eq!(tree.kills(), Some(2));
        // Another part is none.
        let other = mounts.replace("/s/lab ", "/s/other ");
        let files = [("memory/s/job/memory.oom_control", &*kills("2"))];
        assert_eq!(
            Tree::new("4:memory:/s/lab/job\n", &other, &files).kills(),
            None
        );
    }
}
