//! What the only node of a job is given, for tests of what it makes of that.

use std::collections::BTreeMap;

use herd_core::JobId;
use herd_core::plan::{self, BackendFacts, Submission};
use herd_core::spec::JobSpec;
use herd_link::message::{Assign, RankStarters};

/// The assignment of such a job on a machine of so many processors.
pub(crate) fn assigned(spec: &JobSpec, cpus: u32) -> Assign {
    let submission = Submission::first(JobId::generate(), "/");
    Assign {
        plan: plan::plan(spec, &BackendFacts::local(cpus, 0), submission).unwrap(),
        node: 0,
        first_rank: 0,
        node_names: vec!["node0".to_owned()],
        node_addresses: vec!["127.0.0.1".to_owned()],
        secrets: BTreeMap::new(),
        gpus: None,
        cpus: None,
        attempt_dir: "/a".to_owned(),
        tasks_dir: String::new(),
        pass_stdin: false,
        coordinator: String::new(),
        key_file: String::new(),
        logs_at_hand: false,
        rank_starters: RankStarters::default(),
    }
}
