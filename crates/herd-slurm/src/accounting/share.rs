//! What accounts have used, and what share they are due: `sshare`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{amounts, columns};
use crate::call::Call;
use crate::text::{given, number};

const FIELDS: &str =
    "Account,User,RawShares,NormShares,EffectvUsage,FairShare,GrpTRESRaw,TRESRunMins";

/// One account, or one user in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Account.
    pub account: String,
    /// User; none in the account's own line.
    pub user: Option<String>,
    /// Shares that an administrator gave it, beside those of its siblings.
    pub shares: Option<u64>,
    /// Its share of its parent, 0 to 1; none under `priority/basic`.
    pub due: Option<f64>,
    /// Its part of all that was used, 0 to 1.
    pub usage: Option<f64>,
    /// 0 to 1: above 0.5 it used less than its share.
    pub fairness: Option<f64>,
    /// Minutes used, by resource (`gres/gpu`). They are worked out every `PriorityCalcPeriod` and
    /// decay unless `PriorityDecayHalfLife` is 0.
    pub used_minutes: BTreeMap<String, u64>,
    /// Minutes that running jobs may still take.
    pub running_minutes: BTreeMap<String, u64>,
}

/// Asks for some accounts, or for all.
pub fn shares_call(accounts: Option<&str>) -> Call {
    let accounts = accounts.map(|accounts| format!("--accounts={accounts}"));
    let fixed = ["-n", "-P", "-a", "-o", FIELDS].map(str::to_owned);
    Call::new("sshare", fixed.into_iter().chain(accounts))
}

/// The shares of the output, parents before children.
pub fn parse_shares(output: &str) -> Vec<Share> {
    output
        .lines()
        .filter_map(|line| {
            // Children are indented.
            let [account, user, shares, share, usage, fair, used, running] = columns(line)?;
            Some(Share {
                account: given(account)?.to_owned(),
                user: given(user).map(str::to_owned),
                shares: number(shares),
                due: number(share),
                usage: number(usage),
                fairness: number(fair),
                used_minutes: amounts(used),
                running_minutes: amounts(running),
            })
        })
        .collect()
}
