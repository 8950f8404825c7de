//! The processors near workers' accelerators (`--numa-binding`), from a sysfs tree. Who starts a
//! worker binds it to them.
//!
//! The device of a worker is the one whose index is its local rank.

mod cpulist;
mod devices;
mod sets;
mod sysfs;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

pub use cpulist::ranges;
pub use devices::{InvalidPciAddress, PciAddress, accelerators, visible};

use super::flags::AffinityMode;
use sysfs::Sysfs;

/// Why a worker cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum NumaError {
    /// This machine has no accelerator.
    #[error(
        "NUMA binding needs an accelerator, and this node has none\nhint: leave out --numa-binding"
    )]
    NoAccelerator,
    /// There are fewer devices than workers.
    #[error(
        "local rank {local_rank} has no device of its own to be bound near: this node shows {devices}\nhint: start at most as many workers as there are devices, or leave out --numa-binding"
    )]
    NoDevice {
        /// The local rank.
        local_rank: u32,
        /// How many devices there are.
        devices: usize,
    },
    /// A list of visible devices that cannot be followed.
    #[error(
        "cannot tell which device `{entry}` of the visible devices is\nhint: name them by index, as in CUDA_VISIBLE_DEVICES=0,1, or leave out --numa-binding"
    )]
    UnknownDevice {
        /// The entry.
        entry: String,
    },
    /// A file of the sysfs tree cannot be read.
    #[error(
        "cannot read {}\nhint: NUMA binding needs the topology that Linux shows in /sys; leave out --numa-binding where it is hidden",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A file of the sysfs tree does not hold what it should.
    #[error("{} holds `{content}`, which is not what it should\nhint: leave out --numa-binding", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Its beginning.
        content: String,
    },
    /// Fewer cores than devices.
    #[error(
        "NUMA node {node} has {cores} usable cores for {devices} devices: not one for each\nhint: use --numa-binding=node, which shares them"
    )]
    TooFewCores {
        /// The node.
        node: u32,
        /// Its physical cores with a usable CPU.
        cores: usize,
        /// Devices on it.
        devices: usize,
    },
    /// No processor is left.
    #[error(
        "no usable CPU is near the device of local rank {local_rank} (NUMA node {node})\nhint: this process may not use the CPUs of that node: see `taskset -p $$`; or leave out --numa-binding"
    )]
    NoCpu {
        /// The local rank.
        local_rank: u32,
        /// The node.
        node: u32,
    },
}

/// Names another place than `/sys`. For tests of this project: no documentation offers it, since a
/// worker bound by another machine's topology is merely bound to the wrong processors.
const ROOT_VARIABLE: &str = "HERD_LAUNCH_TEST_SYSFS_ROOT";

/// Where the topology is read from.
pub fn sysfs_root() -> PathBuf {
    std::env::var_os(ROOT_VARIABLE).map_or_else(|| PathBuf::from("/sys"), PathBuf::from)
}

/// The processors of one worker, ascending. `root` is where sysfs is mounted, `devices` are the
/// accelerators that workers see, in their order, and `allowed` the processors that this process
/// may use. This reads the sysfs tree.
pub fn cpus(
    root: &Path,
    mode: AffinityMode,
    devices: &[PciAddress],
    local_rank: u32,
    allowed: &[usize],
) -> Result<Vec<usize>, NumaError> {
    let allowed: BTreeSet<usize> = allowed.iter().copied().collect();
    let sysfs = Sysfs::new(root, &allowed);
    if devices.is_empty() {
        return Err(NumaError::NoAccelerator);
    }
    let index = usize::try_from(local_rank).unwrap_or(usize::MAX);
    let device = devices.get(index).ok_or(NumaError::NoDevice {
        local_rank,
        devices: devices.len(),
    })?;
    let node = sysfs.node_of(*device)?;
    let cpus = match mode {
        AffinityMode::Node => sysfs.cpus_of_node(node)?,
        AffinityMode::Socket => sets::socket(&sysfs, node)?,
        AffinityMode::Exclusive | AffinityMode::CoreComplex => {
            let mut position = 0;
            let mut on_node = 0;
            for (other_index, other) in devices.iter().enumerate() {
                if sysfs.node_of(*other)? == node {
                    position += usize::from(other_index < index);
                    on_node += 1;
                }
            }
            if mode == AffinityMode::Exclusive {
                sets::exclusive(&sysfs, node, position, on_node)?
            } else {
                sets::core_complex(&sysfs, node, position)?
            }
        }
    };
    if cpus.is_empty() {
        return Err(NumaError::NoCpu { local_rank, node });
    }
    Ok(cpus.into_iter().collect())
}
