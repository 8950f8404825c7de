//! What a job's account and user have had of the cluster beside what they are due, which decides who goes first.

use herd_slurm::accounting::Share;
use herd_slurm::charge::Charge;
use serde::Serialize;

/// Fair share of an account, or of a user in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FairShare {
    /// Whose: `account lab`, `user ann in account lab`.
    pub of: String,
    /// Shares that an administrator gave it.
    pub shares: Option<u64>,
    /// What it is due beside its siblings, 0 to 1.
    pub due: f64,
    /// Its part of what they used, 0 to 1; older use counts less.
    pub used: f64,
    /// What it is due by what it used: below 1 it had more than its share. None where it used nothing.
    pub level: Option<f64>,
    /// What Slurm makes of it in a job's priority, 0 to 1; users alone have one.
    pub factor: Option<f64>,
}

/// Those of the job's account and user; none where the cluster keeps no shares.
pub(super) fn of_job(all: &[Share], charge: &Charge) -> Vec<FairShare> {
    let ours = all.iter().filter(|share| {
        let user = share.user.is_none() || share.user == charge.user;
        user && Some(&share.account) == charge.account.as_ref()
    });
    ours.filter_map(|share| {
        let (due, used) = (share.due?, share.usage?);
        Some(FairShare {
            of: match &share.user {
                None => format!("account {}", share.account),
                Some(user) => format!("user {user} in account {}", share.account),
            },
            shares: share.shares,
            due,
            used,
            level: (used > 0.0).then(|| due / used),
            factor: share.fairness,
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use herd_slurm::accounting::parse_shares;

    use super::super::charge;
    use super::*;

    #[test]
    fn shares_are_those_of_the_jobs_account_and_user() {
        let text = "root|||0.0|1.0||cpu=1|cpu=1\n lab||10|0.5|0.25||cpu=1|cpu=1\n  \
                    lab|ann|1|0.5|1.0|0.25|cpu=1|cpu=1\n  lab|bob|1|0.5|0.0|0.9|cpu=1|cpu=1\n";
        let found = of_job(&parse_shares(text), &charge());
        let said: Vec<_> = found
            .iter()
            .map(|s| (s.of.as_str(), s.shares, s.level, s.factor))
            .collect();
        assert_eq!(
            said,
            [
                ("account lab", Some(10), Some(2.0), None),
                ("user ann in account lab", Some(1), Some(0.5), Some(0.25)),
            ]
        );
        // `priority/basic` keeps none.
        let basic = parse_shares(" lab||10||0.0||cpu=1|cpu=1\n");
        assert!(of_job(&basic, &charge()).is_empty());
    }
}
