//! The complete environment of a process: what the job says over what the executor itself has.

use std::collections::BTreeMap;
use std::ffi::OsString;

use herd_link::message::Assign;

use crate::environment;

/// The complete environment of a process: what it inherits, then what the job says.
pub(crate) fn complete(
    assign: &Assign,
    own: BTreeMap<String, String>,
) -> Vec<(OsString, OsString)> {
    let mut all: BTreeMap<OsString, OsString> = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        let kept = assign.plan.inherit_env
            || name
                .to_str()
                .is_some_and(|n| matches!(n, "HOME" | "PATH" | "USER" | "LANG" | "TMPDIR"));
        if kept
            && !name
                .to_str()
                .is_some_and(|n| environment::SCRUBBED.contains(&n))
        {
            all.insert(name, value);
        }
    }
    for (name, value) in environment::defaults(assign) {
        all.entry(name.into()).or_insert_with(|| value.into());
    }
    all.extend(
        own.into_iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    all.into_iter().collect()
}
