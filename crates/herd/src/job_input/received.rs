//! A job that another herd has read, and this one hands over: on a login node.

use std::collections::BTreeMap;

use herd_login::protocol::Job;

use super::JobInput;
use super::secrets::Secrets;
use crate::backends::Place;

impl JobInput {
    /// The job, for this place.
    pub(crate) fn received(
        job: Job,
        place: Place,
        secrets: BTreeMap<String, String>,
        yaml: Option<String>,
    ) -> Self {
        Self {
            spec: job.spec,
            secrets: Secrets::of(secrets),
            backend: job.backend,
            place,
            original: yaml.map(String::into_bytes),
            file_name: job.file_name,
            env: job.env,
            // It was copied to here for the job.
            workdir_given: true,
            notes: Vec::new(),
            warnings: Vec::new(),
        }
    }
}
