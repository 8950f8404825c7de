//! What `herd ls` needs of a job without reading its job file; `summary.json`.

use herd_core::spec::JobType;
use serde::{Deserialize, Serialize};

/// A job in a few words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// How its ranks start.
    #[serde(rename = "type")]
    pub job_type: JobType,
    /// Number of nodes.
    pub nodes: u32,
    /// Milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// Backend that runs it.
    pub backend: String,
    /// The command as a person would write it; empty where the job only sets up.
    #[serde(default)]
    pub command: String,
}
