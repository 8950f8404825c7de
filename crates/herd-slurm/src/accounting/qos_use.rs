//! What is used of the limits of a QOS just now: `scontrol show assoc_mgr flags=qos`. Its line begins with what all its
//! jobs have together; then come, in braces, the accounts and the users that have jobs in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::limits::{Counted, counted, table};
use crate::call::Call;
use crate::text::value;

const ACCOUNTS: &str = "Account Limits=";
const USERS: &str = "User Limits=";

/// A quality of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QosUse {
    /// Its name.
    pub name: String,
    /// What its jobs have together.
    pub group: BTreeMap<String, Counted>,
    /// Minutes that its jobs have used.
    pub group_minutes: BTreeMap<String, Counted>,
    /// Minutes that its running jobs may still take.
    pub group_running_minutes: BTreeMap<String, Counted>,
    /// Its jobs that run.
    pub jobs: Option<Counted>,
    /// Its jobs, waiting ones included.
    pub submitted: Option<Counted>,
    /// The same for each account that has jobs in it.
    pub accounts: Vec<Holding>,
    /// The same for each such user.
    pub users: Vec<Holding>,
}

/// What one account or user has of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// An account; a user's name with the number in parentheses, or, before 23.02, the number alone.
    pub of: String,
    /// What the jobs have.
    pub amounts: BTreeMap<String, Counted>,
    /// Jobs that run.
    pub jobs: Option<Counted>,
    /// Jobs, waiting ones included.
    pub submitted: Option<Counted>,
}

impl Holding {
    /// Whether it is that of a user.
    pub fn is_of(&self, name: &str, number: u32) -> bool {
        let number = number.to_string();
        self.of == number || self.of == name || self.of == format!("{name}({number})")
    }
}

/// Asks for one.
pub fn qos_use_call(qos: &str) -> Call {
    let fixed = ["-o", "show", "assoc_mgr", "flags=qos"].map(str::to_owned);
    Call::new("scontrol", fixed.into_iter().chain([format!("qos={qos}")]))
}

/// The QOS of the output.
pub fn parse_qos_use(output: &str) -> Vec<QosUse> {
    let qos = |line: &str| {
        let (own, rest) = line.split_once(ACCOUNTS).unwrap_or((line, ""));
        let (accounts, users) = rest.split_once(USERS).unwrap_or((rest, ""));
        // `low(2)`: the name, and the number it stands for.
        let name = value(own, "QOS")?.split('(').next()?;
        Some(QosUse {
            name: name.to_owned(),
            group: table(own, "GrpTRES"),
            group_minutes: table(own, "GrpTRESMins"),
            group_running_minutes: table(own, "GrpTRESRunMins"),
            jobs: counted(own, "GrpJobs"),
            submitted: counted(own, "GrpSubmitJobs"),
            accounts: holdings(accounts, "PA"),
            users: holdings(users, "PU"),
        })
    };
    output.lines().filter_map(qos).collect()
}

/// ` lab={MaxJobsPA=N(1) …}`, one after the other.
fn holdings(text: &str, per: &str) -> Vec<Holding> {
    let holding = |block: &str| {
        let (before, inside) = block.split_once("={")?;
        Some(Holding {
            of: before.split_whitespace().last()?.to_owned(),
            amounts: table(inside, &format!("MaxTRES{per}")),
            jobs: counted(inside, &format!("MaxJobs{per}")),
            submitted: counted(inside, &format!("MaxSubmitJobs{per}")),
        })
    };
    text.split('}').filter_map(holding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_known_by_name_or_number_and_none_is_none() {
        let line = "QOS=low(2) GrpJobs=N(1) GrpTRES=cpu=4(2) Account Limits= lab={MaxJobsPA=2(1)} \
                    User Limits= 7={MaxJobsPU=1(1)} ann(8)={MaxJobsPU=N(0)}\n";
        let found = &parse_qos_use(line)[0];
        assert_eq!(found.accounts[0].jobs.map(|jobs| jobs.limit), Some(Some(2)));
        let of = |name, number| found.users.iter().find(|user| user.is_of(name, number));
        assert_eq!(of("bob", 7).and_then(|user| user.jobs?.limit), Some(1));
        assert!(of("ann", 8).is_some() && of("ann", 9).is_none());
        let none = "QOS=normal(1) Account Limits=No Accounts User Limits=No Users\n";
        let none = &parse_qos_use(none)[0];
        assert!(none.accounts.is_empty() && none.users.is_empty());
    }
}
