//! What each target claims of any input. Shared by the fuzzer and by a test of `herd-core`.

use std::collections::BTreeSet;

use herd_core::diagnostic::Diagnostics;
use herd_core::plan::{BackendFacts, Submission, plan};
use herd_core::spec::{Array, JobSpec};
use herd_core::units::{Bytes, Span};
use herd_core::{JobId, hostlist, jobfile, skypilot, validate};

/// A job file is read or refused with places; what was read obeys every rule and can be planned.
pub(crate) fn job_file(data: &[u8]) {
    match jobfile::parse(data, "job.yaml") {
        Ok(spec) => accepted(&spec),
        Err(diagnostics) => refused(&diagnostics),
    }
}

/// The same for SkyPilot tasks.
pub(crate) fn skypilot(data: &[u8]) {
    match skypilot::convert(data, "task.yaml", &BTreeSet::new()) {
        Ok(task) => {
            accepted(&task.spec);
            assert!(task.notes.iter().all(|note| note.position.line > 0));
        }
        Err(diagnostics) => refused(&diagnostics),
    }
}

/// A list that expands folds into one that expands to the same names.
pub(crate) fn hostlist(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(names) = hostlist::expand(text) {
        assert!(names.len() <= hostlist::MAX_NAMES);
        assert_eq!(
            hostlist::expand(&hostlist::fold(&names)).as_ref(),
            Ok(&names)
        );
    }
}

/// Amounts and arrays that are read can be written and read again.
pub(crate) fn duration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(span) = text.parse::<Span>() {
        assert_eq!(span.to_string().parse(), Ok(span));
    }
    if let Ok(bytes) = text.parse::<Bytes>() {
        assert_eq!(bytes.to_string().parse(), Ok(bytes));
    }
    if let Ok(array) = text.parse::<Array>() {
        assert_eq!(array.to_string().parse().as_ref(), Ok(&array));
    }
}

fn accepted(spec: &JobSpec) {
    let broken = validate::spec(spec);
    assert!(broken.is_empty(), "accepted against the rules: {broken:?}");
    let text = serde_json::to_string(spec).expect("a job can be written");
    let again: JobSpec = serde_json::from_str(&text).expect("what was written can be read");
    assert_eq!(&again, spec);
    let submission = Submission::first(JobId::generate(), "/work");
    match plan(spec, &BackendFacts::local(8, 2), submission) {
        Ok(plan) => {
            assert!(plan.workdir.starts_with('/'));
            assert_eq!(validate::name(&plan.name), Ok(()));
            assert!(plan.ranks_per_node >= 1 && plan.nodes >= 1);
        }
        Err(reasons) => assert!(!reasons.is_empty()),
    }
}

fn refused(diagnostics: &Diagnostics) {
    assert!(diagnostics.count() > 0);
    for fault in diagnostics.iter() {
        assert!(fault.position.line > 0 && fault.position.column > 0);
        assert!(!fault.refusal.message.is_empty());
    }
    let shown = diagnostics.to_string();
    assert!(
        shown.chars().all(|c| c == '\n' || !c.is_control()),
        "{shown:?}"
    );
}
