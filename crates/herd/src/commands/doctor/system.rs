//! Checks of the home, the disk, the clock, the kernel, cgroups, CPUs and GPUs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use herd_launch::accelerators;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;

use super::{Finding, Verdict};
use crate::backend_local;
use crate::file_system;
use crate::text;

/// Less free space than this is a warning, a tenth of it a failure.
const LITTLE_SPACE: u64 = 1 << 30;
/// Fewer free inodes than this is a warning.
const FEW_INODES: u64 = 10_000;
/// A clock further from the file system's than this is a warning.
const SKEW: Duration = Duration::from_secs(2);
/// Fewer descriptors than this limit large jobs.
const FEW_DESCRIPTORS: u64 = 4096;

/// Whether the home takes files, and what it lies on.
pub(super) fn home(path: &Path) -> Finding {
    let shown = path.display();
    let probe = probe_path(path);
    let written = fs::write(&probe, b"herd doctor\n");
    drop(fs::remove_file(&probe));
    if let Err(error) = written {
        return Finding::new(
            "home",
            Verdict::Fail,
            format!("cannot write to {shown}: {error}"),
        )
        .remedy("set HERD_HOME to a directory that you can write to");
    }
    match file_system::of(path) {
        Some(found) if found.network => {
            Finding::ok("home", format!("{shown} is writable, on {}", found.name))
                .remedy("a network file system is slower to show news; logs may follow late")
        }
        Some(found) => Finding::ok("home", format!("{shown} is writable, on {}", found.name)),
        None => Finding::ok("home", format!("{shown} is writable")),
    }
}

fn probe_path(home: &Path) -> PathBuf {
    home.join(format!(".doctor-{}", std::process::id()))
}

/// Free space and inodes.
pub(super) fn space(path: &Path) -> Vec<Finding> {
    let Ok(facts) = statvfs(path) else {
        return vec![Finding::new(
            "disk",
            Verdict::Warn,
            "its free space cannot be asked",
        )];
    };
    // The widths of these numbers differ between platforms; both are taken as they are.
    let (blocks, size): (u64, u64) = (facts.blocks_available(), facts.fragment_size());
    let free = blocks.saturating_mul(size);
    let verdict = if free < LITTLE_SPACE / 10 {
        Verdict::Fail
    } else if free < LITTLE_SPACE {
        Verdict::Warn
    } else {
        Verdict::Ok
    };
    let mut disk = Finding::new("disk", verdict, format!("{} free", text::size(free)));
    if verdict != Verdict::Ok {
        disk = disk.remedy("`herd gc --older-than 7d` removes old jobs; or move HERD_HOME");
    }
    let (all, left): (u64, u64) = (facts.files(), facts.files_available());
    let inodes = if all == 0 {
        // Some file systems make inodes as they are needed.
        Finding::ok("inodes", "no fixed number")
    } else if left < FEW_INODES {
        Finding::new("inodes", Verdict::Warn, format!("{left} free"))
            .remedy("each rank needs a few files: `herd gc` removes old jobs")
    } else {
        Finding::ok("inodes", format!("{left} free"))
    };
    vec![disk, inodes]
}

/// Whether this clock and that of the file system agree.
pub(super) fn clock(home: &Path) -> Finding {
    let probe = probe_path(home);
    let written = fs::write(&probe, b"").and_then(|()| fs::metadata(&probe)?.modified());
    let now = SystemTime::now();
    drop(fs::remove_file(&probe));
    let Ok(stamped) = written else {
        return Finding::new("clock", Verdict::Warn, "cannot be compared with the home's");
    };
    let skew = now
        .duration_since(stamped)
        .unwrap_or_else(|error| error.duration());
    let shown = text::moment(text::now_ms());
    if skew > SKEW {
        let detail = format!(
            "{shown}, {:.1} s from the file system's",
            skew.as_secs_f64()
        );
        Finding::new("clock", Verdict::Warn, detail).remedy("set the clocks with chrony or ntpd")
    } else {
        Finding::ok("clock", shown)
    }
}

/// The kernel's release: 5.3 has handles for processes, 4.18 is the oldest supported.
pub(super) fn kernel() -> Finding {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim().to_owned();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return Finding::new("kernel", Verdict::Warn, "its release cannot be read");
    };
    match (major, minor) {
        (..=3, _) | (4, ..=17) => Finding::new("kernel", Verdict::Fail, release)
            .remedy("the oldest supported kernel is 4.18"),
        (4, _) | (5, ..=2) => Finding::ok("kernel", format!("{release}, without process handles")),
        _ => Finding::ok("kernel", release),
    }
}

/// Files that a process may open.
pub(super) fn descriptors() -> Finding {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, hard)) if hard < FEW_DESCRIPTORS => Finding::new(
            "descriptors",
            Verdict::Warn,
            format!("at most {hard} open files"),
        )
        .remedy("raise `ulimit -Hn` for jobs of many ranks"),
        Ok((_, hard)) if hard > 1 << 40 => Finding::ok("descriptors", "no limit"),
        Ok((_, hard)) => Finding::ok("descriptors", format!("at most {hard} open files")),
        Err(error) => Finding::new("descriptors", Verdict::Warn, format!("cannot ask: {error}")),
    }
}

/// Whether memory can be limited.
pub(super) fn cgroup() -> Finding {
    match herd_launch::cgroup::Parent::find() {
        Some(parent) => Finding::ok(
            "cgroup",
            format!("{} is writable", parent.directory().display()),
        ),
        None => Finding::new(
            "cgroup",
            Verdict::Warn,
            "none is writable: memory is accounting only",
        )
        .remedy("`systemd-run --user --scope -p Delegate=yes herd …` gives a job one"),
    }
}

/// CPUs that jobs can have.
pub(super) fn cpus() -> Finding {
    match std::thread::available_parallelism() {
        Ok(number) => Finding::ok("cpus", format!("{number} (by affinity and quota)")),
        Err(error) => Finding::new("cpus", Verdict::Warn, format!("cannot count: {error}")),
    }
}

/// GPUs that jobs can have.
pub(super) fn gpus() -> Finding {
    let usable = backend_local::gpus().len();
    // An environment that names some may leave out others.
    let all = if accelerators::are_named() {
        usable
    } else {
        accelerators::device_files(Path::new("/dev")).len()
    };
    if usable >= all {
        let text = if usable == 0 {
            "none".to_owned()
        } else {
            usable.to_string()
        };
        return Finding::ok("gpus", text);
    }
    Finding::new(
        "gpus",
        Verdict::Warn,
        format!("{} of {all} cannot be opened", all - usable),
    )
    .remedy("ask for access to /dev/nvidia*, often by joining the group `video`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_directory_is_a_good_home() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(home(dir.path()).verdict, Verdict::Ok);
        assert_eq!(clock(dir.path()).verdict, Verdict::Ok);
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            0,
            "a probe was left behind"
        );
    }

    #[test]
    fn a_missing_directory_is_a_failure_with_a_remedy() {
        let finding = home(Path::new("/nonexistent/home"));
        assert_eq!(finding.verdict, Verdict::Fail);
        assert!(finding.remedy.is_some());
    }
}
