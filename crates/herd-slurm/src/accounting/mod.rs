//! Accounts, shares and limits: `sshare`, `sacctmgr show`, `scontrol show assoc_mgr`.

mod limits;
mod managed;
mod qos_use;
mod share;

pub use limits::{AssociationUse, Counted, parse_use, use_call};
pub use managed::{Association, Qos, associations_call, parse_associations, parse_qos, qos_call};
pub use qos_use::{Holding, QosUse, parse_qos_use, qos_use_call};
pub use share::{Share, parse_shares, shares_call};

/// Between the columns of `-P`; names of accounts, users and QOS cannot hold it.
const COLUMN: char = '|';

/// Exactly so many columns.
fn columns<const N: usize>(line: &str) -> Option<[&str; N]> {
    let mut found = [""; N];
    let mut parts = line.split(COLUMN);
    for column in &mut found {
        *column = parts.next()?;
    }
    Some(found)
}

/// `cpu=4,gres/gpu=8`.
pub(crate) fn amounts(text: &str) -> std::collections::BTreeMap<String, u64> {
    text.split(',')
        .filter_map(|entry| entry.split_once('='))
        .filter_map(|(name, value)| Some((name.to_owned(), crate::gres::plain(value)?)))
        .collect()
}
