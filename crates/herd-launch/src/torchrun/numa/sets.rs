//! The processors that each mode chooses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::NumaError;
use super::sysfs::Sysfs;

/// All nodes in the socket of this one. A node without a usable processor belongs to none.
pub(super) fn socket(sysfs: &Sysfs<'_>, node: u32) -> Result<BTreeSet<usize>, NumaError> {
    let own = sysfs.cpus_of_node(node)?;
    let Some(lowest) = own.first() else {
        return Ok(own);
    };
    let package = sysfs.package_of(*lowest)?;
    let mut union = BTreeSet::new();
    for other in sysfs.nodes()? {
        let cpus = sysfs.cpus_of_node(other)?;
        if let Some(lowest) = cpus.first()
            && sysfs.package_of(*lowest)? == package
        {
            union.extend(cpus);
        }
    }
    Ok(union)
}

/// A share of the node's cores: the device is the `position`-th of `devices` on it; the first ones
/// get one core more where the cores do not divide evenly.
pub(super) fn exclusive(
    sysfs: &Sysfs<'_>,
    node: u32,
    position: usize,
    devices: usize,
) -> Result<BTreeSet<usize>, NumaError> {
    let cpus = sysfs.cpus_of_node(node)?;
    if cpus.is_empty() {
        return Ok(cpus);
    }
    let cores = grouped(cpus, |cpu| sysfs.core_of(cpu))?;
    let (each, more) = (cores.len() / devices.max(1), cores.len() % devices.max(1));
    if each == 0 {
        return Err(NumaError::TooFewCores {
            node,
            cores: cores.len(),
            devices,
        });
    }
    let first = position * each + position.min(more);
    let length = each + usize::from(position < more);
    let mine = cores.into_values().skip(first).take(length);
    Ok(mine.flatten().collect())
}

/// The processors behind one last-level cache: the largest for the first device.
pub(super) fn core_complex(
    sysfs: &Sysfs<'_>,
    node: u32,
    position: usize,
) -> Result<BTreeSet<usize>, NumaError> {
    let groups = grouped(sysfs.cpus_of_node(node)?, |cpu| sysfs.last_cache_of(cpu))?;
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(key, cpus)| (Reverse(cpus.len()), *key));
    let chosen = position.checked_rem(groups.len());
    let chosen = chosen.and_then(|index| groups.into_iter().nth(index));
    Ok(chosen.map(|(_, cpus)| cpus).unwrap_or_default())
}

fn grouped(
    cpus: BTreeSet<usize>,
    key: impl Fn(usize) -> Result<usize, NumaError>,
) -> Result<BTreeMap<usize, BTreeSet<usize>>, NumaError> {
    let mut groups: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for cpu in cpus {
        groups.entry(key(cpu)?).or_default().insert(cpu);
    }
    Ok(groups)
}
