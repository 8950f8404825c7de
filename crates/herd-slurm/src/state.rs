//! The names Slurm has for what a job is doing, long and short.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a job is doing, by Slurm's own word for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(
    missing_docs,
    reason = "the words are Slurm's, explained in its manual and in `TABLE`"
)]
pub enum State {
    BootFail,
    Cancelled,
    Completed,
    Completing,
    Configuring,
    Deadline,
    Expediting,
    Failed,
    LaunchFailed,
    NodeFail,
    OutOfMemory,
    Pending,
    PowerUpNode,
    Preempted,
    ReconfigFail,
    Requeued,
    RequeueFed,
    RequeueHold,
    Resizing,
    ResvDelHold,
    Revoked,
    Running,
    Signaling,
    SpecialExit,
    StageOut,
    Stopped,
    Suspended,
    Timeout,
    UpdateDb,
    /// A word that this release does not know. It ends no job (I3).
    Unknown(String),
}

/// Every state with its long and its compact name; some have no compact one.
pub const TABLE: &[(State, &str, &str)] = &[
    (State::BootFail, "BOOT_FAIL", "BF"),
    (State::Cancelled, "CANCELLED", "CA"),
    (State::Completed, "COMPLETED", "CD"),
    (State::Completing, "COMPLETING", "CG"),
    (State::Configuring, "CONFIGURING", "CF"),
    (State::Deadline, "DEADLINE", "DL"),
    (State::Expediting, "EXPEDITING", ""),
    (State::Failed, "FAILED", "F"),
    (State::LaunchFailed, "LAUNCH_FAILED", ""),
    (State::NodeFail, "NODE_FAIL", "NF"),
    (State::OutOfMemory, "OUT_OF_MEMORY", "OOM"),
    (State::Pending, "PENDING", "PD"),
    (State::PowerUpNode, "POWER_UP_NODE", ""),
    (State::Preempted, "PREEMPTED", "PR"),
    (State::ReconfigFail, "RECONFIG_FAIL", ""),
    (State::Requeued, "REQUEUED", "RQ"),
    (State::RequeueFed, "REQUEUE_FED", "RF"),
    (State::RequeueHold, "REQUEUE_HOLD", "RH"),
    (State::Resizing, "RESIZING", "RS"),
    (State::ResvDelHold, "RESV_DEL_HOLD", "RD"),
    (State::Revoked, "REVOKED", "RV"),
    (State::Running, "RUNNING", "R"),
    (State::Signaling, "SIGNALING", "SI"),
    (State::SpecialExit, "SPECIAL_EXIT", "SE"),
    (State::StageOut, "STAGE_OUT", "SO"),
    (State::Stopped, "STOPPED", "ST"),
    (State::Suspended, "SUSPENDED", "S"),
    (State::Timeout, "TIMEOUT", "TO"),
    (State::UpdateDb, "UPDATE_DB", ""),
];

/// Bytes of an unknown word that are kept.
const MAX_WORD: usize = 64;

impl State {
    /// Reads one state: `RUNNING`, `R`, `CANCELLED by 1000`, `CANCELLED+` (cut by sacct), or a base
    /// with flags, `PENDING,REQUEUED`, of which the last says more.
    pub fn parse(text: &str) -> Self {
        let word = text.trim();
        let word = word.rsplit(',').next().unwrap_or(word);
        let cut = word.find([' ', '+']).unwrap_or(word.len());
        let word = &word[..cut];
        TABLE
            .iter()
            .find(|(_, long, short)| *long == word || (!short.is_empty() && *short == word))
            .map_or_else(
                || Self::Unknown(word.chars().take(MAX_WORD).collect()),
                |(state, ..)| state.clone(),
            )
    }

    /// Slurm's long name.
    pub fn name(&self) -> &str {
        if let Self::Unknown(word) = self {
            return word;
        }
        TABLE
            .iter()
            .find(|(state, ..)| state == self)
            .map_or("", |(_, long, _)| long)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_name_is_read_in_both_forms_and_none_twice() {
        for (state, long, short) in TABLE {
            assert_eq!(State::parse(long), *state);
            assert_eq!(state.name(), *long);
            if !short.is_empty() {
                assert_eq!(State::parse(short), *state, "{short}");
            }
        }
        let mut names: Vec<_> = TABLE.iter().flat_map(|(_, l, s)| [*l, *s]).collect();
        names.retain(|name| !name.is_empty());
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn decorations_are_left_out() {
        assert_eq!(State::parse("CANCELLED by 1000"), State::Cancelled);
        assert_eq!(State::parse("CANCELLED+"), State::Cancelled);
        assert_eq!(State::parse(" PENDING,REQUEUED "), State::Requeued);
    }

    proptest! {
        #[test]
        fn i3_an_unknown_word_is_kept_and_ends_nothing(word in "[A-Z_]{1,80}|.{0,30}") {
            if let State::Unknown(kept) = State::parse(&word) {
                prop_assert!(word.contains(&kept) && kept.chars().count() <= MAX_WORD);
            }
        }
    }
}
