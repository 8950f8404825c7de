//! What a directory lies on, and whether the nodes of a cluster can see it there.

use std::path::Path;

use nix::sys::statfs::statfs;

/// File systems by the number that the kernel gives them; `true` marks network file systems.
const FILE_SYSTEMS: &[(i64, &str, bool)] = &[
    (0xEF53, "ext4", false),
    (0x5846_5342, "xfs", false),
    (0x9123_683E, "btrfs", false),
    (0x2FC1_2FC1, "zfs", false),
    (0x0102_1994, "tmpfs", false),
    (0x794C_7630, "overlay", false),
    (0xF2F5_2010, "f2fs", false),
    (0x6969, "nfs", true),
    (0xFF53_4D42, "cifs", true),
    (0xFE53_4D42, "smb2", true),
    (0x0BD0_0BD0, "lustre", true),
    (0x00C3_6400, "ceph", true),
    (0x4750_4653, "gpfs", true),
    (0x1983_0326, "beegfs", true),
    (0x6573_5546, "fuse", true),
    (0x0102_1997, "9p", true),
];

/// Directories that every machine has for itself.
const OF_ONE_MACHINE: &[&str] = &["/tmp", "/var/tmp", "/dev/shm", "/run"];
/// File systems in memory, or of one container.
const IN_MEMORY: &[&str] = &["tmpfs", "overlay"];

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileSystem {
    /// Its name.
    pub(crate) name: &'static str,
    /// Whether other machines can have it, too.
    pub(crate) network: bool,
}

/// The one that a path lies on; nothing for one that is not known.
pub(crate) fn of(path: &Path) -> Option<FileSystem> {
    let system = statfs(path).ok()?;
    #[expect(
        clippy::useless_conversion,
        reason = "the width of the number differs by platform"
    )]
    let number = i64::from(system.filesystem_type().0) & 0xFFFF_FFFF;
    let (_, name, network) = FILE_SYSTEMS.iter().find(|(known, ..)| *known == number)?;
    Some(FileSystem {
        name,
        network: *network,
    })
}

/// Why other machines hardly see the same files under this path; nothing where they may.
pub(crate) fn of_one_machine(path: &Path) -> Option<String> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let found = of(&real);
    if found.is_some_and(|found| found.network) {
        return None;
    }
    if let Some(top) = OF_ONE_MACHINE.iter().find(|top| real.starts_with(top)) {
        return Some(format!("{} is in {top}", path.display()));
    }
    let found = found.filter(|found| IN_MEMORY.contains(&found.name))?;
    Some(format!("{} lies on {}", path.display(), found.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_machine_has_for_itself_is_told() {
        let temporary = tempfile::tempdir_in("/tmp").unwrap();
        let why = of_one_machine(temporary.path()).unwrap();
        assert!(why.contains("/tmp"), "{why}");
        assert!(of_one_machine(Path::new("/dev/shm")).is_some());
        assert_eq!(of_one_machine(Path::new("/no/such/place")), None);
    }
}
