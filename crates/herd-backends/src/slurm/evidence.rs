//! Why a job waits, as far as the cluster tells: which nodes would fit and what keeps it off the others, limits
//! and what is used of them, and when Slurm expects to start it.

use std::collections::BTreeMap;

use herd_core::hostlist;
use herd_core::spec::Resources;
use herd_slurm::accounting::{self, AssociationUse, Counted, Qos};
use herd_slurm::charge::{self, Charge};
use herd_slurm::fit::{Obstacle, obstacle};
use herd_slurm::node::{self, Node};
use herd_slurm::reason::{Holder, Reason};
use herd_slurm::squeue;
use serde::Serialize;

use super::cluster::Cluster;
use super::command::CommandError;

/// What was found out about a job that waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Evidence {
    /// Whom it is charged to.
    pub charge: Option<Charge>,
    /// Nodes of its partition.
    pub nodes: Option<Nodes>,
    /// Limits that hold for it.
    pub limits: Vec<LimitUse>,
    /// When Slurm expects to start it, seconds since the Unix epoch on Slurm's clock.
    pub expected_start: Option<u64>,
    /// What could not be found out, and why.
    pub unanswered: Vec<String>,
}

/// The nodes of a job's partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nodes {
    /// How many the job asks for.
    pub wanted: u32,
    /// How many there are.
    pub total: u32,
    /// How many would fit now.
    pub fit: u32,
    /// Those, in Slurm's short form.
    pub fitting: String,
    /// What keeps the job off the others.
    pub obstacles: Vec<Blocked>,
}

/// Nodes that one thing keeps the job off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// Their names, in Slurm's short form.
    pub nodes: String,
    /// How many they are.
    pub count: u32,
    /// What it is.
    pub obstacle: Obstacle,
}

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
    let mut unanswered = Vec::new();
    let mut note = |what: &str, error: &CommandError| {
        let why = herd_core::text::error_line(error);
        unanswered.push(format!("{what}: {why}"));
    };
    match cluster.text(charge::call(job)).await {
        Ok(text) => found.charge = charge::parse(&text),
        Err(error) => note("partition and account", &error),
    }
    match cluster.text(node::show_call(None)).await {
        Ok(text) => {
            let all = node::parse_show(&text);
            found.nodes = Some(fit(&all, found.charge.as_ref(), wanted, nodes));
        }
        Err(error) => note("nodes", &error),
    }
    for call in squeue::start_calls(&[job]) {
        match cluster.text(call).await {
            Ok(text) => {
                let mut estimates = squeue::parse_start(&text).into_iter();
                let ours = estimates.find(|estimate| estimate.job == job);
                found.expected_start = ours.and_then(|ours| Some(ours.start?.0));
            }
            Err(error) => note("expected start", &error),
        }
    }
    if let Some(charge) = &found.charge {
        if let Some(account) = &charge.account {
            match cluster.text(accounting::use_call(Some(account))).await {
                Ok(text) => found.limits = of_account(&accounting::parse_use(&text), charge),
                Err(error) => note("limits of the account", &error),
            }
        }
        let of_qos = reason
            .limit()
            .is_some_and(|limit| limit.holder == Holder::Qos);
        if let Some(name) = charge.qos.as_ref().filter(|_| of_qos) {
            match cluster.text(accounting::qos_call()).await {
                Ok(text) => {
                    let all = accounting::parse_qos(&text);
                    let ours = all.iter().find(|qos| qos.name == *name);
                    found.limits.extend(ours.into_iter().flat_map(of_a_qos));
                }
                Err(error) => note("limits of the QOS", &error),
            }
        }
    }
    found.unanswered = unanswered;
    found
}

/// Which nodes would do now, and what keeps the job off the others.
fn fit(all: &[Node], charge: Option<&Charge>, wanted: &Resources, nodes: u32) -> Nodes {
    let ours = all.iter().filter(|node| {
        let of = |partition: &String| charge.is_none_or(|charge| charge.is_in(partition));
        node.partitions.iter().any(of)
    });
    let mut total = 0;
    let mut fitting = Vec::new();
    let mut blocked: BTreeMap<Obstacle, Vec<&str>> = BTreeMap::new();
    for node in ours {
        total += 1;
        match obstacle(node, wanted) {
            None => fitting.push(node.name.as_str()),
            Some(obstacle) => blocked.entry(obstacle).or_default().push(&node.name),
        }
    }
    let count = |names: &[&str]| u32::try_from(names.len()).unwrap_or(u32::MAX);
    Nodes {
        wanted: nodes,
        total,
        fit: count(&fitting),
        fitting: hostlist::fold(&fitting),
        obstacles: blocked
            .into_iter()
            .map(|(obstacle, names)| Blocked {
                count: count(&names),
                nodes: hostlist::fold(&names),
                obstacle,
            })
            .collect(),
    }
}

