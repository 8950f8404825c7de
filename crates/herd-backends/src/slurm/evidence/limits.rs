//! Limits that hold for a job, what is used of them, and what the job asks for besides.

use std::collections::BTreeMap;

use herd_slurm::accounting::{AssociationUse, Counted, Qos, QosUse};
use herd_slurm::charge::Charge;
use serde::Serialize;

/// A limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitUse {
    /// Whose: `account lab`, `user ann in account lab`, `QOS high`.
    pub of: String,
    /// Of what: `gres/gpu`, `cpu`, `running jobs`.
    pub what: String,
    /// The limit.
    pub limit: u64,
    /// What is used of it, where Slurm tells.
    pub used: Option<u64>,
    /// What the job asks for, where it is counted in the same way.
    pub asked: Option<u64>,
}

impl LimitUse {
    /// Whether the job alone asks for more: then waiting never helps.
    pub fn is_beyond(&self) -> bool {
        self.asked.is_some_and(|asked| asked > self.limit)
    }

    /// Whether the job would exceed it now.
    pub fn stands_against(&self) -> bool {
        let wanted = self.used.unwrap_or(0).checked_add(self.asked.unwrap_or(0));
        self.asked.is_some() && wanted.is_none_or(|wanted| wanted > self.limit)
    }
}

/// What a job asks for, by Slurm's names of resources.
pub(super) type Asked = BTreeMap<String, u64>;

/// Gathers the limits of one holder.
struct Limits<'a> {
    of: String,
    asked: &'a Asked,
    found: Vec<LimitUse>,
}

impl<'a> Limits<'a> {
    fn of(of: String, asked: &'a Asked) -> Self {
        Self {
            of,
            asked,
            found: Vec::new(),
        }
    }

    fn say(&mut self, what: String, limit: Option<u64>, used: Option<u64>, asked: Option<u64>) {
        self.found.extend(limit.map(|limit| LimitUse {
            of: self.of.clone(),
            what,
            limit,
            used,
            asked,
        }));
    }

    /// Amounts of which a job takes its part while it runs.
    fn amounts(&mut self, table: &BTreeMap<String, Counted>) {
        for (what, counted) in table {
            // Of what the job does not name it asks for nothing.
            let asked = self.asked.get(what).copied().unwrap_or(0);
            self.say(what.clone(), counted.limit, Some(counted.used), Some(asked));
        }
    }

    fn minutes(&mut self, table: &BTreeMap<String, Counted>, words: &str) {
        for (what, counted) in table {
            self.say(
                format!("{what} {words}"),
                counted.limit,
                Some(counted.used),
                None,
            );
        }
    }

    fn jobs(&mut self, running: Option<&Counted>, submitted: Option<&Counted>) {
        if let Some(jobs) = running {
            let what = "running jobs".to_owned();
            self.say(what, jobs.limit, Some(jobs.used), Some(1));
        }
        // The job is among them already.
        if let Some(jobs) = submitted {
            let what = "jobs, waiting ones included".to_owned();
            self.say(what, jobs.limit, Some(jobs.used), None);
        }
    }
}

const MINUTES: &str = "minutes";
const PROMISED: &str = "minutes that running jobs may take";

/// Limits of a job's account and of its user in it.
pub(super) fn of_account(all: &[AssociationUse], charge: &Charge, asked: &Asked) -> Vec<LimitUse> {
    let mut limits = Vec::new();
    for found in all {
        let ours = match &found.user {
            None => true,
            Some(user) => Some(user) == charge.user.as_ref(),
        };
        if !ours || Some(&found.account) != charge.account.as_ref() {
            continue;
        }
        let of = match &found.user {
            None => format!("account {}", found.account),
            Some(user) => format!("user {user} in account {}", found.account),
        };
        let mut own = Limits::of(of, asked);
        own.amounts(&found.group);
        own.minutes(&found.group_minutes, MINUTES);
        own.minutes(&found.group_running_minutes, PROMISED);
        own.jobs(found.jobs.as_ref(), found.submitted.as_ref());
        limits.extend(own.found);
    }
    limits
}

