//! What administrators have set: associations and QOS, from `sacctmgr`. Limits only, no usage.

use std::collections::BTreeMap;

use herd_core::units::Span;
use serde::{Deserialize, Serialize};

use super::{amounts, columns};
use crate::call::Call;
use crate::text::{given, number};
use crate::time::Limit;

const QOS: &str = "Name,Priority,GraceTime,Preempt,PreemptMode,MaxWall,MaxTRESPU,MaxJobsPU,\
                   MaxSubmitPU,GrpTRES,MaxTRES,Flags";
const ASSOCIATION: &str = "Cluster,Account,User,Partition,QOS,DefaultQOS,GrpTRES,GrpTRESMins,\
                           MaxJobs,MaxSubmit,MaxWall,GrpJobs,GrpSubmit";

/// A quality of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qos {
    /// Its name.
    pub name: String,
    /// Its priority.
    pub priority: u64,
    /// Time between the notice of a preemption and its SIGTERM.
    pub grace: Span,
    /// Whose jobs it preempts.
    pub preempts: Vec<String>,
    /// How: `cluster` (as configured), `requeue`, `cancel`, `suspend`.
    pub preempt_mode: String,
    /// Longest time limit of a job.
    pub max_wall: Option<Span>,
    /// Most that one user may have.
    pub max_per_user: BTreeMap<String, u64>,
    /// Most jobs of one user that run.
    pub max_jobs_per_user: Option<u32>,
    /// Most jobs of one user, waiting ones included.
    pub max_submit_per_user: Option<u32>,
    /// Most that all its jobs may have together.
    pub group: BTreeMap<String, u64>,
    /// Most that one job may have.
    pub max_per_job: BTreeMap<String, u64>,
    /// `DenyOnLimit`, `NoReserve`, …
    pub flags: Vec<String>,
}

/// An account, or a user in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Association {
    /// Cluster.
    pub cluster: String,
    /// Account.
    pub account: String,
    /// User; none in the account's own line.
    pub user: Option<String>,
    /// Partition that it is for; none for all.
    pub partition: Option<String>,
    /// QOS that may be used.
    pub qos: Vec<String>,
    /// QOS of jobs that name none.
    pub default_qos: Option<String>,
    /// Most that its jobs may have together.
    pub group: BTreeMap<String, u64>,
    /// Minutes that its jobs may use.
    pub group_minutes: BTreeMap<String, u64>,
    /// Most jobs that run, for each user.
    pub max_jobs: Option<u32>,
    /// Most jobs, waiting ones included, for each user.
    pub max_submit: Option<u32>,
    /// Longest time limit of a job.
    pub max_wall: Option<Span>,
    /// Most jobs that run together.
    pub group_jobs: Option<u32>,
    /// Most jobs together, waiting ones included.
    pub group_submit: Option<u32>,
}

/// Asks for all QOS.
pub fn qos_call() -> Call {
    Call::new(
        "sacctmgr",
        ["-n", "-P", "show", "qos", &format!("format={QOS}")],
    )
}

/// Asks for the associations of one user, or of all.
pub fn associations_call(user: Option<&str>) -> Call {
    let user = user.map(|user| format!("user={user}"));
    let format = format!("format={ASSOCIATION}");
    let fixed = ["-n", "-P", "show", "assoc", &format].map(str::to_owned);
    Call::new("sacctmgr", fixed.into_iter().chain(user))
}

fn list(text: &str) -> Vec<String> {
    given(text).map_or_else(Vec::new, |text| {
        text.split(',').map(str::to_owned).collect()
    })
}

/// The QOS of the output.
pub fn parse_qos(output: &str) -> Vec<Qos> {
    let qos = |line: &str| {
        let [
            name,
            priority,
            grace,
            preempts,
            mode,
            wall,
            user,
            jobs,
            submit,
            group,
            job,
            flags,
        ] = columns(line)?;
        let limit = |text| Limit::parse(text).and_then(Limit::span);
        Some(Qos {
            name: given(name)?.to_owned(),
            priority: number(priority).unwrap_or(0),
            grace: limit(grace).unwrap_or_default(),
            preempts: list(preempts),
            preempt_mode: mode.to_owned(),
            max_wall: limit(wall),
            max_per_user: amounts(user),
            max_jobs_per_user: number(jobs),
            max_submit_per_user: number(submit),
            group: amounts(group),
            max_per_job: amounts(job),
            flags: list(flags),
        })
    };
    output.lines().filter_map(qos).collect()
}

/// The associations of the output.
pub fn parse_associations(output: &str) -> Vec<Association> {
    let association = |line: &str| {
        let [
            cluster,
            account,
            user,
            partition,
            qos,
            default,
            group,
            minutes,
            jobs,
            submit,
            wall,
            group_jobs,
            group_submit,
        ] = columns(line)?;
        Some(Association {
            cluster: cluster.to_owned(),
            account: given(account)?.to_owned(),
            user: given(user).map(str::to_owned),
            partition: given(partition).map(str::to_owned),
            qos: list(qos),
            default_qos: given(default).map(str::to_owned),
            group: amounts(group),
            group_minutes: amounts(minutes),
            max_jobs: number(jobs),
            max_submit: number(submit),
            max_wall: Limit::parse(wall).and_then(Limit::span),
            group_jobs: number(group_jobs),
            group_submit: number(group_submit),
        })
    };
    output.lines().filter_map(association).collect()
}
