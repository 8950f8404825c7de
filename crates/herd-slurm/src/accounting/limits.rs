//! Limits and what is used of them just now: `scontrol show assoc_mgr`, which asks the controller
//! and not the database.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::gres::plain;
use crate::text::{given, value};

/// A limit, and what is used of it: `4(2)`, `N(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The limit; none for no limit.
    pub limit: Option<u64>,
    /// What is used.
    pub used: u64,
}

impl Counted {
    fn parse(text: &str) -> Option<Self> {
        let (limit, used) = text.strip_suffix(')')?.split_once('(')?;
        Some(Self {
            limit: plain(limit),
            used: plain(used)?,
        })
    }
}

/// One account, or one user in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssociationUse {
    /// Account.
    pub account: String,
    /// User; none in the account's own line.
    pub user: Option<String>,
    /// What its jobs have together.
    pub group: BTreeMap<String, Counted>,
    /// Minutes that its jobs have used.
    pub group_minutes: BTreeMap<String, Counted>,
    /// Minutes that its running jobs may still take.
    pub group_running_minutes: BTreeMap<String, Counted>,
    /// Jobs that run.
    pub jobs: Option<Counted>,
    /// Jobs, waiting ones included.
    pub submitted: Option<Counted>,
}

/// Asks for some accounts, or for all.
pub fn use_call(accounts: Option<&str>) -> Call {
    let accounts = accounts.map(|accounts| format!("accounts={accounts}"));
    let fixed = ["-o", "show", "assoc_mgr", "flags=assoc"].map(str::to_owned);
    Call::new("scontrol", fixed.into_iter().chain(accounts))
}

/// The associations of the output.
pub fn parse_use(output: &str) -> Vec<AssociationUse> {
    output.lines().filter_map(association).collect()
}

/// A limit of a line.
pub(super) fn counted(line: &str, key: &str) -> Option<Counted> {
    Counted::parse(value(line, key)?)
}

/// The limits on resources of a line: `cpu=4(2),mem=N(4000)`.
pub(super) fn table(line: &str, key: &str) -> BTreeMap<String, Counted> {
    value(line, key)
        .unwrap_or_default()
        .split(',')
        .filter_map(|entry| entry.split_once('='))
        .filter_map(|(name, text)| Some((name.to_owned(), Counted::parse(text)?)))
        .collect()
}

fn association(line: &str) -> Option<AssociationUse> {
    let get = |key: &str| value(line, key).and_then(given);
    // `root(0)`: the name, and the number it stands for.
    let name = |text: &str| text.split('(').next().unwrap_or(text).to_owned();
    Some(AssociationUse {
        account: get("Account")?.to_owned(),
        user: get("UserName").map(name),
        group: table(line, "GrpTRES"),
        group_minutes: table(line, "GrpTRESMins"),
        group_running_minutes: table(line, "GrpTRESRunMins"),
        jobs: counted(line, "GrpJobs"),
        submitted: counted(line, "GrpSubmitJobs"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_limit_and_its_use_are_told_apart_from_none() {
        let counted = |text| Counted::parse(text).map(|c| (c.limit, c.used));
        assert_eq!(counted("4(2)"), Some((Some(4), 2)));
        assert_eq!(counted("N(2)"), Some((None, 2)));
        assert_eq!(counted("N(0.02)"), Some((None, 0)));
        for text in ["", "4", "4(", "(", "4(x)"] {
            assert_eq!(counted(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[A-Za-z=,()0-9|/ \n.]{0,80}") {
            drop(parse_use(&text));
            drop(super::super::parse_qos_use(&text));
            drop(super::super::parse_shares(&text));
            drop(super::super::parse_qos(&text));
            drop(super::super::parse_associations(&text));
        }
    }
}
