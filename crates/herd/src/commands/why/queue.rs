//! What a cluster tells of a job in its queue, as evidence for the sentence above it.

use herd_backends::slurm::evidence::{Evidence, FairShare, LimitUse, Nodes};
use herd_slurm::fit::Obstacle;
use herd_slurm::outcome::Condition;
use herd_slurm::reason::{Class, Reason};
use serde::Serialize;

use crate::backend_slurm;
use crate::jobs::Job;
use crate::text;

/// A job in the queue.
#[derive(Debug, Serialize)]
pub(super) struct Queue {
    /// Slurm's number.
    job: u32,
    /// The cluster, where there are several.
    cluster: Option<String>,
    /// Slurm's word for what it waits for, and what Slurm says besides.
    reason: Option<String>,
    detail: Option<String>,
    /// What kind of reason it is: `turn`, `held`, `never`, `site`, `ended`.
    class: Option<Class>,
    /// What the word means, and what may be changed.
    meaning: Option<String>,
    change: Option<String>,
    #[serde(flatten)]
    evidence: Evidence,
}

/// Asks the cluster about a job that waits; nothing for any other.
pub(super) fn look(job: &Job) -> Option<Queue> {
    let record = job.slurm.as_ref()?;
    let view = job.observed.as_ref()?;
    if job.is_ended() || !matches!(view.condition, Condition::Pending { .. }) {
        return None;
    }
    let known = view.reason.explain();
    let word = |reason: &Reason| Some(reason.code().to_owned()).filter(|code| !code.is_empty());
    Some(Queue {
        job: record.job,
        cluster: record.cluster.clone(),
        reason: word(&view.reason),
        detail: view.reason.detail().map(str::to_owned),
        class: view.reason.class(),
        meaning: known.as_ref().map(|known| known.meaning.clone()),
        change: known.map(|known| known.change),
        evidence: backend_slurm::evidence(&job.dir, record, view).unwrap_or_default(),
    })
}

impl Queue {
    /// For people: what was found, then what to change.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let found = &self.evidence;
        if let Some(charge) = &found.charge {
            let mut words = vec![format!("partition {}", charge.partition)];
            words.extend(charge.account.iter().map(|name| format!("account {name}")));
            words.extend(charge.qos.iter().map(|name| format!("QOS {name}")));
            lines.push(format!("in: {}", words.join(", ")));
        }
        lines.extend(self.detail.iter().map(|text| format!("Slurm adds: {text}")));
        if let Some(nodes) = &found.nodes {
            of_nodes(nodes, &mut lines);
        }
        lines.extend(found.limits.iter().map(of_limit));
        lines.extend(found.shares.iter().map(of_share));
        match found.expected_start {
            Some(at) => lines.push(format!(
                "start: Slurm expects {}",
                text::moment(at.saturating_mul(1000))
            )),
            None => lines.push("start: Slurm has worked out no time".to_owned()),
        }
        for what in &found.unanswered {
            lines.push(format!("not found out: {what}"));
        }
        lines.extend(self.change.iter().map(|text| format!("change: {text}")));
        lines
    }
}

fn of_nodes(nodes: &Nodes, lines: &mut Vec<String>) {
    let Nodes {
        wanted, total, fit, ..
    } = nodes;
    let now = match *fit {
        0 => "none of which is free for it now".to_owned(),
        _ => format!("{fit} of which would do now ({})", nodes.fitting),
    };
    lines.push(format!(
        "nodes: it wants {wanted}, its partition has {total}, {now}"
    ));
    for blocked in &nodes.obstacles {
        lines.push(format!(
            "  {}: {}",
            blocked.nodes,
            obstacle(&blocked.obstacle)
        ));
    }
}

fn obstacle(obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::TooSmall => "smaller than what the job asks for".to_owned(),
        Obstacle::OutOfService(state, None) => format!("out of service ({state})"),
        Obstacle::OutOfService(state, Some(why)) => format!("out of service ({state}: {why})"),
        Obstacle::Cpus(free) => format!("too few CPUs free ({free})"),
        Obstacle::Memory(free) => {
            let free = text::size(free.saturating_mul(1 << 20));
            format!("too little memory free ({free})")
        }
        Obstacle::Gpus(free) => format!("too few GPUs free ({free})"),
    }
}

fn of_limit(limit: &LimitUse) -> String {
    let (of, what, most) = (&limit.of, &limit.what, limit.limit);
    let used = match limit.used {
        Some(used) => format!("{used} of {most} {what}"),
        None => format!("at most {most} {what}"),
    };
    match limit.asked {
        Some(asked) if limit.stands_against() => {
            format!("limit: {of}: {used}, and the job asks for {asked}")
        }
        _ => format!("limit: {of}: {used}"),
    }
}

fn of_share(share: &FairShare) -> String {
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    let mut words = Vec::new();
    words.extend(share.shares.map(|shares| format!("{shares} shares")));
    words.push(format!("due {}", percent(share.due)));
    words.push(format!("used {}", percent(share.used)));
    words.extend(share.level.map(|level| format!("level {level:.2}")));
    words.extend(share.factor.map(|factor| format!("factor {factor:.2}")));
    format!("share: {}: {}", share.of, words.join(", "))
}
