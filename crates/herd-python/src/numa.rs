//! The processors near accelerators, as `herd launch --numa-binding` has them.

use std::path::PathBuf;

use herd_launch::torchrun::flags::AffinityMode;
use herd_launch::torchrun::numa;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::explain;

/// The accelerators that workers see, in their order, as PCI addresses; `list` are the indices of
/// such as `CUDA_VISIBLE_DEVICES`, where it is set.
#[pyfunction]
#[pyo3(signature = (root, list=None))]
pub(crate) fn visible_accelerators(root: PathBuf, list: Option<&str>) -> PyResult<Vec<String>> {
    let devices = numa::visible(&numa::accelerators(&root), list);
    let devices = devices.map_err(|error| explain(&error))?;
    Ok(devices.iter().map(ToString::to_string).collect())
}

/// The processors of the worker with a local rank, ascending.
#[pyfunction]
pub(crate) fn numa_cpus(
    root: PathBuf,
    mode: &str,
    devices: Vec<String>,
    local_rank: u32,
    allowed: Vec<usize>,
) -> PyResult<Vec<usize>> {
    let mode = AffinityMode::from_name(mode)
        .ok_or_else(|| PyValueError::new_err(format!("{mode:?} is no affinity mode")))?;
    let devices = devices
        .iter()
        .map(|device| device.parse())
        .collect::<Result<Vec<numa::PciAddress>, _>>()
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    numa::cpus(&root, mode, &devices, local_rank, &allowed).map_err(|error| explain(&error))
}

/// Processors as `numactl` takes them: `0-2,4`.
#[pyfunction]
pub(crate) fn cpu_ranges(cpus: Vec<usize>) -> String {
    numa::ranges(&cpus)
}
