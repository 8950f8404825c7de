//! Why a job waits, as far as the cluster tells: which nodes would fit and what keeps it off the others, limits
//! and what is used of them, its fair share, and when Slurm expects to start it.

mod limits;
mod nodes;
mod share;

use herd_core::spec::Resources;
use herd_slurm::accounting;
use herd_slurm::charge::{self, Charge};
use herd_slurm::node;
use herd_slurm::reason::{Class, Holder, Measure, Reason};
use herd_slurm::{Call, squeue};
use serde::Serialize;

pub use self::limits::LimitUse;
pub use self::nodes::{Blocked, Nodes};
pub use self::share::FairShare;
use super::cluster::Cluster;

/// What was found out about a job that waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Evidence {
    /// Whom it is charged to.
    pub charge: Option<Charge>,
    /// Nodes of its partition.
    pub nodes: Option<Nodes>,
    /// Limits that hold for it; those that it would exceed come first.
    pub limits: Vec<LimitUse>,
    /// Fair share of its account and user, where others go first.
    pub shares: Vec<FairShare>,
    /// When Slurm expects to start it, seconds since the Unix epoch on Slurm's clock.
    pub expected_start: Option<u64>,
    /// What could not be found out, and why.
    pub unanswered: Vec<String>,
}

/// Asks the cluster about a job that waits. What it does not answer is named in the result.
pub async fn gather(
    cluster: &Cluster,
    job: u32,
    wanted: &Resources,
    nodes: u32,
    reason: &Reason,
) -> Evidence {
    let mut found = Evidence::default();
    let mut ask = Asking {
        cluster,
        unanswered: Vec::new(),
    };
    if let Some(text) = ask.about("partition and account", charge::call(job)).await {
        found.charge = charge::parse(&text);
    }
    if let Some(text) = ask.about("nodes", node::show_call(None)).await {
        let all = node::parse_show(&text);
        found.nodes = Some(nodes::fit(&all, found.charge.as_ref(), wanted, nodes));
    }
    for call in squeue::start_calls(&[job]) {
        if let Some(text) = ask.about("expected start", call).await {
            let mut estimates = squeue::parse_start(&text).into_iter();
            let ours = estimates.find(|estimate| estimate.job == job);
            found.expected_start = ours.and_then(|ours| Some(ours.start?.0));
        }
    }
    if let Some(charge) = &found.charge {
        found.limits = ask.limits(job, charge, reason).await;
        // Stable: otherwise they keep the order from the account to the user.
        found.limits.sort_by_key(|limit| !limit.stands_against());
        let account = charge.account.as_deref();
        if let Some(account) = account.filter(|_| reason.class() == Some(Class::Turn)) {
            let call = accounting::shares_call(Some(account));
            let text = ask.about("fair share", call).await.unwrap_or_default();
            found.shares = share::of_job(&accounting::parse_shares(&text), charge);
        }
    }
    found.unanswered = ask.unanswered;
    found
}

/// Questions to a cluster, and those without an answer.
struct Asking<'a> {
    cluster: &'a Cluster,
    unanswered: Vec<String>,
}

impl Asking<'_> {
    async fn about(&mut self, what: &str, call: Call) -> Option<String> {
        match self.cluster.text(call).await {
            Ok(text) => Some(text),
            Err(error) => {
                let why = herd_core::text::error_line(&error);
                self.unanswered.push(format!("{what}: {why}"));
                None
            }
        }
    }

    async fn limits(&mut self, job: u32, charge: &Charge, reason: &Reason) -> Vec<LimitUse> {
        let mut limits = Vec::new();
        let Some(account) = &charge.account else {
            return limits;
        };
        let call = charge::wanted_call(job);
        let asked = self.about("what the job asks for", call).await;
        let asked = charge::parse_wanted(&asked.unwrap_or_default());
        let call = accounting::use_call(Some(account));
        if let Some(text) = self.about("limits of the account", call).await {
            let all = accounting::parse_use(&text);
            limits.extend(limits::of_account(&all, charge, &asked));
        }
        let by_qos = reason
            .limit()
            .filter(|limit| limit.holder == Holder::Qos)
            .map(|limit| limit.measure);
        let (Some(qos), Some(measure)) = (&charge.qos, by_qos) else {
            return limits;
        };
        let call = accounting::qos_use_call(qos);
        if let Some(text) = self.about("limits of the QOS", call).await {
            let all = accounting::parse_qos_use(&text);
            let ours = all.iter().filter(|found| found.name == *qos);
            limits.extend(ours.flat_map(|found| limits::of_qos(found, charge, &asked)));
        }
        // The controller tells what is used, the database what one job may have.
        if measure == Measure::PerJob
            && let Some(text) = self
                .about("limits of the QOS", accounting::qos_call())
                .await
        {
            let all = accounting::parse_qos(&text);
            let ours = all.iter().filter(|found| found.name == *qos);
            limits.extend(ours.flat_map(|found| limits::of_one_job(found, &asked)));
        }
        limits
    }
}

#[cfg(test)]
fn charge() -> Charge {
    Charge {
        partition: "gpu".to_owned(),
        account: Some("lab".to_owned()),
        qos: Some("low".to_owned()),
        user: Some("ann".to_owned()),
        user_number: Some(7),
    }
}