/// Limits of a QOS: of all its jobs, of the job's account and of its user.
pub(super) fn of_qos(found: &QosUse, charge: &Charge, asked: &Asked) -> Vec<LimitUse> {
    let mut all = Limits::of(format!("QOS {}", found.name), asked);
    all.amounts(&found.group);
    all.minutes(&found.group_minutes, MINUTES);
    all.minutes(&found.group_running_minutes, PROMISED);
    all.jobs(found.jobs.as_ref(), found.submitted.as_ref());
    let mut limits = all.found;
    let account = charge.account.as_deref().unwrap_or_default();
    let accounts = found.accounts.iter().filter(|of| of.of == account);
    let accounts = accounts.map(|of| (format!("account {account}"), of));
    let user = charge.user.as_deref().unwrap_or_default();
    let number = charge.user_number.unwrap_or(u32::MAX);
    let users = found.users.iter().filter(|of| of.is_of(user, number));
    let users = users.map(|of| (format!("user {user}"), of));
    for (who, holding) in accounts.chain(users) {
        let mut own = Limits::of(format!("QOS {}, {who}", found.name), asked);
        own.amounts(&holding.amounts);
        own.jobs(holding.jobs.as_ref(), holding.submitted.as_ref());
        limits.extend(own.found);
    }
    limits
}

/// What a QOS allows one job.
pub(super) fn of_one_job(qos: &Qos, asked: &Asked) -> Vec<LimitUse> {
    let mut own = Limits::of(format!("QOS {}, one job", qos.name), asked);
    for (what, limit) in &qos.max_per_job {
        let asked = asked.get(what).copied().unwrap_or(0);
        own.say(what.clone(), Some(*limit), None, Some(asked));
    }
    own.found
}

#[cfg(test)]
mod tests {
    use herd_slurm::accounting;

    use super::super::charge;
    use super::*;

    fn asked() -> Asked {
        BTreeMap::from([("cpu".to_owned(), 2), ("gres/gpu".to_owned(), 1)])
    }

    fn said(limits: &[LimitUse]) -> Vec<(&str, &str, u64, Option<u64>, bool)> {
        let said = |l: &'_ LimitUse| (l.limit, l.used, l.stands_against());
        limits
            .iter()
            .map(|l| {
                let (limit, used, against) = said(l);
                (l.of.as_str(), l.what.as_str(), limit, used, against)
            })
            .collect()
    }

    #[test]
    fn limits_are_those_of_the_jobs_own_account_and_user() {
        let text = "Account=lab UserName= GrpJobs=N(3) GrpTRES=cpu=N(4),gres/gpu=4(4)\n\
                    Account=lab UserName=ann(7) GrpJobs=2(1) GrpTRES=cpu=N(4)\n\
                    Account=lab UserName=bob(8) GrpJobs=1(1)\nAccount=x UserName= GrpJobs=1(1)\n";
        let limits = of_account(&accounting::parse_use(text), &charge(), &asked());
        assert_eq!(
            said(&limits),
            [
                ("account lab", "gres/gpu", 4, Some(4), true),
                ("user ann in account lab", "running jobs", 2, Some(1), false),
            ]
        );
    }

    #[test]
    fn a_qos_has_limits_for_all_for_the_account_and_for_the_user() {
        let text = "QOS=low(2) GrpJobs=9(3) GrpTRES=cpu=4(3) Account Limits= lab={MaxTRESPA=cpu=8(1)} \
                    x={MaxJobsPA=1(1)} User Limits= 7={MaxJobsPU=1(1) MaxSubmitJobsPU=5(2)}\n";
        let found = &accounting::parse_qos_use(text)[0];
        let limits = of_qos(found, &charge(), &asked());
        assert_eq!(
            said(&limits),
            [
                ("QOS low", "cpu", 4, Some(3), true),
                ("QOS low", "running jobs", 9, Some(3), false),
                ("QOS low, account lab", "cpu", 8, Some(1), false),
                ("QOS low, user ann", "running jobs", 1, Some(1), true),
                (
                    "QOS low, user ann",
                    "jobs, waiting ones included",
                    5,
                    Some(2),
                    false
                ),
            ]
        );
    }
}
