//! Keys whose values are not known because the file or a flag has them wrong.
//!
//! What hangs on such a key is not judged: it would be held against a value that nobody gave. All
//! else is, so that a file's faults come in one report.

use std::collections::BTreeSet;

use super::reader::join;
use crate::diagnostic::Diagnostic;
use crate::validate;

/// Keys that are known to be wrong, and keys that something above the file has set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    wrong: BTreeSet<String>,
    set: BTreeSet<String>,
}

impl Unread {
    /// A file of which nothing could be read.
    pub fn everything() -> Self {
        let mut all = Self::default();
        all.wrong(String::new());
        all
    }

    /// The keys that these faults are about. A slip in a key's name leaves the key itself unread.
    pub(crate) fn of(faults: &[Diagnostic], job_key: impl Fn(&str) -> String) -> Self {
        let mut unread = Self::default();
        for fault in faults {
            unread.wrong(job_key(&fault.path));
            let hint = fault.refusal.hint.as_deref();
            let meant = hint
                .and_then(|hint| hint.strip_prefix("did you mean `"))
                .and_then(|rest| rest.strip_suffix("`?"));
            if let Some(meant) = meant {
                let section = fault
                    .path
                    .rsplit_once('.')
                    .map_or("", |(section, _)| section);
                unread.wrong(job_key(&join(section, meant)));
            }
        }
        unread
    }

    /// Notes a key whose value is wrong.
    pub fn wrong(&mut self, key: impl Into<String>) {
        let key = key.into();
        self.set.remove(&key);
        self.wrong.insert(key);
    }

    /// Notes a key that a flag has set, whatever the file says.
    pub fn set(&mut self, key: impl Into<String>) {
        self.set.insert(key.into());
    }

    /// Whether the value of a key is what somebody wrote, or is absent because nobody did.
    pub fn knows(&self, key: &str) -> bool {
        let within = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            outer.is_empty()
                || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.set.contains(key)
            || !self
                .wrong
                .iter()
                .any(|wrong| within(key, wrong) || within(wrong, key))
    }

    /// Whether a fault of a key can be told: its value is known, and so is what it hangs on.
    pub fn can_judge(&self, key: &str) -> bool {
        self.knows(key) && validate::parties(key).iter().all(|party| self.knows(party))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_on_a_wrong_key_is_not_judged_and_all_else_is() {
        let mut unread = Unread::default();
        unread.wrong("resources.cpus");
        unread.wrong("nodes");
        assert!(!unread.knows("resources") && !unread.knows("resources.cpus"));
        assert!(unread.knows("resources.gpus") && unread.knows("resources.cpu"));
        assert!(!unread.can_judge("resources.gpus"));
        assert!(unread.can_judge("image"));
        unread.set("nodes");
        assert!(unread.can_judge("resources.gpus"));
        let mut nothing = Unread::everything();
        assert!(!nothing.knows("image"));
        nothing.set("nodes");
        nothing.set("resources.gpus");
        assert!(nothing.can_judge("resources.gpus") && !nothing.can_judge("resources.cpus"));
    }
}