/// Limits of a job's account and of its user in it.
fn of_account(all: &[AssociationUse], charge: &Charge) -> Vec<LimitUse> {
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
        let mut say = |what: String, counted: &Counted| {
            limits.extend(counted.limit.map(|limit| LimitUse {
                of: of.clone(),
                what,
                limit,
                used: Some(counted.used),
            }));
        };
        for (what, counted) in &found.group {
            say(what.clone(), counted);
        }
        for (what, counted) in &found.group_minutes {
            say(format!("{what} minutes"), counted);
        }
        for (what, counted) in &found.group_running_minutes {
            say(
                format!("{what} minutes that running jobs may take"),
                counted,
            );
        }
        for (what, counted) in [
            ("running jobs", &found.jobs),
            ("jobs, waiting ones included", &found.submitted),
        ] {
            if let Some(counted) = counted {
                say(what.to_owned(), counted);
            }
        }
    }
    limits
}

/// Limits of a QOS; Slurm tells what is used of them in no form that is the same in all releases.
fn of_a_qos(qos: &Qos) -> Vec<LimitUse> {
    let tables = [
        ("", &qos.group),
        (" of one user", &qos.max_per_user),
        (" of one job", &qos.max_per_job),
    ];
    let amounts = tables.into_iter().flat_map(|(of, table)| {
        table
            .iter()
            .map(move |(what, limit)| (format!("{what}{of}"), *limit))
    });
    let jobs = [
        ("running jobs of one user", qos.max_jobs_per_user),
        ("jobs of one user", qos.max_submit_per_user),
    ];
    let jobs = jobs
        .into_iter()
        .filter_map(|(what, limit)| Some((what.to_owned(), u64::from(limit?))));
    amounts
        .chain(jobs)
        .map(|(what, limit)| LimitUse {
            of: format!("QOS {}", qos.name),
            what,
            limit,
            used: None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge() -> Charge {
        Charge {
            partition: "gpu".to_owned(),
            account: Some("lab".to_owned()),
            qos: Some("low".to_owned()),
            user: Some("ann".to_owned()),
        }
    }

    #[test]
    fn nodes_of_the_partition_are_put_together_by_what_keeps_the_job_off_them() {
        let line = |name: &str, partition: &str, used: u32| {
            format!(
                "NodeName={name} CPUAlloc={used} CPUTot=8 RealMemory=4000 AllocMem=0 State=MIXED \
                 Partitions={partition}\n"
            )
        };
        let text = line("n1", "gpu", 8)
            + &line("n2", "gpu", 8)
            + &line("n3", "gpu", 1)
            + &line("m1", "cpu", 0);
        let wanted = Resources {
            cpus: Some(4),
            ..Resources::default()
        };
        let found = fit(&node::parse_show(&text), Some(&charge()), &wanted, 2);
        assert_eq!((found.total, found.fit, found.wanted), (3, 1, 2));
        assert_eq!(found.fitting, "n3");
        let blocked = &found.obstacles[0];
        assert_eq!((blocked.nodes.as_str(), blocked.count), ("n[1-2]", 2));
        assert_eq!(blocked.obstacle, Obstacle::Cpus(0));
    }

    #[test]
    fn limits_are_those_of_the_jobs_own_account_and_user() {
        let text = "Account=lab UserName= GrpJobs=N(3) GrpTRES=cpu=N(4),gres/gpu=4(4)\n\
                    Account=lab UserName=ann(7) GrpJobs=2(1) GrpTRES=cpu=N(4)\n\
                    Account=lab UserName=bob(8) GrpJobs=1(1)\nAccount=x UserName= GrpJobs=1(1)\n";
        let limits = of_account(&accounting::parse_use(text), &charge());
        let said: Vec<_> = limits
            .iter()
            .map(|l| (l.of.as_str(), l.what.as_str(), l.limit, l.used))
            .collect();
        assert_eq!(
            said,
            [
                ("account lab", "gres/gpu", 4, Some(4)),
                ("user ann in account lab", "running jobs", 2, Some(1)),
            ]
        );
    }
}
