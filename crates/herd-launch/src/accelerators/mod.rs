//! The GPUs that a process may use: what its environment names, else what NVIDIA's library says, else
//! the devices that open. The environment, the question to the library and the place of devices are
//! parameters.
//!
//! The library names devices by their UUIDs, an environment often by their indices, whose order is not
//! the library's: to leases, these are different devices.

pub mod nvml;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

/// Variables that say which GPUs a process may use, in the order in which they are heeded.
const VISIBLE: [&str; 3] = [
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
];

/// Those of this process, as `CUDA_VISIBLE_DEVICES` names them: an index, a UUID or a MIG instance.
/// `library` asks NVIDIA's library, which takes its time: it is called only where it counts.
pub fn of_this_process(library: &dyn Fn() -> Vec<String>) -> Vec<String> {
    let variable = |name: &str| std::env::var(name).ok();
    gpus(&variable, library, Path::new("/dev"))
}

/// Those that the environment of this process names; absent where it names none.
pub fn named_to_this_process() -> Option<Vec<String>> {
    let mut lists = VISIBLE.iter().filter_map(|name| std::env::var(name).ok());
    lists.next().map(|list| visible(&list))
}

/// GPUs that the environment allows, else those that the library knows, else those that can be opened.
pub fn gpus(
    variable: &dyn Fn(&str) -> Option<String>,
    library: &dyn Fn() -> Vec<String>,
    dev: &Path,
) -> Vec<String> {
    if let Some(list) = VISIBLE.iter().find_map(|name| variable(name)) {
        return visible(&list);
    }
    let known = library();
    if known.is_empty() {
        devices(dev)
    } else {
        known
    }
}

/// CUDA's reading of the list, which ends at the first entry that names no device. Where CUDA takes a
/// list that repeats one for no list at all, a device that is named twice is one here.
fn visible(list: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    list.split(',')
        .map_while(|entry| name_of(entry.trim()))
        .filter(|name| seen.insert(name.clone()))
        .collect()
}

/// The one name of a device; none of what names none.
fn name_of(entry: &str) -> Option<String> {
    if entry.bytes().all(|byte| byte.is_ascii_digit()) {
        // `00` is the device `0`.
        return entry.parse::<u32>().ok().map(|index| index.to_string());
    }
    // AMD's runtime writes UUIDs as GPU-XX too.
    let uuid = entry.starts_with("GPU-") || entry.starts_with("MIG-");
    uuid.then(|| entry.to_owned())
}

/// Whether this process's environment says which GPUs it may use.
pub fn are_named() -> bool {
    VISIBLE.iter().any(|name| std::env::var_os(name).is_some())
}

/// Those `nvidia<n>` that open: a container may show devices that it does not grant.
fn devices(dev: &Path) -> Vec<String> {
    device_files(dev)
        .into_iter()
        .filter(|number| File::open(dev.join(format!("nvidia{number}"))).is_ok())
        .map(|number| number.to_string())
        .collect()
}

/// Numbers of the devices `nvidia<n>` in a directory, whether or not they open.
pub fn device_files(dev: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(dev) else {
        return Vec::new();
    };
    let mut numbers: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix("nvidia")?;
            let plain = number.bytes().all(|byte| byte.is_ascii_digit());
            number.parse().ok().filter(|_| plain)
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn the_environment_comes_before_the_devices() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("nvidia0"), "").unwrap();
        for (value, want) in [
            ("2,0", vec!["2", "0"]),
            (" 1 , 3 ", vec!["1", "3"]),
            ("GPU-ab-1,MIG-cd/1/0", vec!["GPU-ab-1", "MIG-cd/1/0"]),
            ("", vec![]),
            ("-1", vec![]),
            ("0,-1,1", vec!["0"]),
            ("NoDevFiles", vec![]),
            ("0,0", vec!["0"]),
            ("00,1,0,01,GPU-a,GPU-a", vec!["0", "1", "GPU-a"]),
            ("99999999999", vec![]),
        ] {
            let found = gpus(
                &env(&[("CUDA_VISIBLE_DEVICES", value)]),
                &|| panic!("nobody asks the library"),
                dir.path(),
            );
            assert_eq!(found, want, "{value:?}");
        }
        assert_eq!(
            gpus(
                &env(&[("ROCR_VISIBLE_DEVICES", "4")]),
                &Vec::new,
                dir.path()
            ),
            ["4"]
        );
        let both = [("HIP_VISIBLE_DEVICES", "1"), ("CUDA_VISIBLE_DEVICES", "2")];
        assert_eq!(gpus(&env(&both), &Vec::new, dir.path()), ["2"]);
    }

    #[test]
    fn devices_count_where_they_open_and_by_number() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "nvidia10",
            "nvidia2",
            "nvidiactl",
            "nvidia-uvm",
            "nvidia",
            "null",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("absent", dir.path().join("nvidia3")).unwrap();
        assert_eq!(gpus(&env(&[]), &Vec::new, dir.path()), ["2", "10"]);
        assert!(gpus(&env(&[]), &Vec::new, &dir.path().join("absent")).is_empty());
        let library = || vec!["GPU-b".to_owned(), "GPU-a".to_owned()];
        assert_eq!(gpus(&env(&[]), &library, dir.path()), ["GPU-b", "GPU-a"]);
    }
}
