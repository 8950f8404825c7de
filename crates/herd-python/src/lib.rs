//! The native part of the Python package: starting a supervisor and talking with it, and the sets of
//! processors of NUMA binding. All else of the package is Python.
//!
//! It starts no thread, sets nothing process-wide and keeps nothing between calls.

#![expect(
    clippy::needless_pass_by_value,
    reason = "what comes from Python is converted into values of our own"
)]

use pyo3::prelude::*;

mod numa;
mod supervisor;

/// What `herdsman` needs of herd-launch.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::numa::{cpu_ranges, numa_cpus, visible_accelerators};
    #[pymodule_export]
    use crate::supervisor::Supervisor;
}

/// An error as Python's, with all of its causes.
fn explain(error: &(dyn std::error::Error + 'static)) -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err(herd_core::text::error_line(error))
}
