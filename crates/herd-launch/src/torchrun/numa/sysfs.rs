//! What a sysfs tree tells of nodes, cores and caches.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::devices::PciAddress;
use super::{NumaError, cpulist};

/// Longest file that is read; lists of processors are far shorter.
const SIZE_MAX: u64 = 64 * 1024;
/// Most levels of caches that are looked at.
const CACHES_MAX: usize = 16;

/// A sysfs tree, seen by a process that may use some processors only.
pub(super) struct Sysfs<'a> {
    root: &'a Path,
    allowed: &'a BTreeSet<usize>,
}

impl<'a> Sysfs<'a> {
    pub(super) fn new(root: &'a Path, allowed: &'a BTreeSet<usize>) -> Self {
        Self { root, allowed }
    }

    /// The NUMA node of a device; 0 where the machine does not say.
    pub(super) fn node_of(&self, device: PciAddress) -> Result<u32, NumaError> {
        let path = self
            .root
            .join(format!("bus/pci/devices/{device}/numa_node"));
        let node: i64 = number(&path)?;
        Ok(u32::try_from(node.max(0)).unwrap_or(0))
    }

    /// Processors of a node that this process may use.
    pub(super) fn cpus_of_node(&self, node: u32) -> Result<BTreeSet<usize>, NumaError> {
        let path = self
            .root
            .join(format!("devices/system/node/node{node}/cpulist"));
        Ok(&list(&path)? & self.allowed)
    }

    /// All nodes there may be, as far as they are there.
    pub(super) fn nodes(&self) -> Result<Vec<u32>, NumaError> {
        let possible = list(&self.root.join("devices/system/node/possible"))?;
        let nodes = possible
            .into_iter()
            .filter_map(|node| u32::try_from(node).ok());
        let is_there = |node: &u32| {
            let directory = format!("devices/system/node/node{node}");
            self.root.join(directory).is_dir()
        };
        Ok(nodes.filter(is_there).collect())
    }

    /// The socket of a processor.
    pub(super) fn package_of(&self, cpu: usize) -> Result<i64, NumaError> {
        number(&self.cpu(cpu).join("topology/physical_package_id"))
    }

    /// The lowest processor of its physical core: the core's name.
    pub(super) fn core_of(&self, cpu: usize) -> Result<usize, NumaError> {
        lowest(&self.cpu(cpu).join("topology/thread_siblings_list"))
    }

    /// The lowest processor that shares its last-level cache of data: the cache's name.
    pub(super) fn last_cache_of(&self, cpu: usize) -> Result<usize, NumaError> {
        let caches = self.cpu(cpu).join("cache");
        let mut last: Option<(u32, PathBuf)> = None;
        for index in 0..CACHES_MAX {
            let cache = caches.join(format!("index{index}"));
            if !cache.is_dir() {
                break;
            }
            let level: u32 = number(&cache.join("level"))?;
            let kind = read(&cache.join("type"))?;
            let holds_data = matches!(kind.trim(), "Data" | "Unified");
            if holds_data && last.as_ref().is_none_or(|(highest, _)| level > *highest) {
                last = Some((level, cache));
            }
        }
        let (_, cache) = last.ok_or_else(|| NumaError::Read {
            path: caches,
            source: io::Error::new(io::ErrorKind::NotFound, "no cache of data is described"),
        })?;
        lowest(&cache.join("shared_cpu_list"))
    }

    fn cpu(&self, cpu: usize) -> PathBuf {
        self.root.join(format!("devices/system/cpu/cpu{cpu}"))
    }
}

/// The content of a small file.
pub(super) fn read(path: &Path) -> Result<String, NumaError> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(SIZE_MAX).read_to_string(&mut text))
        .map_err(|source| NumaError::Read {
            path: path.to_owned(),
            source,
        })?;
    Ok(text)
}

fn malformed(path: &Path, content: &str) -> NumaError {
    NumaError::Malformed {
        path: path.to_owned(),
        content: content
            .trim()
            .chars()
            .take(60)
            .map(herd_core::text::visible)
            .collect(),
    }
}

fn number<T: std::str::FromStr>(path: &Path) -> Result<T, NumaError> {
    let text = read(path)?;
    text.trim().parse().map_err(|_error| malformed(path, &text))
}

fn list(path: &Path) -> Result<BTreeSet<usize>, NumaError> {
    let text = read(path)?;
    cpulist::parse(&text).ok_or_else(|| malformed(path, &text))
}

fn lowest(path: &Path) -> Result<usize, NumaError> {
    let text = read(path)?;
    cpulist::parse(&text)
        .and_then(|numbers| numbers.first().copied())
        .ok_or_else(|| malformed(path, &text))
}
