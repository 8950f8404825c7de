//! The GPUs that a process may use: what its environment names, else the devices that open. The
//! environment and the place of devices are parameters; NVML is not asked.

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
pub fn of_this_process() -> Vec<String> {
    gpus(&|name| std::env::var(name).ok(), Path::new("/dev"))
}

/// Those that the environment of this process names; absent where it names none.
pub fn named_to_this_process() -> Option<Vec<String>> {
    let mut lists = VISIBLE.iter().filter_map(|name| std::env::var(name).ok());
    lists.next().map(|list| visible(&list))
}

/// GPUs that the environment allows, else those that can be opened.
pub fn gpus(variable: &dyn Fn(&str) -> Option<String>, dev: &Path) -> Vec<String> {
    match VISIBLE.iter().find_map(|name| variable(name)) {
        Some(list) => visible(&list),
        None => devices(dev),
    }
}

/// CUDA's reading of the list: it ends at the first entry that names no device, and a repeated
/// one invalidates it all.
fn visible(list: &str) -> Vec<String> {
    let named: Vec<String> = list
        .split(',')
        .map(str::trim)
        .take_while(|entry| names_device(entry))
        .map(str::to_owned)
        .collect();
    let distinct: BTreeSet<&String> = named.iter().collect();
    if distinct.len() == named.len() {
        named
    } else {
        Vec::new()
    }
}

fn names_device(entry: &str) -> bool {
    let index = !entry.is_empty() && entry.bytes().all(|b| b.is_ascii_digit());
    // AMD's runtime writes UUIDs as GPU-XX too.
    index || entry.starts_with("GPU-") || entry.starts_with("MIG-")
}

/// `nvidia<n>` that open: a container may show devices that it does not grant.
fn devices(dev: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dev) else {
        return Vec::new();
    };
    let mut numbers: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix("nvidia")?;
            let plain = number.bytes().all(|byte| byte.is_ascii_digit());
            let number = number.parse().ok().filter(|_| plain)?;
            File::open(entry.path()).ok().map(|_| number)
        })
        .collect();
    numbers.sort_unstable();
    numbers.iter().map(u32::to_string).collect()
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
            ("0,0", vec![]),
        ] {
            let found = gpus(&env(&[("CUDA_VISIBLE_DEVICES", value)]), dir.path());
            assert_eq!(found, want, "{value:?}");
        }
        assert_eq!(
            gpus(&env(&[("ROCR_VISIBLE_DEVICES", "4")]), dir.path()),
            ["4"]
        );
        let both = [("HIP_VISIBLE_DEVICES", "1"), ("CUDA_VISIBLE_DEVICES", "2")];
        assert_eq!(gpus(&env(&both), dir.path()), ["2"]);
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
        assert_eq!(gpus(&env(&[]), dir.path()), ["2", "10"]);
        assert!(gpus(&env(&[]), &dir.path().join("absent")).is_empty());
    }
}
